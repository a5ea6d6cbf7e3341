"""What `fuseplan doctor` looks at, and the cure for what is missing."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from service.cli.exits import Exit
from service.cli.serving import location
from service.dashboard.formats import size
from service.store import connect, schema
from service.store.errors import StoreUnavailable
from service.store.filesystem import database_file
from tuner.errors import TunerError
from tuner.runtime import cuda, library, nvrtc, opencl
from tuner.runtime.opencl_loader import register_vendors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from service.settings import Settings

FREE_BYTES: Final = 256 * 2**20
_CPU_CURE: Final = "pip install 'fuseplan[cpu]'"
_CUDA_CURE: Final = "pip install 'fuseplan[cuda]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that Fuseplan may need.

    Attributes:
        needed: whether tuning on this machine's processor fails without it.
        cure: what to do when it is missing.
        exit_code: of the command, when it is needed and missing.
    """

    name: str
    ok: bool
    detail: str
    cure: str = ""
    needed: bool = True
    exit_code: int = Exit.DEVICE


def all_checks(settings: Settings) -> tuple[Check, ...]:
    """Every check, in the order in which a user would look."""
    return (
        _python(),
        _loader(),
        _opencl(),
        _library(),
        _nvrtc(),
        _gpu(),
        _database(settings),
        _disk(settings),
    )


def local_devices() -> list[dict[str, Any]]:
    """What this machine can measure on."""
    found: Mapping[str, Check] = {"cpu": _opencl(), "cuda:0": _gpu()}
    return [
        {"device": name, "ok": check.ok, "detail": check.detail}
        for name, check in found.items()
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", ok=True, detail=version)


def _loader() -> Check:
    bundled = register_vendors()
    detail = "Intel's runtime of this environment" if bundled else "system vendors"
    return Check(name="OpenCL loader", ok=True, detail=detail, needed=False)


def _tried(look: Callable[[], str]) -> tuple[bool, str]:
    """Whether a look succeeds, and what it saw."""
    try:
        return True, look()
    except TunerError as error:
        return False, error.problem


def _opencl() -> Check:
    def look() -> str:
        first = opencl.devices()[0]
        name = str(first.name).strip()
        return f"{name} ({first.platform.name}, driver {first.driver_version})"

    ok, detail = _tried(look)
    return Check(name="OpenCL device", ok=ok, detail=detail, cure=_CPU_CURE)


def _library() -> Check:
    ok = library.is_available()
    detail = library.toolchain() if ok else "not installed"
    cure = "pip install onnxruntime"
    return Check(name="ONNX Runtime", ok=ok, detail=detail, cure=cure)


def _nvrtc() -> Check:
    ok = nvrtc.is_available()
    detail = "no CUDA compiler: plans for GPUs stay analytic"
    if ok:
        known = nvrtc.available_architectures()
        detail = f"{nvrtc.version()}, {known[0]} to {known[-1]}"
    return Check(name="NVRTC", ok=ok, detail=detail, cure=_CUDA_CURE, needed=False)


def _gpu() -> Check:
    count = cuda.device_count()
    detail = f"{count} visible" if count else "no GPU"
    cure = "a driver and an NVIDIA GPU; plans for GPUs need neither"
    return Check(
        name="CUDA device", ok=count > 0, detail=detail, cure=cure, needed=False
    )


def _database(settings: Settings) -> Check:
    file = database_file(settings.url)
    if file is not None and not file.exists():
        detail = f"{file} is not there yet; it is made when first used"
        return Check(name="database", ok=True, detail=detail)
    database = connect(settings.url, busy_timeout_seconds=1.0)
    try:
        revision = schema.revision(database)
    except StoreUnavailable as error:
        return Check(
            name="database",
            ok=False,
            detail=error.problem,
            cure=error.hint,
            exit_code=Exit.SERVICE,
        )
    finally:
        database.close()
    newest = schema.newest_revision()
    return Check(
        name="database",
        ok=revision == newest,
        detail=f"{file or location(settings)}, revision {revision}",
        cure="fuseplan db upgrade",
        exit_code=Exit.SERVICE,
    )


def _disk(settings: Settings) -> Check:
    folder = (database_file(settings.url) or settings.data_folder).parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return Check(
        name="disk",
        ok=free >= FREE_BYTES,
        detail=f"{size(free)} free in {folder}",
        cure=f"free at least {size(FREE_BYTES)}, or set XDG_DATA_HOME",
        exit_code=Exit.SERVICE,
    )
