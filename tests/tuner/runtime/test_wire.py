"""Messages to the child: large arrays are shared, not sent."""

from __future__ import annotations

from multiprocessing.connection import Pipe
from pathlib import Path

import numpy as np

from tuner.runtime import wire
from tuner.runtime.backend import PAGE_BYTES
from tuner.runtime.feeds import align


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_large_arrays_travel_beside_the_message() -> None:
    """Values arrive whole, at page borders, writable, and stay what they were."""
    large = np.arange(1 << 19, dtype=np.float32)
    odd = np.arange((1 << 18) + 3, dtype=np.int64)
    here, there = Pipe()
    wire.send(here, {"a": large, "same": large, "b": odd, "small": np.ones(3)})
    found = wire.receive(there)
    assert np.array_equal(found["a"], large)
    assert np.array_equal(found["b"], odd)
    assert found["a"] is found["same"]
    assert found["b"].ctypes.data % PAGE_BYTES == 0
    assert align(found["b"]) is found["b"]
    found["a"][0] = 7
    assert large[0] == 0


def test_no_descriptor_is_left_open() -> None:
    """Messages with shared memory leave no open file behind."""
    here, there = Pipe()
    before = _open_files()
    for _ in range(5):
        wire.send(here, np.zeros(1 << 20))
        assert wire.receive(there).size == 1 << 20
    assert _open_files() == before


def test_little_messages_need_no_memory_of_their_own() -> None:
    """A message without large arrays is one text."""
    here, there = Pipe()
    wire.send(here, [1, "two", np.float32(3)])
    assert wire.receive(there) == [1, "two", np.float32(3)]
