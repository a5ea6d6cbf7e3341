"""Finding OpenCL runtimes that nothing registered."""

from __future__ import annotations

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
