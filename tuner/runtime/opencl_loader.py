"""Make an OpenCL runtime from the Python environment visible to the OpenCL loader.

Intel's CPU runtime from PyPI (`intel-opencl-rt`, `intel-cmplr-lib-rt`) puts its
libraries into the environment's `lib` folder and registers them nowhere. The loader
finds vendors through files named `*.icd` in the folder that `OCL_ICD_VENDORS` names,
and the runtime finds its vector math only when that is already in the process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tuner.runtime.compiled import is_private, user_folder

_PRELOAD: Final = ("libirng.so", "libintlc.so.5", "libimf.so", "libsvml.so")
_RUNTIME: Final = "libintelocl.so"
_SCHEDULE: Final = (b"DPCPP_CPU_SCHEDULE", b"static")
"""How the runtime lays work-groups over its threads, unless the user says otherwise.

The groups of our kernels cost the same, so that every thread takes an equal range of
them at once: that is cheaper than to share them out on demand (256 groups of a copy of
64 Ki elements: 10.5 against 14.5 us a launch on two cores), and a thread finds in its
own caches what it left there in the launch before.
"""
_SYSTEM_VENDORS: Final = Path("/etc/OpenCL/vendors")
_PRIVATE: Final = 0o700


@cache
def register_vendors(library_folder: Path = Path(sys.prefix) / "lib") -> bool:
    """Preload the runtime's libraries and name it to the loader, once a process.

    Must run before `pyopencl` is imported. The environment is changed at the C level
    only, where the loader reads it.

    Returns:
        Whether the environment holds the runtime; if not, the loader's own search
        (system vendors, PoCL's wheel) is left alone.
    """
    runtime = library_folder / _RUNTIME
    if not runtime.exists():
        return False
    for name in _PRELOAD:
        if (library_folder / name).exists():
            ctypes.CDLL(str(library_folder / name), mode=ctypes.RTLD_GLOBAL)
    others = other_vendors((_SYSTEM_VENDORS, *_pocl_folders()))
    kept = user_folder()
    home = None if kept is None else kept.with_name("vendors")
    folder = vendors_folder((str(runtime), *others), home)
    os.putenv("OCL_ICD_VENDORS", str(folder))
    ctypes.CDLL(None).setenv(*_SCHEDULE, 0)  # a value that is there stays
    return True


def vendors_folder(libraries: Sequence[str], home: Path | None) -> Path:
    """A folder with a vendor file for each of some libraries.

    It is the same for equal libraries, so that processes leave one behind and not one
    each. What it names is loaded with the user's rights: where somebody else owns the
    folder or may write into it, or nothing can be written, a folder of this process
    stands in and goes with it.

    Args:
        libraries: paths or names, the preferred one first.
        home: where such folders are kept; None to keep nothing.
    """
    files = {f"{n}.icd": f"{library}\n" for n, library in enumerate(libraries)}
    if home is not None:
        told = hashlib.sha256("".join(files.values()).encode())
        folder = home / told.hexdigest()[:16]
        with contextlib.suppress(OSError):
            for each in (home, folder):
                each.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            if is_private(home) and is_private(folder):
                _fill(folder, files)
                return folder
    folder = Path(tempfile.mkdtemp(prefix="fuseplan-icd-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _fill(folder, files)
    return folder


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    """Let a folder hold these vendor files and no others, each whole at any moment."""
    found = {path.name: path.read_text() for path in folder.glob("*.icd")}
    for name in found.keys() - files.keys():
        (folder / name).unlink(missing_ok=True)
    for name, text in files.items():
        if found.get(name) != text:
            draft = folder / f"{name}.{os.getpid()}"
            draft.write_text(text)
            draft.replace(folder / name)


def other_vendors(folders: Sequence[Path]) -> tuple[str, ...]:
    """Libraries that the vendor files of some folders name.

    A library that lies beside its vendor file is named by its path, since it would
    not be found from another folder.
    """
    files = (path for folder in folders for path in sorted(folder.glob("*.icd")))
    found = []
    for path in files:
        name = path.read_text().strip()
        if name and _RUNTIME not in name:
            beside = path.parent / name
            found.append(str(beside) if beside.exists() else name)
    return tuple(found)


def _pocl_folders() -> tuple[Path, ...]:
    """Where the wheel `pocl-binary-distribution` puts its vendor file."""
    sites = (Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    return tuple(site / "pyopencl" / ".libs" for site in sites)
