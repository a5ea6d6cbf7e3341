"""Finding OpenCL runtimes that nothing registered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tuner.runtime.opencl_loader import other_vendors, register_vendors


def test_an_environment_without_the_runtime_is_left_alone(tmp_path: Path) -> None:
    """Where Intel's runtime is not installed, the loader searches as it always does."""
    assert not register_vendors(tmp_path)


def test_other_vendors_stay_visible(tmp_path: Path) -> None:
    """Registered runtimes are kept; one beside its vendor file is named by path."""
    (tmp_path / "a.icd").write_text("libvendor.so.1\n")
    (tmp_path / "b.icd").write_text("libbeside.so")
    (tmp_path / "libbeside.so").write_bytes(b"")
    (tmp_path / "intel.icd").write_text("/somewhere/libintelocl.so\n")
    found = other_vendors((tmp_path, tmp_path / "missing"))
    assert found == ("libvendor.so.1", str(tmp_path / "libbeside.so"))


def test_groups_are_laid_over_threads_evenly_unless_the_user_says_otherwise(
    tmp_path: Path,
) -> None:
    """A thread gets an equal range of groups; a setting of the environment wins."""
    (tmp_path / "libintelocl.so").write_bytes(b"")
    script = (
        "import ctypes, pathlib, sys\n"
        "from tuner.runtime.opencl_loader import register_vendors\n"
        "get = ctypes.CDLL(None).getenv\n"
        "get.restype = ctypes.c_char_p\n"
        "register_vendors(pathlib.Path(sys.argv[1]))\n"
        "print(get(b'DPCPP_CPU_SCHEDULE').decode())\n"
    )

    def chosen(given: dict[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **given},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    assert chosen({}) == "static"
    assert chosen({"DPCPP_CPU_SCHEDULE": "dynamic"}) == "dynamic"
