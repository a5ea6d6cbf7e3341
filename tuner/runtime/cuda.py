"""CUDA devices through CuPy: memory, raw modules, one stream, events as the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np

from tuner.errors import DeviceUnavailable, KernelFailed
from tuner.ir.types import Array
from tuner.plan import Language, Source
from tuner.runtime import nvrtc
from tuner.runtime.backend import (
    Bytes,
    Enqueue,
    Memory,
    ResourcesExceeded,
    as_bytes,
)

_CURE: Final = "run on a machine with an NVIDIA GPU and driver"
_INSTALL: Final = "pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime"
_ALIGNMENT_BYTES: Final = 256
_NO_ROOM: Final = ("OUT_OF_RESOURCES", "OutOfResources", "OUT_OF_MEMORY", "Allocation")
"""In the names of errors that say that something does not fit."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _load() -> Any:
    try:
        import cupy  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise DeviceUnavailable("cuda", str(error), hint=_INSTALL) from error
    return cupy


def device_count() -> int:
    """Number of GPUs; 0 without CuPy or driver."""
    try:
        runtime = _load().cuda.runtime
    except DeviceUnavailable:
        return 0
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return 0


def architecture(index: int) -> str:
    """Architecture of the GPU of that number, as "sm_90"; opens no context.

    Raises:
        DeviceUnavailable: CuPy, the driver or the GPU is not there.
    """
    count = device_count()
    if index >= count:
        raise DeviceUnavailable(f"cuda:{index}", f"{count} GPUs found", hint=_CURE)
    return f"sm_{_load().cuda.Device(index).compute_capability}"


def _told(
    method: Callable[Concatenate[CudaBackend, _P], _R],
) -> Callable[Concatenate[CudaBackend, _P], _R]:
    """Errors of CUDA as errors of ours.

    They come from any call after the one that is at fault, and most stay: every later
    call in the process fails too, and only another process finds a working device.
    """

    @wraps(method)
    def call(self: CudaBackend, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except self.errors as error:
            raise explained(self.name, error) from error

    return call


class CudaBackend:
    """One GPU with one stream.

    Attributes:
        errors: what CuPy raises when CUDA refuses.
    """

    language: Language = "cuda"
    alignment_bytes = _ALIGNMENT_BYTES

    def __init__(self, index: int = 0) -> None:
        """Open a GPU.

        Raises:
            DeviceUnavailable: CuPy, the driver or the GPU is not there.
        """
        self._cupy = _load()
        count = device_count()
        if index >= count:
            raise DeviceUnavailable("cuda", f"{count} GPUs found", hint=_CURE)
        self._device = self._cupy.cuda.Device(index)
        self._device.use()
        properties = self._cupy.cuda.runtime.getDeviceProperties(index)
        self.name = bytes(properties["name"]).decode()
        self.architecture = f"sm_{self._device.compute_capability}"
        driver = self._cupy.cuda.runtime.driverGetVersion()
        self.toolchain = f"{nvrtc.version()} driver {driver}"
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._modules: dict[tuple[str, str], Any] = {}
        self._limits = properties
        self.errors: tuple[type[Exception], ...] = (
            self._cupy.cuda.runtime.CUDARuntimeError,
            self._cupy.cuda.driver.CUDADriverError,
        )

    @classmethod
    def open(cls, index: int) -> CudaBackend:
        """Open the GPU of that number."""
        return cls(index)

    @_told
    def allocate(self, size_bytes: int) -> Memory:
        """Device memory."""
        return self._cupy.empty(max(size_bytes, 1), dtype=np.uint8)

    def wrap(self, array: Array) -> Memory:
        """A copy on the device."""
        memory = self.allocate(array.nbytes)
        self.write(memory, array)
        return memory

    def slice(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        """A view."""
        return memory[offset_bytes : offset_bytes + max(size_bytes, 1)]

    def host(self, memory: Memory) -> Bytes | None:
        """The host does not see device memory."""
        del memory
        return None

    @_told
    def write(self, memory: Memory, array: Array) -> None:
        """Copy to the device."""
        self.synchronise()
        if array.nbytes:
            memory[: array.nbytes].set(as_bytes(array), stream=self._stream)
        self.synchronise()

    @_told
    def read(self, memory: Memory, array: Array) -> None:
        """Copy from the device."""
        self.synchronise()
        if array.nbytes:
            part = memory[: array.nbytes]
            as_bytes(array)[:] = part.get(stream=self._stream)

    @_told
    def fill(self, memory: Memory, value: int) -> None:
        """Set every byte."""
        with self._stream:
            memory.fill(value)

    @_told
    def bind(
        self, source: Source, memories: Sequence[Memory], *, exactness: str = "strict"
    ) -> Enqueue:
        """Compile for this GPU's architecture and fix the arguments."""
        threads = source.block[0] * source.block[1] * source.block[2]
        limit = self._limits["maxThreadsPerBlock"]
        if threads > limit:
            raise ResourcesExceeded(source.entry, f"{threads} threads, limit {limit}")
        function = self._function(source, exactness)
        if not all(source.grid):
            return _nothing
        arguments = tuple(memories)
        return _Launch(function, source, arguments, self._stream, self.errors)

    def _function(self, source: Source, exactness: str) -> Any:
        key = (source.digest, exactness)
        if key not in self._modules:
            compiled = nvrtc.compile_cubin(
                source, self.architecture, exactness=exactness
            )
            module = self._cupy.cuda.function.Module()
            module.load(compiled.cubin)
            self._modules[key] = module
        function = self._modules[key].get_function(source.entry)
        default = self._limits["sharedMemPerBlock"]
        if source.shared_bytes > default:
            self._allow_shared(function, source)
        return function

    def _allow_shared(self, function: Any, source: Source) -> None:
        """Opt in to more dynamic shared memory than the default 48 KiB."""
        limit = self._limits["sharedMemPerBlockOptin"]
        if source.shared_bytes > limit:
            raise ResourcesExceeded(
                source.entry, f"{source.shared_bytes} shared bytes, limit {limit}"
            )
        attribute = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._cupy.cuda.driver.funcSetAttribute(
            function.ptr, attribute, source.shared_bytes
        )

    @_told
    def synchronise(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()

    @_told
    def elapsed(self, enqueue: Enqueue, launches: int) -> float:
        """Seconds between two events around the launches."""
        start, stop = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        self.synchronise()
        start.record(self._stream)
        for _ in range(launches):
            enqueue()
        stop.record(self._stream)
        self.synchronise()
        return float(self._cupy.cuda.get_elapsed_time(start, stop)) * 1e-3

    def close(self) -> None:
        """Finish, and drop the compiled modules."""
        self.synchronise()
        self._modules.clear()


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel with its arguments; it keeps their memory alive."""

    function: Any
    source: Source
    arguments: tuple[Any, ...]
    stream: Any
    errors: tuple[type[Exception], ...]

    def __call__(self) -> None:
        """Put the kernel into the stream."""
        source = self.source
        try:
            self.function(
                source.grid,
                source.block,
                self.arguments,
                shared_mem=source.shared_bytes,
                stream=self.stream,
            )
        except self.errors as error:
            raise explained(source.entry, error) from error


def explained(where: str, error: Exception) -> KernelFailed:
    """An error of CUDA as one of ours."""
    text = str(error)
    kind = ResourcesExceeded if any(t in text for t in _NO_ROOM) else KernelFailed
    return kind(where, text)


def _nothing() -> None:
    """Launch of a kernel without work."""
