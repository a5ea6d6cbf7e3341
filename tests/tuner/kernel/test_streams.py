"""Large results go past the caches of a processor, where whole lines are written."""

from __future__ import annotations

import numpy as np
import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder, add_layer_norm
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default, space
from tuner.kernel.streams import STREAM_BYTES, any_streams
from tuner.plan import Schedule
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")
COLUMNS = 1024
ROWS = STREAM_BYTES // 4 // COLUMNS


def _add(rows: int, columns: int, dtype: DType = DType.F32) -> Graph:
    b = Builder()
    x = b.input(rows, columns, dtype=dtype)
    return b.graph(b.op("add", x, b.input(columns, dtype=dtype)))


def _text(graph: Graph) -> str:
    nest = lower(graph)
    return render(nest, default(nest, CPU), OPENCL).text


@pytest.mark.parametrize(
    "graph",
    [_add(ROWS, COLUMNS), add_layer_norm(ROWS, COLUMNS)],
    ids=["pointwise", "row"],
)
def test_a_large_result_is_streamed_by_default(graph: Graph) -> None:
    """Pointwise and row kernels write a large result past the caches, or may not."""
    nest = lower(graph)
    found = {schedule.as_dict.get("stream") for schedule in space(nest, CPU)}
    assert found == {0, 1}
    assert "stream_f32(out0" in _text(graph)


@pytest.mark.parametrize(
    "graph",
    [
        _add(ROWS // 2, COLUMNS),
        _add(ROWS + 1, COLUMNS - 1),
        _add(2 * ROWS, COLUMNS, DType.F16),
        _add(4 * ROWS, COLUMNS, DType.U8),
    ],
    ids=["small", "odd", "half", "bytes"],
)
def test_what_does_not_fill_lines_is_not_streamed(graph: Graph) -> None:
    """Small results, rows off the lines, and narrow elements are stored plainly."""
    assert not any_streams(lower(graph))
    assert "stream_" not in _text(graph)


def test_a_slice_off_the_border_is_not_streamed() -> None:
    """Neighbours that begin in the middle of a line are stored in the plain way."""
    b = Builder()
    x, y = b.input(ROWS, COLUMNS), b.input(ROWS, 8)
    assert not any_streams(lower(b.graph(b.op("concat", y, x, axis=1))))


def test_a_gpu_knows_no_streamed_stores() -> None:
    """The knob is no part of a GPU's space, and its text has no such store."""
    nest = lower(_add(ROWS, COLUMNS))
    gpu = find("sm_90")
    assert all("stream" not in schedule.as_dict for schedule in space(nest, gpu))
    schedule = Schedule.of(**default(nest, gpu).as_dict, stream=1)
    assert "stream_f32" not in render(nest, schedule, CUDA).text


@pytest.mark.parametrize(
    "knobs",
    [
        {"threads": 1024, "items": 1, "repeat": 1},
        {"threads": 64, "items": 4, "repeat": 4},
        {"threads": 16, "items": 1, "repeat": 16},
    ],
    ids=["1024", "64", "16"],
)
def test_streamed_sums_are_exact(opencl: OpenCLBackend, knobs: dict[str, int]) -> None:
    """What went past the caches is what was computed, every element of it."""
    graph = _add(ROWS, COLUMNS)
    feeds = random_feeds(graph, 3)
    schedule = Schedule.of(**knobs, vector=1, stream=1)
    (made,) = run(opencl, graph, schedule, feeds).values()
    assert np.array_equal(made, np.add(*feeds.values()))


def test_streamed_rows_are_right(opencl: OpenCLBackend) -> None:
    """A normalisation writes its two large results past the caches, and rightly."""
    graph = add_layer_norm(ROWS, COLUMNS)
    feeds = random_feeds(graph, 4)
    schedule = default(lower(graph), CPU)
    assert schedule["stream"] == 1
    assert not complaint(graph, feeds, run(opencl, graph, schedule, feeds))
