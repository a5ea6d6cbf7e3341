"""Finding OpenCL runtimes that nothing registered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.runtime.opencl_loader import (
    other_vendors,
    register_vendors,
    vendors_folder,
)

_REGISTER = (
    "import ctypes, pathlib, sys\n"
    "from tuner.runtime.opencl_loader import register_vendors\n"
    "get = ctypes.CDLL(None).getenv\n"
    "get.restype = ctypes.c_char_p\n"
    "register_vendors(pathlib.Path(sys.argv[1]))\n"
    "print(get(sys.argv[2].encode()).decode())\n"
)


def _registered(name: str, folder: Path, **given: str) -> str:
    """A variable of a process that has registered a runtime which lies in a folder."""
    (folder / "libintelocl.so").write_bytes(b"")
    places = {"TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _REGISTER, str(folder), name],
        env={"PATH": os.environ["PATH"], **places, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


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
    name = "DPCPP_CPU_SCHEDULE"
    assert _registered(name, tmp_path) == "static"
    assert _registered(name, tmp_path, DPCPP_CPU_SCHEDULE="dynamic") == "dynamic"


def test_processes_leave_one_folder_behind_and_not_one_each(tmp_path: Path) -> None:
    """The second process names the folder that the first has made."""
    first, second = (_registered("OCL_ICD_VENDORS", tmp_path) for _ in range(2))
    assert first == second
    files = [path.read_text() for path in sorted(Path(first).glob("*.icd"))]
    assert files[0] == f"{tmp_path / 'libintelocl.so'}\n"
    assert not list(tmp_path.glob("fuseplan-icd-*"))


def test_without_a_cache_the_folder_goes_with_its_process(tmp_path: Path) -> None:
    """Where nothing can be kept a temporary folder serves, and nothing is left."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    named = _registered("OCL_ICD_VENDORS", tmp_path, XDG_CACHE_HOME=str(blocked))
    assert Path(named).parent == tmp_path
    assert not Path(named).exists()
    assert blocked.read_text() == "in the way"


def test_a_folder_of_vendors_is_told_by_what_it_names(tmp_path: Path) -> None:
    """Other runtimes have another folder; a damaged or foreign file is put right."""
    home = tmp_path / "vendors"
    folder = vendors_folder(("/a.so", "/b.so"), home)
    assert vendors_folder(("/a.so",), home) != folder
    (folder / "0.icd").write_text("")
    (folder / "evil.icd").write_text("/evil.so\n")
    assert vendors_folder(("/a.so", "/b.so"), home) == folder
    named = {path.name: path.read_text() for path in folder.iterdir()}
    assert named == {"0.icd": "/a.so\n", "1.icd": "/b.so\n"}


@pytest.mark.parametrize("at", ["home", "folder"])
def test_nobody_else_names_libraries_to_us(at: str, tmp_path: Path) -> None:
    """A folder into which others may write is not used."""
    home = tmp_path / "vendors"
    folder = vendors_folder(("/a.so",), home)
    {"home": home, "folder": folder}[at].chmod(0o777)
    other = vendors_folder(("/a.so",), home)
    assert home not in other.parents
    assert (other / "0.icd").read_text() == "/a.so\n"
