"""Operands that lie across are copied on chip first, where their lines alias."""

from __future__ import annotations

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default, space
from tuner.kernel.staged import STAGED_BYTES
from tuner.plan import Schedule
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")


def _transposed_sum(rows: int, columns: int, dtype: DType = DType.F32) -> Graph:
    b = Builder()
    turned = b.op("transpose", b.input(columns, rows, dtype=dtype), perm=(1, 0))
    return b.graph(b.op("add", turned, b.input(rows, columns, dtype=dtype)))


def _heads() -> Graph:
    """Transposed matrices of a batch; tiles end within one, and begin in the next."""
    b = Builder()
    turned = b.op("transpose", b.input(3, 500, 1024), perm=(0, 2, 1))
    return b.graph(b.op("add", turned, b.input(1024, 500)))


def _text(graph: Graph) -> str:
    nest = lower(graph)
    return render(nest, default(nest, CPU), OPENCL).text


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


def test_a_gpu_has_no_such_tiles() -> None:
    """The text in CUDA reads the operand where it lies."""
    nest = lower(_transposed_sum(1024, 1024))
    assert "tile0" not in render(nest, default(nest, find("sm_90")), CUDA).text
