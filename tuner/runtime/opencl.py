"""OpenCL devices through PyOpenCL: Intel's CPU runtime first, then any other."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuner.errors import CompileFailed, DeviceUnavailable, KernelFailed
from tuner.ir.types import Array
from tuner.plan import Language, Source
from tuner.runtime.backend import (
    PAGE_BYTES,
    Bytes,
    Enqueue,
    Memory,
    ResourcesExceeded,
    aligned_bytes,
    as_bytes,
)
from tuner.runtime.compiled import CompiledStore, processor, user_folder
from tuner.runtime.opencl_loader import register_vendors

if TYPE_CHECKING:
    import pyopencl

_CURE: Final = (
    "install a CPU runtime: pip install intel-opencl-rt intel-cmplr-lib-rt pyopencl"
)
_PREFERRED: Final = ("Intel", "Portable Computing Language")
_STANDARD: Final = "-cl-std=CL3.0"
_NO_ROOM: Final = frozenset({-4, -5, -6, -54})
"""Codes of a launch that does not fit: memory, resources, host memory, group size."""
_EXACTNESS: Final = {"strict": (), "relaxed": ("-cl-fast-relaxed-math",)}


@dataclass(frozen=True, slots=True)
class _Memory:
    """A buffer, and the host array under it when both share their bytes."""

    buffer: Any
    array: Bytes | None
    size_bytes: int
    parent: _Memory | None = None


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel with its arguments; it keeps their memory alive."""

    call: Any
    memories: tuple[_Memory, ...]
    error: type[Exception]

    def __call__(self) -> None:
        try:
            self.call()
        except self.error as error:
            is_room = getattr(error, "code", 0) in _NO_ROOM
            kind = ResourcesExceeded if is_room else KernelFailed
            raise kind("launch", str(error)) from error


def _load() -> Any:
    register_vendors()
    try:
        import pyopencl  # noqa: PLC0415
    except ImportError as error:
        raise DeviceUnavailable("opencl", str(error), hint=_CURE) from error
    return pyopencl


def devices() -> tuple[pyopencl.Device, ...]:
    """All OpenCL 3.0 devices, those that we like best first.

    Raises:
        DeviceUnavailable: there is none.
    """
    cl = _load()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceUnavailable("opencl", "no platform", hint=_CURE) from error
    found = [
        device
        for platform in platforms
        for device in platform.get_devices()
        if _is_recent(device.version)
    ]
    if not found:
        raise DeviceUnavailable("opencl", "no OpenCL 3.0 device", hint=_CURE)
    return tuple(sorted(found, key=_rank))


def _is_recent(version: str) -> bool:
    """Whether "OpenCL 3.1 (Build 0)" and the like is 3.0 or later."""
    return int(version.split()[1].partition(".")[0]) >= 3  # noqa: PLR2004


def _rank(device: Any) -> tuple[bool, int]:
    names = [name in device.platform.name for name in _PREFERRED]
    cpu = bool(device.type & 2)  # CL_DEVICE_TYPE_CPU
    return (not cpu, names.index(True) if True in names else len(names))


