"""Messages between the runner and its child, over a pipe that only they hold."""

from __future__ import annotations

import io
import pickle
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


class _Pickler(pickle.Pickler):
    """Pickles read-only mappings, which the graph is full of."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MappingProxyType):
            return _read_only, (dict(value),)
        return NotImplemented


def encode(message: Any) -> bytes:
    """A message as bytes."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(message)
    return buffer.getvalue()


def decode(content: bytes) -> Any:
    """A message from bytes of our own making."""
    return pickle.loads(content)  # noqa: S301


def send(pipe: Connection, message: Any) -> None:
    """Write one message."""
    pipe.send_bytes(encode(message))


def receive(pipe: Connection) -> Any:
    """Wait for one message.

    Raises:
        EOFError: the other side is gone.
    """
    return decode(pipe.recv_bytes())
