"""Lanes of a processor take the same number of steps, and the last step is partial."""

from __future__ import annotations

import re

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder, softmax
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.plan import Schedule
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")


def _bias_gelu(rows: int, columns: int) -> Graph:
    b = Builder()
    x = b.op("add", b.input(rows, columns), b.input(columns))
    half = b.op("mul", x, b.constant(0.5))
    inner = b.op("erf", b.op("mul", x, b.constant(0.5**0.5)))
    return b.graph(b.op("mul", half, b.op("add", inner, b.constant(1))))


@pytest.mark.parametrize("columns", [7, 31, 1031, 33791])
@pytest.mark.parametrize("persistent", [0, 1])
def test_rows_of_any_length_are_reduced(
    opencl: OpenCLBackend, columns: int, persistent: int
) -> None:
    """Short, ragged and long rows, kept or read again, sums in one level or two."""
    graph = softmax(5, columns)
    schedule = Schedule.of(
        threads=64, lanes=16, vector=1, repeat=2, persistent=persistent, unroll=1
    )
    feeds = random_feeds(graph, columns)
    assert not complaint(graph, feeds, run(opencl, graph, schedule, feeds))


@pytest.mark.parametrize("threads", [16, 256])
@pytest.mark.parametrize("items", [1, 64])
@pytest.mark.parametrize("columns", [17, 1031])
def test_ragged_points_are_all_computed(
    opencl: OpenCLBackend, columns: int, items: int, threads: int
) -> None:
    """Whole steps, partial steps and several blocks compute every point."""
    graph = _bias_gelu(3, columns)
    schedule = Schedule.of(threads=threads, vector=1, items=items, repeat=1)
    feeds = random_feeds(graph, columns)
    assert not complaint(graph, feeds, run(opencl, graph, schedule, feeds))


def test_ragged_rows_are_walked_by_few_lanes() -> None:
    """A row that a wide block would fill by little more than half gets narrow ones."""
    knobs = default(lower(_bias_gelu(1021, 1031)), CPU)
    assert (knobs["threads"], knobs["items"]) == (64, 17)
    even = default(lower(_bias_gelu(1024, 1024)), CPU)
    assert (even["threads"], even["items"], even["repeat"]) == (16, 64, 1)


def test_short_rows_are_taken_one_after_the_other() -> None:
    """A block has as many points whether its rows are long or short."""
    knobs = default(lower(_bias_gelu(8192, 64)), CPU)
    assert (knobs["items"], knobs["repeat"]) == (4, 16)


@pytest.mark.parametrize("threads", [2, 8, 64])
def test_groups_side_by_side_are_dealt_out_over_the_threads(threads: int) -> None:
    """Every thread's range of the grid has its share of each group of a kernel."""
    b = Builder()
    nest = lower(b.graph(*(b.op("exp", b.input(n, 1024)) for n in (256, 64, 192))))
    schedule = Schedule.of(threads=64, vector=1, items=4, repeat=1)
    source = render(nest, schedule, OPENCL)
    found = re.search(
        r"block = \(\(int\)get_group_id\(0\) \* (\d+)\) % (\d+);", source.text
    )
    assert found is not None
    stride, blocks = map(int, found.groups())
    assert blocks == source.grid[0] == 4 * (256 + 64 + 192)
    dealt = [place * stride % blocks for place in range(blocks)]
    assert sorted(dealt) == list(range(blocks))
    share = blocks // threads
    for first in range(0, blocks, share):
        mine = sum(block < 4 * 256 for block in dealt[first : first + share])
        assert abs(mine - share / 2) <= 2


def test_only_packed_lanes_leave_together() -> None:
    """A GPU's threads each walk as far as they have points, with fewer registers."""
    nest = lower(softmax(512, 5000))
    text = {
        dialect.language: render(nest, default(nest, find(name)), dialect).text
        for dialect, name in ((OPENCL, "cpu"), (CUDA, "sm_90"))
    }
    assert "const int item = 312;" in text["opencl"]
    assert "const int p = lane + 4984;" in text["opencl"]
    assert "lane >= 8 ?" in text["opencl"]
    assert "const int item =" not in text["cuda"]


