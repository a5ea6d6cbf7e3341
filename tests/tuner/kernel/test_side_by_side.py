"""Reductions over different rows that share no value are loops of one kernel."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.fusion.legality import Limits, Refusal, check
from tuner.ir.graph import make_region
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, render
from tuner.kernel.schedule import default, space
from tuner.kernel.split_space import split_default
from tuner.plan import Family
from tuner.runtime import nvrtc

if TYPE_CHECKING:
    from tuner.ir.graph import Graph
    from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")
H100 = find("sm_90")


def drawn(seed: int) -> Graph:
    """Two to four reductions of tensors of their own, each with something around it."""
    draw = Random(seed)
    b = Builder()
    outputs = []
    for _ in range(draw.randint(2, 4)):
        shape = tuple(draw.choice((1, 3, 8, 33, 130)) for _ in range(2))
        x = b.input(*shape)
        axes = draw.choice(((0,), (1,), (0, 1)))
        y = b.op(draw.choice(("abs", "exp", "neg")), x)
        op = draw.choice(("reduce_sum", "reduce_max"))
        made = b.op(op, y, axes=axes, keepdims=1)
        outputs.append(b.op("sub", x, made) if draw.random() < 0.4 else made)
    return b.graph(*outputs)


def viewed(seed: int) -> Graph:
    """Reductions over different rows of one tensor that is seen through views."""
    draw = Random(seed)
    b = Builder()
    shapes = ((48, 60), (120, 24), (30, 96), (36, 80))
    view = b.op("reshape", b.input(48 * 60), shape=draw.choice(shapes))
    outputs = []
    for axis in (0, 1, 1):
        if draw.random() < 0.4:
            view = b.op("reshape", view, shape=draw.choice(shapes))
        y = b.op(draw.choice(("abs", "exp", "neg")), view)
        op = draw.choice(("reduce_sum", "reduce_max"))
        made = b.op(op, y, axes=(axis,), keepdims=1)
        outputs.append(b.op("sub", view, made) if draw.random() < 0.4 else made)
    return b.graph(*outputs)


def squares(*shapes: tuple[int, ...]) -> Graph:
    """Sums of squares of whole tensors."""
    b = Builder()
    outputs = []
    for shape in shapes:
        x = b.input(*shape)
        axes = tuple(range(len(shape)))
        outputs.append(b.op("reduce_sum", b.op("mul", x, x), axes=axes, keepdims=0))
    return b.graph(*outputs)


@pytest.mark.parametrize("seed", range(10))
def test_each_loop_computes_its_own_rows(opencl: OpenCLBackend, seed: int) -> None:
    """Rows, columns and what is beside them, by the default and a drawn schedule."""
    graph = drawn(seed)
    nest = lower(graph)
    feeds = random_feeds(graph, seed)
    for schedule in (default(nest, CPU), Random(seed).choice(space(nest, CPU))):
        found = run(opencl, graph, schedule, feeds)
        assert complaint(graph, feeds, found) == ""


@pytest.mark.parametrize("seed", range(8))
def test_a_view_of_what_is_given_ties_no_rows(opencl: OpenCLBackend, seed: int) -> None:
    """Nobody computes it: what legality calls a kernel is one, and is right."""
    graph = viewed(seed)
    region = make_region(graph, [node.name for node in graph.nodes])
    assert check(graph, region, profile="full") is Family.REDUCTION
    nest = lower(graph)
    assert len(nest.groups) > 1
    feeds = random_feeds(graph, seed)
    for schedule in (default(nest, CPU), Random(seed).choice(space(nest, CPU))):
        found = run(opencl, graph, schedule, feeds)
        assert complaint(graph, feeds, found) == ""


def both_ways(extent: int, op: str, *, ends: bool) -> Graph:
    """Sums over the rows of a square, and over its columns as rows of its transpose."""
    b = Builder()
    square = b.op("tanh", b.input(extent, extent))
    outputs = []
    for side in (square, b.op("transpose", square, perm=(1, 0))):
        flat = b.op("reshape", side, shape=(extent, 1, extent))
        total = b.op(op, b.op("exp", flat), axes=(2,), keepdims=1)
        outputs.append(b.op("sub", flat, total) if ends else total)
    return b.graph(*outputs)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("op", ["reduce_sum", "reduce_max"])
@pytest.mark.parametrize("extent", [2, 16, 40])
def test_rows_that_lie_across_each_other_are_right(
    opencl: OpenCLBackend, extent: int, op: str, ends: bool
) -> None:
    """Both sides of a square have equal frames; each reduction keeps to its own side.

    As in a loss of rows and columns: what both read is computed for each.
    """
    graph = both_ways(extent, op, ends=ends)
    region = make_region(graph, [node.name for node in graph.nodes])
    assert check(graph, region, profile="full") is Family.REDUCTION
    nest = lower(graph)
    feeds = random_feeds(graph, extent)
    found = run(opencl, graph, default(nest, CPU), feeds)
    assert complaint(graph, feeds, found) == ""


def test_sums_of_one_side_meet_elements_of_the_other(opencl: OpenCLBackend) -> None:
    """The sums of one side with the elements of the other, in one loop or in none."""
    b = Builder()
    square = b.op("tanh", b.input(40, 40))
    turned = b.op("transpose", square, perm=(1, 0))
    rows = b.op("reduce_sum", b.op("exp", square), axes=(1,), keepdims=1)
    columns = b.op("reduce_sum", b.op("exp", turned), axes=(1,), keepdims=1)
    graph = b.graph(b.op("sub", turned, rows), b.op("sub", square, columns))
    feeds = random_feeds(graph, 5)
    nest = lower(graph)
    found = run(opencl, graph, default(nest, CPU), feeds)
    assert complaint(graph, feeds, found) == ""


def test_long_rows_of_one_view_are_cut_into_parts(opencl: OpenCLBackend) -> None:
    """Each loop is two launches where the other is: columns and rows of one matrix."""
    b = Builder()
    matrix = b.op("reshape", b.input(64 * 4096), shape=(64, 4096))
    rows = b.op("reduce_sum", matrix, axes=(1,), keepdims=0)
    columns = b.op("reduce_max", matrix, axes=(0,), keepdims=0)
    graph = b.graph(rows, columns)
    nest = lower(graph)
    feeds = random_feeds(graph, 3)
    cut = split_default(nest, H100)
    assert cut
    for schedule in cut:
        assert complaint(graph, feeds, run(opencl, graph, schedule, feeds)) == ""


def test_the_longest_rows_choose_the_threads() -> None:
    """The first loop is the longest, so the default schedule is made for it."""
    nest = lower(squares((7,), (4096, 33), (64, 64)))
    points = [g.serial_points * g.inner_points for g in nest.groups]
    assert points == [4096 * 33, 64 * 64, 7]
    alone = lower(squares((4096, 33)))
    assert default(nest, H100) == default(alone, H100)


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
def test_loops_side_by_side_compile_for_a_gpu() -> None:
    """Blocks of one grid take different loops; threads of a block never do."""
    for graph in (drawn(3), squares((7,), (4096, 33), (64, 64))):
        nest = lower(graph)
        source = render(nest, default(nest, H100), CUDA)
        found = nvrtc.compile_cubin(source, "sm_90").resources
        assert found.spill_store_bytes == 0


def test_shared_values_need_the_same_rows() -> None:
    """Two reductions of one computed value over different axes are two kernels."""
    b = Builder()
    y = b.op("exp", b.input(64, 48))
    rows = b.op("reduce_sum", y, axes=(1,), keepdims=0)
    columns = b.op("reduce_sum", y, axes=(0,), keepdims=0)
    graph = b.graph(rows, columns)
    region = make_region(graph, [node.name for node in graph.nodes])
    found = check(graph, region, profile="full", limits=Limits.of(H100))
    assert isinstance(found, Refusal)
    assert "different rows" in found.reason
    with pytest.raises(CannotLower, match="different frames"):
        lower(graph)


def test_reference_rules_know_one_frame_alone() -> None:
    """Side by side is ours: the rules of the patterns refuse it."""
    graph = squares((64, 64), (33, 100))
    region = make_region(graph, [node.name for node in graph.nodes])
    full = check(graph, region, profile="full", limits=Limits.of(H100))
    assert full is Family.REDUCTION
    assert isinstance(check(graph, region, profile="reference"), Refusal)
