"""What the rest of the run-time asks of a device; each back end fulfils it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tuner.errors import KernelFailed
from tuner.ir.types import Array
from tuner.plan import Language, Source

Bytes = npt.NDArray[np.uint8]
Enqueue = Callable[[], object]
"""Puts one prepared launch into the device's queue and returns at once."""

Memory = Any
"""A piece of device memory; only the back end that made it looks inside."""

PAGE_BYTES: Final = 4096


class ResourcesExceeded(KernelFailed):
    """A kernel asks for more threads, registers or shared memory than there are."""

    code = "resources-exceeded"


class Backend(Protocol):
    """One device: memory, compiler, queue and clock.

    Launches run in the order in which they were enqueued.

    Attributes:
        name: what the device calls itself.
        language: language of the sources that it compiles.
        toolchain: what, beside the source, decides the generated code (versions).
        alignment_bytes: offsets given to `slice` are multiples of this.
    """

    name: str
    language: Language
    toolchain: str
    alignment_bytes: int

    def allocate(self, size_bytes: int) -> Memory:
        """Memory of at least one byte; its content is undefined."""
        ...

    def wrap(self, array: Array) -> Memory:
        """Memory that holds the array: the array itself where that is possible.

        The caller keeps the array alive and does not write to it.
        """
        ...

    def slice(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        """A part of allocated memory. A slice is not sliced again."""
        ...

    def host(self, memory: Memory) -> Bytes | None:
        """The memory as the host sees it without a copy; None if it cannot."""
        ...

    def write(self, memory: Memory, array: Array) -> None:
        """Copy an array to the beginning of the memory."""
        ...

    def read(self, memory: Memory, array: Array) -> None:
        """Fill a contiguous array from the beginning of the memory."""
        ...

    def fill(self, memory: Memory, value: int) -> None:
        """Set every byte."""
        ...

    def bind(
        self, source: Source, memories: Sequence[Memory], *, exactness: str = "strict"
    ) -> Enqueue:
        """Compile (once per source) and prepare a launch on these arguments.

        Raises:
            CompileFailed: the compiler refused the source.
            ResourcesExceeded: the device cannot hold one block of it.
        """
        ...

    def synchronise(self) -> None:
        """Wait until everything enqueued has run.

        Raises:
            KernelFailed: a launch failed.
        """
        ...

    def elapsed(self, enqueue: Enqueue, launches: int) -> float:
        """Seconds that `launches` launches take from an idle device until done."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


def aligned_bytes(size_bytes: int, alignment_bytes: int = PAGE_BYTES) -> Bytes:
    """Uninitialised bytes whose address is a multiple of the alignment."""
    raw = np.empty(max(size_bytes, 1) + alignment_bytes, dtype=np.uint8)
    start = -raw.ctypes.data % alignment_bytes
    return raw[start : start + max(size_bytes, 1)]


def as_bytes(array: Array) -> Bytes:
    """The bytes of an array, without a copy when it is contiguous."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8)
