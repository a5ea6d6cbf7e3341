"""The schedule that needs no tuning is one that the device can run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from cost_model.catalog import DEVICES
from cost_model.device import Device
from tests.tuner.kernel.builder import Builder, conv, softmax
from tests.tuner.kernel.random_contractions import random_contraction
from tests.tuner.kernel.random_graphs import random_graph
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.nest import LoopNest
from tuner.kernel.schedule import default, is_legal, space

FLOATS: Final = (DType.F32, DType.F16, DType.BF16, DType.F64)
ROOM: Final = 16 << 10
"""The least on-chip memory of a block that devices are held to have for a tile."""


def _product(size: int, dtype: DType) -> Graph:
    b = Builder()
    left, right = (b.input(size, size, dtype=dtype) for _ in range(2))
    return b.graph(b.op("relu", b.op("matmul", left, right)))


def _picture(channels: int, side: int, dtype: DType) -> Graph:
    b = Builder()
    x = b.input(1, channels, side, side, dtype=dtype)
    return b.graph(conv(b, x, b.input(channels, channels, 3, 3, dtype=dtype), pads=1))


def _transposed(dtype: DType) -> Graph:
    b = Builder()
    x = b.op("transpose", b.input(1024, 1024, dtype=dtype), perm=(1, 0))
    return b.graph(b.op("neg", x))


def _graphs(dtype: DType) -> Iterator[Graph]:
    yield from (_product(size, dtype) for size in (64, 768, 2048))
    yield from (_picture(*shape, dtype) for shape in ((16, 32), (64, 56), (256, 14)))
    yield from (softmax(37, columns, dtype=dtype) for columns in (33, 8192))
    yield from (softmax(8192, columns, 0, dtype) for columns in (17, 512))
    yield _transposed(dtype)
    yield from (random_graph(seed, dtype=dtype) for seed in range(12))
    yield from map(random_contraction, range(12))


def _nests(dtype: DType) -> Iterator[LoopNest]:
    for graph in _graphs(dtype):
        try:
            yield lower(graph)
        except CannotLower:
            continue


def _small(device: Device) -> Device:
    return replace(device, max_shared_bytes_per_block=ROOM)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_default_is_legal_on_every_device(dtype: DType) -> None:
    """On those of the catalogue, and on each with little memory on chip."""
    devices = [d for d in DEVICES.values() if d.kind != "ideal"]
    for nest in _nests(dtype):
        for device in (*devices, *map(_small, devices)):
            found = default(nest, device)
            assert is_legal(nest, found, device), (device.id, found.as_dict)


@pytest.mark.parametrize(
    ("device", "graph"),
    [("cpu", _picture(64, 56, DType.F64)), ("a10", _product(2048, DType.F16))],
    ids=["windows in double precision", "tensor cores"],
)
def test_the_space_begins_with_the_default(device: str, graph: Graph) -> None:
    """A search never starts from a schedule that is not among those it may try."""
    nest = lower(graph)
    assert space(nest, DEVICES[device])[0] == default(nest, DEVICES[device])
