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
    assert "if (p < 5000)" in text["opencl"]
    assert "const int item = 312;" in text["opencl"]
    assert "const int item =" not in text["cuda"]
