"""A team asks for its next row while it computes on the one that the caches hold."""

from __future__ import annotations

import re

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder, add_layer_norm, softmax
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.ahead import AHEAD_BYTES, AHEAD_ROW_BYTES
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.plan import Schedule
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")
COLUMNS = 1024
ROWS = AHEAD_BYTES // 4 // COLUMNS


def _asked(graph: Graph) -> list[str]:
    nest = lower(graph)
    text = render(nest, default(nest, CPU), OPENCL).text
    return re.findall(r"__builtin_prefetch\((.*)\);", text)


def _masked_softmax(rows: int, columns: int, dtype: DType) -> Graph:
    b = Builder()
    x = b.input(4, rows // 4, columns, dtype=dtype)
    x = b.op("add", x, b.input(rows // 4, columns, dtype=dtype))
    top = b.op("reduce_max", x, axes=(2,), keepdims=1)
    terms = b.op("exp", b.op("sub", x, top))
    total = b.op("reduce_sum", terms, axes=(2,), keepdims=1)
    return b.graph(b.op("div", terms, total))


def test_the_next_row_of_every_large_tensor_is_asked_for() -> None:
    """Line by line, at the place in the row that the lanes have reached."""
    assert _asked(add_layer_norm(ROWS, COLUMNS)) == [
        "in0 + next * 1024 + item * 16",
        "in1 + next * 1024 + item * 16",
    ]
    assert _asked(_masked_softmax(2 * ROWS, COLUMNS, DType.F16)) == [
        "in0 + next * 1024 + item * 16"
    ]
    wide = softmax(ROWS, COLUMNS, dtype=DType.F64)
    assert len(_asked(wide)) == 2  # lanes take two lines


@pytest.mark.parametrize(
    "graph",
    [
        softmax(ROWS - 1, COLUMNS),
        softmax(2, AHEAD_ROW_BYTES // 4 + 16),
        softmax(COLUMNS, ROWS, axis=0),
    ],
    ids=["small", "long", "columns"],
)
def test_nothing_is_asked_for_that_would_not_come_in_time(graph: Graph) -> None:
    """Small tensors lie in the caches, long rows do not fit, columns come at once."""
    assert not _asked(graph)


def test_a_sum_alone_has_no_time_to_ask() -> None:
    """One pass over a row waits for memory from its beginning to its end."""
    b = Builder()
    total = b.op("reduce_sum", b.input(ROWS, COLUMNS), axes=(1,), keepdims=1)
    assert not _asked(b.graph(total))


def test_a_gpu_is_not_told() -> None:
    """Where many rows are in flight at once, others compute while one waits."""
    nest = lower(softmax(ROWS, COLUMNS))
    text = render(nest, default(nest, find("sm_90")), CUDA).text
    assert "prefetch" not in text
    assert "next" not in text


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS - 3])
@pytest.mark.parametrize("teams", [1, 4])
def test_rows_come_out_right(opencl: OpenCLBackend, columns: int, teams: int) -> None:
    """The last team asks for no row behind the last; results are those of before."""
    graph = softmax(ROWS + 5, columns)
    schedule = Schedule.of(
        threads=16 * teams, lanes=16, vector=1, repeat=8, persistent=1, unroll=1
    )
    feeds = random_feeds(graph, columns)
    assert not complaint(graph, feeds, run(opencl, graph, schedule, feeds))
