"""Tests that the command notices when the packages that it loads are not ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(*folders: Path) -> subprocess.CompletedProcess[str]:
    """Run the command's way in with these folders first on Python's path."""
    path = list(map(str, folders))
    code = (
        f"import sys; sys.path[:0] = {path}; sys.argv[1:] = ['--version']\n"
        "import _fuseplan; sys.exit(_fuseplan.main())"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def stranger(folder: Path) -> Path:
    """A distribution that brings a package `service`, installed in a folder."""
    package = folder / "service"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    info = folder / "acme_service-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-service\nVersion: 3.1\n"
    )
    (info / "top_level.txt").write_text("service\n")
    (info / "RECORD").write_text("service/__init__.py,,\n")
    return folder


def test_our_packages_are_taken_for_ours() -> None:
    """Nothing is in the way: the command runs."""
    ended = start(ROOT)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("fuseplan ")


def test_a_package_of_another_distribution_is_named(tmp_path: Path) -> None:
    """One line says whose it is and where, one what to do; nothing of it is run."""
    ended = start(stranger(tmp_path / "theirs"), ROOT)
    assert ended.returncode == 1
    told, hint = ended.stderr.splitlines()
    assert "'service'" in told
    assert "acme-service" in told
    assert str(tmp_path / "theirs" / "service") in told
    assert hint.startswith("hint: ")


def test_a_package_that_was_written_over_is_noticed(tmp_path: Path) -> None:
    """Both in one folder: the file that is there is not the one that was installed."""
    home = tmp_path / "both"
    for package in ("cost_model", "service", "tuner"):
        (home / package).mkdir(parents=True)
        (home / package / "__init__.py").write_text("")
    shutil.copy(ROOT / "_fuseplan.py", home)
    info = home / "fuseplan-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: fuseplan\nVersion: 0.1.0\n"
    )
    digest = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"  # of no bytes
    records = [f"{p}/__init__.py,sha256={digest},0" for p in ("service", "tuner")]
    (info / "RECORD").write_text("\n".join(records) + "\n")
    (home / "service" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    theirs = home / "acme_service-3.1.dist-info"
    theirs.mkdir()
    (theirs / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-service\nVersion: 3.1\n"
    )
    (theirs / "RECORD").write_text("service/__init__.py,,\n")
    ended = start(home)
    assert ended.returncode == 1
    assert "acme-service" in ended.stderr
