"""Messages between the runner and its child, over a socket that only they hold.

Large arrays do not pass through the socket: they lie in one anonymous piece of memory
whose descriptor is sent, and the receiver uses them where they lie, at page borders,
copied on write.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from types import MappingProxyType
from typing import Any, Final

from tuner.runtime.backend import PAGE_BYTES

APART_BYTES: Final = 1 << 20
"""Arrays from this size on are shared instead of sent."""
_SHARES: Final = hasattr(os, "memfd_create")


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


class _Pickler(pickle.Pickler):
    """Pickles read-only mappings, which the graph is full of."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MappingProxyType):
            return _read_only, (dict(value),)
        return NotImplemented


def encode(
    message: Any, keep_apart: Callable[[pickle.PickleBuffer], bool] | None = None
) -> bytes:
    """A message as bytes.

    Args:
        message: what is sent.
        keep_apart: takes the buffer of an array, and returns a true value if its
            bytes belong into the message after all.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(
        buffer, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=keep_apart
    )
    pickler.dump(message)
    return buffer.getvalue()


def decode(content: bytes, parts: Sequence[memoryview] = ()) -> Any:
    """A message from bytes of our own making, and the arrays kept apart."""
    return pickle.loads(content, buffers=parts)  # noqa: S301


def send(pipe: Connection, message: Any) -> None:
    """Write one message."""
    apart: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if not _SHARES or raw.nbytes < APART_BYTES:
            return True
        apart.append(raw)
        return False

    content = encode(message, keep)
    sizes = tuple(part.nbytes for part in apart)
    pipe.send_bytes(encode(sizes))
    if sizes:
        shared = _shared(apart)
        try:
            send_handle(pipe, shared, None)
        finally:
            os.close(shared)
    pipe.send_bytes(content)


def receive(pipe: Connection) -> Any:
    """Wait for one message.

    Raises:
        EOFError: the other side is gone.
    """
    sizes = decode(pipe.recv_bytes())
    parts = _mapped(recv_handle(pipe), sizes) if sizes else ()
    return decode(pipe.recv_bytes(), parts)


def _offsets(sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Where each array begins, at a page border, and the bytes of all."""
    found, end = [], 0
    for size in sizes:
        found.append(end)
        end += -(-size // PAGE_BYTES) * PAGE_BYTES
    return tuple(found), end


def _shared(parts: Sequence[memoryview]) -> int:
    """A descriptor of memory that holds copies of the parts."""
    offsets, total = _offsets([part.nbytes for part in parts])
    descriptor = os.memfd_create("arrays")
    os.ftruncate(descriptor, total)
    with mmap.mmap(descriptor, total) as memory:
        for offset, part in zip(offsets, parts, strict=True):
            memory[offset : offset + part.nbytes] = part
    return descriptor


def _mapped(descriptor: int, sizes: Sequence[int]) -> tuple[memoryview, ...]:
    """The parts in shared memory; it lives as long as any of them."""
    offsets, total = _offsets(sizes)
    try:
        memory = memoryview(mmap.mmap(descriptor, total, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)
    return tuple(
        memory[offset : offset + size]
        for offset, size in zip(offsets, sizes, strict=True)
    )
