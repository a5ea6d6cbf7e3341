"""Long and wide graphs: planning ends, near its limit, with a plan that runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tuner.fusion.random_graphs import Builder
from tuner.fusion.legality import Limits
from tuner.fusion.partition import STOPPED, solve
from tuner.ir.graph import Graph, Region, region_inputs
from tuner.plan import Family, Partition

WALLS = Limits(max_nodes=64, max_chain_nodes=512, max_arguments=96, max_reductions=8)
LOOKS = 20_000
"""How often a clock may be read after its limit, by all the graphs here."""
SHAPE = (8, 8)


class _Clock:
    """A clock that moves a second a look, so that no test depends on a machine."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def _solve(graph: Graph, *, clock: Callable[[], float], limit: float) -> Partition:
    def price(region: Region, _family: Family) -> float:
        names = (*region_inputs(graph, region.nodes), *region.outputs)
        return 1e-6 + 1e-9 * sum(graph.types[name].bytes for name in names)

    return solve(
        graph, price, limits=WALLS, time_limit_seconds=limit, clock=clock
    ).partition


def _chain(length: int) -> Graph:
    builder = Builder()
    at = builder.given("x", SHAPE)
    for k in range(length):
        at = builder.node(("exp", "neg", "tanh")[k % 3], at)
    return builder.build([at])


def _fan(width: int) -> Graph:
    builder = Builder()
    at = builder.given("x", SHAPE)
    made = [builder.node(("exp", "neg", "tanh")[k % 3], at) for k in range(width)]
    at = made[0]
    for name in made[1:]:
        at = builder.node("add", at, name)
    return builder.build([at])


def _many_outputs(width: int) -> Graph:
    builder = Builder()
    at = builder.given("x", SHAPE)
    ops = ("exp", "neg", "tanh")
    return builder.build([builder.node(ops[k % 3], at) for k in range(width)])


def _layers(count: int) -> Graph:
    builder = Builder()
    at = builder.given("x", SHAPE)
    builder.given("w", SHAPE, weight=True)
    for _ in range(count):
        product = builder.node("matmul", at, "w")
        joined = builder.node("add", product, at)
        total = builder.node("reduce_sum", joined, axes=(1,), keepdims=1)
        centred = builder.node("sub", joined, total)
        at = builder.node("add", builder.node("tanh", centred), centred)
    return builder.build([at])


def _check_runs(graph: Graph, partition: Partition) -> None:
    ready = {*graph.inputs, *graph.weights, *graph.constants}
    for choice in partition.choices:
        assert ready.issuperset(region_inputs(graph, choice.region.nodes))
        ready.update(choice.region.outputs)
    assert ready.issuperset(graph.outputs)


GRAPHS = {
    "chain": _chain(1500),
    "fan": _fan(500),
    "outputs": _many_outputs(500),
    "layers": _layers(250),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_without_time_there_is_a_plan(name: str) -> None:
    """When the limit has passed at once, the answer runs and says it is not complete.

    Its bound claims nothing, and the clock is not looked at for each candidate of a
    space that nobody has the time for.
    """
    clock = _Clock(1.0)
    found = _solve(GRAPHS[name], clock=clock, limit=0.0)
    _check_runs(GRAPHS[name], found)
    assert not found.candidate_space.complete
    assert found.bound_seconds == 0.0
    assert clock.now < LOOKS
    assert STOPPED in found.candidate_space.rules


@pytest.mark.parametrize("name", GRAPHS)
def test_a_limit_in_the_middle_leaves_a_plan(name: str) -> None:
    """Wherever the limit falls, the plan runs and its bound lies below its cost."""
    for limit in (100.0, 1000.0):
        found = _solve(GRAPHS[name], clock=_Clock(1.0), limit=limit)
        _check_runs(GRAPHS[name], found)
        assert found.bound_seconds <= found.objective_seconds


def test_a_long_chain_is_cut_into_the_largest_kernels() -> None:
    """1500 nodes are three kernels of up to 512, and that is proved."""
    found = _solve(GRAPHS["chain"], clock=_Clock(0.0), limit=20.0)
    assert len(found.choices) == 3
    assert found.gap < 1e-3
    assert STOPPED not in found.candidate_space.rules


def test_a_chain_within_the_wall_is_one_kernel() -> None:
    """The wall of other kernels does not cut a pure element-wise chain."""
    assert len(_solve(_chain(300), clock=_Clock(0.0), limit=20.0).choices) == 1