def _text(graph: Graph, **knobs: int) -> str:
    return render(lower(graph), Schedule.of(vector=1, **knobs), OPENCL).text


@pytest.mark.parametrize("items", [1, 64])
@pytest.mark.parametrize("columns", [17, 1031, 33791])
def test_the_last_step_of_packed_lanes_needs_no_mask(columns: int, items: int) -> None:
    """It ends where the row ends; only shorter rows leave lanes over."""
    knobs = {"threads": 16, "items": items, "repeat": 1}
    assert "if (p <" not in _text(_bias_gelu(3, columns), **knobs)
    assert "if (p < 7)" in _text(_bias_gelu(1, 7), **knobs)


def test_lanes_that_meet_at_a_barrier_keep_their_masks() -> None:
    """What a compiler may carry over a barrier is read under a condition there."""
    knobs = {"threads": 64, "repeat": 1, "persistent": 0, "unroll": 1}
    assert "if (p < 1031)" not in _text(softmax(64, 1031), lanes=16, **knobs)
    assert "if (p < 1031)" in _text(softmax(64, 1031), lanes=64, **knobs)


@pytest.mark.parametrize("lanes", [8, 16, 64])
@pytest.mark.parametrize("columns", [100, 1031])
def test_a_row_that_is_summed_twice_counts_every_element_once(
    opencl: OpenCLBackend, columns: int, lanes: int
) -> None:
    """A row less its sum is summed by lanes that step back, and others."""
    b = Builder()
    x = b.op("neg", b.input(5, columns))
    rest = b.op("sub", x, b.op("reduce_sum", x, axes=(1,), keepdims=1))
    graph = b.graph(b.op("reduce_sum", rest, axes=(1,), keepdims=1))
    schedule = Schedule.of(
        threads=64, lanes=lanes, vector=1, repeat=1, persistent=0, unroll=1
    )
    feeds = random_feeds(graph, columns)
    assert not complaint(graph, feeds, run(opencl, graph, schedule, feeds))


@pytest.mark.parametrize("columns", [17, 100, 1031])
def test_columns_of_any_number_are_reduced(opencl: OpenCLBackend, columns: int) -> None:
    """The last block of columns begins where it ends with them."""
    graph = softmax(40, columns, axis=0)
    knobs = {"threads": 16, "lanes": 16, "repeat": 1, "unroll": 1}
    assert "if (p <" not in _text(graph, **knobs)
    feeds = random_feeds(graph, columns)
    found = run(opencl, graph, Schedule.of(vector=1, **knobs), feeds)
    assert not complaint(graph, feeds, found)


def test_few_rows_are_shared_out_over_the_threads() -> None:
    """Blocks take one row where rows are few, and many where they abound."""
    few, many = (default(lower(softmax(rows, 5000)), CPU) for rows in (6, 512))
    assert (few["threads"], few["lanes"], few["repeat"]) == (16, 16, 1)
    assert (many["threads"], many["lanes"], many["repeat"]) == (16, 16, 32)


def test_long_rows_that_are_only_read_are_not_copied() -> None:
    """Elements are read again; what was computed from them is kept while it fits."""
    b = Builder()
    x = b.input(64, 4096)
    top = b.op("reduce_max", x, axes=(1,), keepdims=1)
    terms = b.op("exp", b.op("sub", x, top))
    total = b.op("reduce_sum", terms, axes=(1,), keepdims=1)
    assert default(lower(b.graph(total)), CPU)["persistent"] == 0
    assert default(lower(softmax(64, 4096)), CPU)["persistent"] == 1


def _transposed_sum(rows: int, columns: int) -> Graph:
    b = Builder()
    turned = b.op("transpose", b.input(columns, rows), perm=(1, 0))
    return b.graph(b.op("add", turned, b.input(rows, columns)))


@pytest.mark.parametrize(("columns", "width"), [(1031, (16, 4)), (1024, (64, 1))])
def test_operands_of_other_orders_are_read_in_tiles(
    columns: int, width: tuple[int, int]
) -> None:
    """Blocks are 64 wide and 64 high, whole lines at a time where lines are whole."""
    knobs = default(lower(_transposed_sum(1000, columns)), CPU)
    assert (knobs["threads"], knobs["items"]) == width
    assert knobs["repeat"] == 64
