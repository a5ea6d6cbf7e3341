"""Sums of exponentials over long rows come from one walk over memory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder, softmax
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.ir.types import Array, DType
from tuner.kernel.lower import lower
from tuner.kernel.online import CHAINS, ONLINE_STEPS
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.plan import Schedule
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")
LONG = 2 * 16 * ONLINE_STEPS


def _log_sum(rows: int, columns: int, dtype: DType = DType.F32) -> Graph:
    """The logarithm of the sum of exponentials of a row, and its maximum."""
    b = Builder()
    x = b.input(rows, columns, dtype=dtype)
    top = b.op("reduce_max", x, axes=(1,), keepdims=1)
    terms = b.op("exp", b.op("sub", x, top))
    total = b.op("reduce_sum", terms, axes=(1,), keepdims=1)
    return b.graph(top, b.op("add", b.op("log", total), top))


def _schedule(teams: int = 1, persistent: int = 0) -> Schedule:
    return Schedule.of(
        threads=16 * teams,
        lanes=16,
        vector=1,
        repeat=2,
        persistent=persistent,
        unroll=1,
    )


def _text(graph: Graph, persistent: int = 0) -> str:
    return render(lower(graph), _schedule(persistent=persistent), OPENCL).text


@pytest.mark.parametrize("columns", [LONG, LONG + 5, LONG + 16 * 100 + 1])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16])
@pytest.mark.parametrize("make", [_log_sum, softmax])
def test_long_rows_are_summed_right(
    opencl: OpenCLBackend, make: object, columns: int, dtype: DType
) -> None:
    """Whole blocks, a last block in part, and steps that only some lanes take."""
    assert callable(make)
    graph: Graph = make(3, columns, dtype=dtype)
    assert "greatest" in _text(graph)
    feeds = random_feeds(graph, columns)
    found = run(opencl, graph, _schedule(teams=columns % 2 + 1), feeds)
    assert not complaint(graph, feeds, found)


def _row(**at: float) -> Array:
    row: Array = np.linspace(-3, 3, LONG, dtype=np.float32)[None]
    for name, value in at.items():
        row[0, int(name[1:])] = value
    return row


@pytest.mark.parametrize(
    ("row", "sound"),
    [
        (_row(), True),
        (_row(_0=50.0), True),
        (_row(_4095=50.0), True),
        (
            np.where(np.arange(LONG) < LONG - 7, -np.inf, 1).astype(np.float32)[None],
            True,
        ),
        (np.where(np.arange(LONG) > 2, -np.inf, 1).astype(np.float32)[None], True),
        (_row(_9=np.inf), False),
        (_row(_9=np.nan), False),
        (_row(_4090=np.nan), False),
        (np.full((1, LONG), -np.inf, np.float32), False),
    ],
    ids=["up", "first", "last", "late", "early", "inf", "nan", "late nan", "nothing"],
)
def test_what_is_no_number_goes_the_way_of_two_walks(
    opencl: OpenCLBackend, row: Array, *, sound: bool
) -> None:
    """Minus infinity adds nothing; rows of nothing else, and NaN, give NaN."""
    graph = _log_sum(1, LONG)
    found = run(opencl, graph, _schedule(), {graph.inputs[0]: row})
    total = float(found[graph.outputs[1]].ravel()[0])
    if not sound:
        assert math.isnan(total)
        return
    wide = row.astype(np.float64)
    truth = math.log(np.exp(wide - wide.max()).sum()) + wide.max()
    assert total == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("more", [0, 16, 7 * 16, 7 * 16 + 3])
def test_a_blocks_greatest_elements_are_looked_for_side_by_side(
    opencl: OpenCLBackend, more: int
) -> None:
    """Chains of comparisons, and steps that fill no round of them: each finds it."""
    columns = LONG + more
    places = (*range(16 * CHAINS), *range(columns - 40, columns, 3))
    graph = _log_sum(len(places), columns)
    text = _text(graph)
    assert text.count(f"s0_{CHAINS - 1} = max_f32(v0") == 1
    assert text.count("greatest = ") == 1 + (more >= 16) + (more % 16 > 0)
    rows = np.zeros((len(places), columns), np.float32)
    rows[range(len(places)), places] = 50.0
    found = run(opencl, graph, _schedule(), {graph.inputs[0]: rows})
    assert np.all(found[graph.outputs[0]] == 50.0)


def test_other_rows_are_walked_twice() -> None:
    """Short rows, rows that are kept, other sums, and languages without lanes."""
    assert "greatest" not in _text(_log_sum(3, LONG - 1))
    assert "greatest" not in _text(softmax(3, LONG), persistent=1)
    b = Builder()
    x = b.input(3, LONG)
    top = b.op("reduce_max", x, axes=(1,), keepdims=1)
    far = b.op("mul", b.op("sub", x, top), b.constant(2))
    total = b.op("reduce_sum", b.op("exp", far), axes=(1,), keepdims=1)
    assert "greatest" not in _text(b.graph(total))
    nest = lower(_log_sum(3, LONG))
    cuda = render(nest, default(nest, find("sm_90")), CUDA).text
    assert "greatest" not in cuda


def test_the_next_block_of_a_large_tensor_is_asked_for() -> None:
    """Rows of any length: the block is asked for, not the row."""
    text = _text(_log_sum(64, 1 << 18))
    assert text.count("__builtin_prefetch") == 1
    assert "in0 + q * 262144 + (item + 128) * 16" in text
