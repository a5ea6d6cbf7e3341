"""Operands that lie across are copied on chip first, where their lines alias."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from cost_model.catalog import find
from cost_model.device import Device
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.lower import lower
from tuner.kernel.mapping import map_groups
from tuner.kernel.nest import LoopNest
from tuner.kernel.onchip import onchip_bytes
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default, space
from tuner.kernel.staged import STAGED_BYTES
from tuner.plan import Schedule
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")
_SIZES = {"float": 4, "double": 8, "int": 4, "long": 8, "long long": 8}


def _transposed_sum(rows: int, columns: int, dtype: DType = DType.F32) -> Graph:
    b = Builder()
    turned = b.op("transpose", b.input(columns, rows, dtype=dtype), perm=(1, 0))
    return b.graph(b.op("add", turned, b.input(rows, columns, dtype=dtype)))


def _heads() -> Graph:
    """Transposed matrices of a batch; tiles end within one, and begin in the next."""
    b = Builder()
    turned = b.op("transpose", b.input(3, 500, 1024), perm=(0, 2, 1))
    return b.graph(b.op("add", turned, b.input(1024, 500)))


def _turned_pair(rows: int, columns: int) -> Graph:
    """Two operands that lie across, each of which wants a tile."""
    b = Builder()
    pair = [b.op("transpose", b.input(columns, rows), perm=(1, 0)) for _ in range(2)]
    return b.graph(b.op("mul", *pair))


def _text(graph: Graph, device: Device = CPU) -> str:
    nest = lower(graph)
    return render(nest, default(nest, device), OPENCL).text


def _rows_of_two_types() -> Graph:
    b = Builder()
    wide = b.op("reduce_sum", b.input(40, 700, dtype=DType.F64), axes=(1,), keepdims=0)
    return b.graph(b.op("cast", wide, to="f32"), _total(b, 1))


def _columns_of_two_types() -> Graph:
    b = Builder()
    wide = b.op("reduce_sum", b.input(700, 40, dtype=DType.F64), axes=(0,), keepdims=0)
    return b.graph(wide, _total(b, 0))


def _total(b: Builder, axis: int) -> str:
    shape = (40, 700) if axis else (700, 40)
    return b.op(
        "reduce_max", b.input(*shape, dtype=DType.I64), axes=(axis,), keepdims=0
    )


def _declared_bytes(text: str) -> int:
    """On-chip memory that a text declares."""
    found = re.findall(r"(?:__local|__shared__) ([\w ]+) \w+\[(\d+)\];", text)
    return sum(_SIZES[kind] * int(count) for kind, count in found)


def _declared(nest: LoopNest, device: Device) -> list[int]:
    return [_declared_bytes(render(nest, s, OPENCL).text) for s in space(nest, device)]


_MADE = (_heads, _rows_of_two_types, _columns_of_two_types)


@pytest.mark.parametrize(
    "graph",
    [_transposed_sum(1024, 1024), _transposed_sum(1024, 1031), _heads()],
    ids=["square", "ragged", "heads"],
)
def test_lines_that_alias_are_staged(opencl: OpenCLBackend, graph: Graph) -> None:
    """Rows of 4 KiB and multiples of it; what lies in order is read where it lies."""
    text = _text(graph)
    assert "__local float tile0[16640];" in text
    assert text.count("barrier(") == 1
    assert "const float v1 = in1[" in text
    feeds = random_feeds(graph, 7)
    found = run(opencl, graph, default(lower(graph), CPU), feeds)
    assert not complaint(graph, feeds, found)


@pytest.mark.parametrize("items", [1, 4])
@pytest.mark.parametrize("repeat", [16, 64])
def test_other_tiles_are_right(opencl: OpenCLBackend, items: int, repeat: int) -> None:
    """A number of rows that no tile divides, and the end of a row within a tile."""
    graph = _transposed_sum(1024 + 1024, 517)
    schedule = Schedule.of(threads=16, vector=1, items=items, repeat=repeat)
    assert "tile0" in render(lower(graph), schedule, OPENCL).text
    feeds = random_feeds(graph, items)
    assert not complaint(graph, feeds, run(opencl, graph, schedule, feeds))


@pytest.mark.parametrize(
    "graph",
    [_transposed_sum(256, 256), _transposed_sum(1021, 1031)],
    ids=["small", "odd"],
)
def test_other_operands_are_read_where_they_lie(graph: Graph) -> None:
    """Small ones stay in the caches, and lines of odd rows do not meet."""
    assert "tile0" not in _text(graph)


def test_tiles_fit_on_chip() -> None:
    """A schedule whose tile would be too large reads the operand where it lies."""
    nest = lower(_transposed_sum(1024, 1024, DType.F64))
    found = [render(nest, each, OPENCL).text for each in space(nest, CPU)]
    assert any("tile0" in text for text in found)
    assert any("tile0" not in text for text in found)
    for text in found:
        if "tile0" in text:
            size = int(text.partition("tile0[")[2].partition("]")[0])
            assert 8 * size <= STAGED_BYTES


@pytest.mark.parametrize(
    "graph",
    [_transposed_sum(1024, 1024, DType.F64), _turned_pair(1024, 1024)],
    ids=["f64", "two operands"],
)
def test_the_default_stages_what_is_wider(opencl: OpenCLBackend, graph: Graph) -> None:
    """Elements of eight bytes, and two operands, get smaller tiles that fit."""
    assert 0 < _declared_bytes(_text(graph)) <= STAGED_BYTES
    feeds = random_feeds(graph, 11)
    found = run(opencl, graph, default(lower(graph), CPU), feeds)
    assert not complaint(graph, feeds, found)


@pytest.mark.parametrize("room", [0, 16 << 10, 40 << 10])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_a_device_gets_no_more_tiles_than_it_has_room_for(
    room: int, dtype: DType
) -> None:
    """Every schedule of its space, the default first, declares no more than it has."""
    device = replace(CPU, max_shared_bytes_per_block=room)
    nest = lower(_transposed_sum(1024, 1024, dtype))
    assert space(nest, device)[0] == default(nest, device)
    found = _declared(nest, device)
    assert max(found) <= room < max(_declared(nest, CPU))
    assert any(found) == bool(room)


@pytest.mark.parametrize("device", [CPU, find("sm_90")], ids=["cpu", "gpu"])
@pytest.mark.parametrize("make", list(_MADE), ids=lambda make: make.__name__)
def test_what_is_held_against_a_device_is_what_the_text_declares(
    make: Callable[[], Graph], device: Device
) -> None:
    """Tiles and partial results of every type, to the byte on a processor."""
    nest = lower(make())
    for schedule in space(nest, device)[::7]:
        dialect = CUDA if device.kind == "gpu" else OPENCL
        declared = _declared_bytes(render(nest, schedule, dialect).text)
        counted = onchip_bytes(nest, map_groups(nest, schedule), device)
        assert declared <= counted, schedule
        assert device.kind == "gpu" or declared == counted, schedule


def test_a_gpu_has_no_such_tiles() -> None:
    """The text in CUDA reads the operand where it lies."""
    nest = lower(_transposed_sum(1024, 1024))
    assert "tile0" not in render(nest, default(nest, find("sm_90")), CUDA).text