class OpenCLBackend:
    """One OpenCL device with one in-order queue.

    On a CPU, device memory is host memory: arrays are wrapped where they lie.
    """

    language: Language = "opencl"

    def __init__(
        self,
        device: pyopencl.Device | None = None,
        *,
        folder: Callable[[], Path | None] = user_folder,
    ) -> None:
        """Open a device.

        Args:
            device: one of `devices()`; by default the first.
            folder: where compiled kernels are kept; see `CompiledStore`.

        Raises:
            DeviceUnavailable: there is no OpenCL device.
        """
        self._cl = _load()
        self._device = device if device is not None else devices()[0]
        self._context = self._cl.Context([self._device])
        self._queue = self._cl.CommandQueue(self._context)
        self._programs: dict[tuple[str, str], Any] = {}
        self._compiled = CompiledStore(folder(), self._compiler())
        self._shares = bool(self._device.type & self._cl.device_type.CPU)
        self.name = str(self._device.name).strip()
        self.toolchain = f"{self._device.platform.name} {self._device.driver_version}"
        self.alignment_bytes = max(128, self._device.mem_base_addr_align // 8)

    @classmethod
    def open(cls, index: int) -> OpenCLBackend:
        """Open the device of that number, the best-liked first.

        Raises:
            DeviceUnavailable: there are not so many devices.
        """
        found = devices()
        if index >= len(found):
            raise DeviceUnavailable(
                "opencl", f"{len(found)} devices, no number {index}", hint=_CURE
            )
        return cls(found[index])

    def _compiler(self) -> tuple[str, ...]:
        """All that decides the machine code besides a kernel's text and options."""
        device, platform = self._device, self._device.platform
        named = (platform.name, platform.version, device.name, device.version)
        return (*map(str, named), str(device.driver_version), processor())

    def allocate(self, size_bytes: int) -> Memory:
        """Page-aligned host memory on a CPU, else device memory."""
        size_bytes = max(size_bytes, 1)
        flags = self._cl.mem_flags
        if self._shares:
            return self._over(aligned_bytes(size_bytes))
        buffer = self._cl.Buffer(self._context, flags.READ_WRITE, size=size_bytes)
        return _Memory(buffer, None, size_bytes)

    def _over(self, array: Bytes) -> _Memory:
        flags = self._cl.mem_flags
        buffer = self._cl.Buffer(
            self._context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=array
        )
        return _Memory(buffer, array, array.nbytes)

    def wrap(self, array: Array) -> Memory:
        """The array's own bytes on a CPU when they are page-aligned, else a copy."""
        aligned = array.flags.c_contiguous and array.ctypes.data % PAGE_BYTES == 0
        if self._shares and aligned and array.nbytes and array.flags.writeable:
            return self._over(as_bytes(array))
        memory = self.allocate(array.nbytes)
        self.write(memory, array)
        return memory

    def slice(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        """A sub-buffer; the offset is a multiple of `alignment_bytes`."""
        size_bytes = max(size_bytes, 1)
        buffer = memory.buffer.get_sub_region(offset_bytes, size_bytes)
        array = memory.array
        part = None if array is None else array[offset_bytes:][:size_bytes]
        return _Memory(buffer, part, size_bytes, memory)

    def host(self, memory: Memory) -> Bytes | None:
        """The bytes of the memory, on a CPU."""
        array: Bytes | None = memory.array
        return array

    def write(self, memory: Memory, array: Array) -> None:
        """Copy to the device."""
        content = as_bytes(array)
        if memory.array is not None:
            memory.array[: content.nbytes] = content
        elif content.nbytes:
            self._cl.enqueue_copy(self._queue, memory.buffer, content)

    def read(self, memory: Memory, array: Array) -> None:
        """Copy from the device."""
        self.synchronise()
        if memory.array is not None:
            as_bytes(array)[:] = memory.array[: array.nbytes]
        elif array.nbytes:
            self._cl.enqueue_copy(self._queue, array, memory.buffer)

    def fill(self, memory: Memory, value: int) -> None:
        """Set every byte."""
        if memory.array is not None:
            memory.array[:] = value
            return
        pattern = bytes([value])
        self._cl.enqueue_fill_buffer(
            self._queue, memory.buffer, pattern, 0, memory.size_bytes
        )

    def bind(
        self, source: Source, memories: Sequence[Memory], *, exactness: str = "strict"
    ) -> Enqueue:
        """Compile and set the arguments; every launch has a kernel of its own."""
        self._check_block(source)
        program = self._program(source, exactness)
        try:
            kernel = self._cl.Kernel(program, source.entry)
            for index, memory in enumerate(memories):
                kernel.set_arg(index, memory.buffer)
        except self._cl.Error as error:
            raise CompileFailed(source.entry, str(error)) from error
        work = tuple(g * b for g, b in zip(source.grid, source.block, strict=True))
        if not all(work):
            return _nothing
        call = partial(
            self._cl.enqueue_nd_range_kernel, self._queue, kernel, work, source.block
        )
        return _Launch(call, tuple(memories), self._cl.Error)

    def _check_block(self, source: Source) -> None:
        threads = source.block[0] * source.block[1] * source.block[2]
        limit = self._device.max_work_group_size
        if threads > limit:
            raise ResourcesExceeded(
                source.entry, f"asks for {threads} work-items a group, limit {limit}"
            )
        shared, room = source.shared_bytes, self._device.local_mem_size
        if shared > room:
            raise ResourcesExceeded(
                source.entry, f"asks for {shared} bytes of local memory, limit {room}"
            )

    def _program(self, source: Source, exactness: str) -> Any:
        key = (source.digest, exactness)
        if key not in self._programs:
            options = [_STANDARD, *_EXACTNESS[exactness]]
            self._programs[key] = self._build(source, options)
        return self._programs[key]

    def _build(self, source: Source, options: Sequence[str]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler is talkative when content
            known = self._load(source, options)
            if known is not None:
                return known
            program = self._cl.Program(self._context, source.text)
            try:
                built = program.build(list(options), cache_dir=False)
            except self._cl.RuntimeError as error:
                raise CompileFailed(source.entry, str(error)) from error
            self._keep(source, options, built)
        return built

    def _load(self, source: Source, options: Sequence[str]) -> Any | None:
        """The program that an earlier process compiled; None if there is none."""
        binary = self._compiled.load(source.text, options)
        if binary is None:
            return None
        try:
            program = self._cl.Program(self._context, [self._device], [binary])
            return program.build(list(options), cache_dir=False)
        except self._cl.Error:  # the driver does not take it: a miss
            self._compiled.forget(source.text, options)
            return None

    def _keep(self, source: Source, options: Sequence[str], program: Any) -> None:
        try:
            (binary,) = program.get_info(self._cl.program_info.BINARIES)
        except (self._cl.Error, ValueError):  # a driver that gives none away
            return
        self._compiled.store(source.text, options, binary)

    def synchronise(self) -> None:
        """Wait for the queue."""
        try:
            self._queue.finish()
        except self._cl.Error as error:
            raise KernelFailed(self.name, str(error)) from error

    def elapsed(self, enqueue: Enqueue, launches: int) -> float:
        """Wall-clock seconds from an idle queue to an idle queue."""
        self.synchronise()
        start = time.perf_counter()
        for _ in range(launches):
            enqueue()
        self.synchronise()
        return time.perf_counter() - start

    def close(self) -> None:
        """Finish, and drop the compiled programs."""
        self.synchronise()
        self._programs.clear()


def _nothing() -> None:
    """Launch of a kernel without work."""
