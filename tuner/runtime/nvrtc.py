"""NVIDIA's real compiler as a library: needs no GPU and no driver.

What it made of a text is kept on disk for the next process: compiling takes a fifth of
a second, reading a fraction of a millisecond.

Source: NVIDIA, "NVRTC" (CUDA Toolkit documentation); the binding is CuPy's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from tuner.errors import CompileFailed, DeviceUnavailable
from tuner.plan import Resources, Source
from tuner.runtime.compiled import CompiledStore, user_folder

_CURE: Final = "pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime"
_REPORT: Final = re.compile(r"Used (\d+) registers")
_SPILLS: Final = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED: Final = re.compile(r"(\d+) bytes smem")
_EXACTNESS: Final = {"strict": (), "relaxed": ("--use_fast_math",)}
_KEPT: Final = 4096
_LENGTH_BYTES: Final = 8
_HEADERS: Final = ("cuda_fp16.h", "cuda_bf16.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled kernel.

    Attributes:
        cubin: machine code.
        resources: what it needs of a multiprocessor.
        log: everything that the compiler said.
    """

    cubin: bytes
    resources: Resources
    log: str


def _binding() -> Any:
    try:
        from cupy.cuda import nvrtc  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise DeviceUnavailable("nvrtc", str(error), hint=_CURE) from error
    return nvrtc


@cache
def is_available() -> bool:
    """Whether the compiler can be loaded."""
    try:
        _binding().getVersion()
    except (DeviceUnavailable, RuntimeError, OSError):
        return False
    return True


@cache
def version() -> str:
    """Version of the compiler, such as "nvrtc 13.5".

    Raises:
        DeviceUnavailable: the compiler is not installed.
    """
    major, minor = _binding().getVersion()
    return f"nvrtc {major}.{minor}"


@cache
def available_architectures() -> tuple[str, ...]:
    """Architectures that the compiler knows, as "sm_90"; empty when there is none."""
    if not is_available():
        return ()
    return tuple(f"sm_{number}" for number in _binding().getSupportedArchs())


@cache
def _include_folders() -> tuple[str, ...]:
    """Where the wheel `nvidia-cuda-runtime` keeps cuda_fp16.h and cuda_bf16.h."""
    try:
        import nvidia.cu13 as headers  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError:
        return ()
    folders = (Path(entry) / "include" for entry in headers.__path__)
    return tuple(str(folder) for folder in folders if folder.is_dir())


def compile_cubin(
    source: Source,
    architecture: str,
    *,
    exactness: str = "strict",
    folder: Callable[[], Path | None] = user_folder,
) -> Compiled:
    """Compile a generated source; the answer is kept for equal questions.

    Args:
        source: in CUDA.
        architecture: such as "sm_90".
        exactness: "strict" or "relaxed" (fast math).
        folder: where machine code is kept; see `CompiledStore`.

    Raises:
        CompileFailed: the compiler refused the source or the architecture; the
            problem holds its log.
        DeviceUnavailable: the compiler is not installed.
    """
    return _compile(source, architecture, exactness, folder())


@lru_cache(maxsize=_KEPT)
def _compile(
    source: Source, architecture: str, exactness: str, folder: Path | None
) -> Compiled:
    options = (
        f"--gpu-architecture={architecture}",
        "--ptxas-options=-v",
        "--std=c++17",
        *(f"--include-path={place}" for place in _include_folders()),
        *_EXACTNESS[exactness],
    )
    store = _store(folder)
    made = _unpacked(store.load(source.text, options))
    if made is None:
        made = _made(source, options)
        store.store(source.text, options, _packed(*made))
    log, cubin = made
    resources = read_resources(log, architecture, source.shared_bytes)
    return Compiled(cubin=cubin, resources=resources, log=log)


@cache
def _store(folder: Path | None) -> CompiledStore:
    """What this compiler has made; new headers may lie where others lay before.

    Raises:
        DeviceUnavailable: the compiler is not installed.
    """
    places = (Path(each) / name for each in _include_folders() for name in _HEADERS)
    known = [place.stat() for place in places if place.exists()]
    headers = (f"{each.st_size} {each.st_mtime_ns}" for each in known)
    return CompiledStore(folder, (version(), *headers))


def _packed(log: str, cubin: bytes) -> bytes:
    """What the compiler said and what it made, in one piece."""
    said = log.encode()
    return len(said).to_bytes(_LENGTH_BYTES, "little") + said + cubin


def _unpacked(content: bytes | None) -> tuple[str, bytes] | None:
    if content is None:
        return None
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    return content[_LENGTH_BYTES:end].decode(), content[end:]


def _made(source: Source, options: Sequence[str]) -> tuple[str, bytes]:
    binding = _binding()
    program = binding.createProgram(source.text, f"{source.entry}.cu", (), ())
    try:
        binding.compileProgram(program, list(options))
        return str(binding.getProgramLog(program)), bytes(binding.getCUBIN(program))
    except binding.NVRTCError as error:
        log = str(binding.getProgramLog(program))
        raise CompileFailed(source.entry, f"{error}: {log}") from error
    finally:
        binding.destroyProgram(program)


def read_resources(log: str, architecture: str, dynamic_bytes: int = 0) -> Resources:
    """Registers, spills and shared memory from the assembler's report.

    Of several kernel functions in one text, each number is the greatest.

    Args:
        log: of one text, compiled with ``--ptxas-options=-v``.
        architecture: that it was compiled for.
        dynamic_bytes: shared memory that is asked for at launch instead.

    Raises:
        CompileFailed: the log holds no report.
    """
    registers, spills = _REPORT.findall(log), _SPILLS.findall(log)
    if not registers or not spills:
        raise CompileFailed(architecture, f"no resource report in {log!r}")
    static_bytes = max(map(int, _SHARED.findall(log)), default=0)
    return Resources(
        registers=max(map(int, registers)),
        spill_store_bytes=max(int(stored) for stored, _ in spills),
        spill_load_bytes=max(int(loaded) for _, loaded in spills),
        shared_bytes=static_bytes or dynamic_bytes,
        architecture=architecture,
    )
