"""The planner against an enumerator that tries everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import SOAK
from tests.tuner.fusion.enumerator import least_cost
from tests.tuner.fusion.random_graphs import Builder, random_graph
from tuner.fusion.legality import Profile
from tuner.fusion.partition import solve
from tuner.ir.graph import Graph, Region, region_inputs
from tuner.plan import Family

GRAPHS = 1000 if SOAK else 80
"""Half of them for each rule set."""
MOST_NODES = 10 if SOAK else 9
BATCH = 20
LAUNCH_BYTES = (0, 64, 300, 1000)


def _price(graph: Graph, seed: int) -> Callable[[Region], float]:
    """Bytes of whole tensors and a launch; counted here, not by the planner."""
    launch = LAUNCH_BYTES[seed % len(LAUNCH_BYTES)]

    def price(region: Region) -> float:
        reads = region_inputs(graph, region.nodes)
        moved = [graph.types[name].bytes for name in (*reads, *region.outputs)]
        return 1e-9 * (sum(moved) + launch)

    return price


@pytest.mark.parametrize("first", range(0, GRAPHS, BATCH))
@pytest.mark.parametrize("profile", ["reference", "full"])
def test_no_plan_is_cheaper(first: int, profile: Profile) -> None:
    """On every random graph the planner's cost is the least of all plans."""
    for seed in range(first, first + BATCH):
        if (seed % 2 == 0) != (profile == "full"):
            continue
        graph = random_graph(seed, MOST_NODES)
        price = _price(graph, seed)

        def priced(
            region: Region,
            family: Family,
            price: Callable[[Region], float] = price,
        ) -> float:
            return price(region)

        partition = solve(graph, priced, profile=profile).partition
        expected = least_cost(graph, price, profile)
        assert partition.objective_seconds == pytest.approx(expected, rel=1e-9), seed
        assert partition.bound_seconds <= expected * (1 + 1e-9), seed
        assert partition.gap <= 1e-6, seed
        assert partition.candidate_space.complete, seed


def test_what_only_its_own_unit_reads_stands_in_for_nothing() -> None:
    """A sum is stored for the product that centres rows again in front of its tiles.

    The mean has one reader and is computed where that is: storing it helps nobody.
    """
    b = Builder()
    x, w = b.given("x", (256, 512)), b.given("w", (512, 16), weight=True)
    count = b.given("count", (), weight=True)
    total = b.node("reduce_sum", x, axes=(1,), keepdims=1)
    centred = b.node("sub", x, b.node("div", total, count))
    squares = b.node("mul", centred, centred)
    spread = b.node("reduce_sum", squares, axes=(1,), keepdims=1)
    spread = b.node("add", b.node("div", spread, count), count)
    y = centred
    for op in ("neg", "exp", "tanh", "neg"):
        y = b.node(op, y)
    graph = b.build([spread, b.node("matmul", y, w)])
    price = _price(graph, 2)
    found = solve(graph, lambda region, _: price(region)).partition
    expected = least_cost(graph, price, "full")
    assert found.objective_seconds == pytest.approx(expected, rel=1e-4)


def test_what_tiles_compute_again_cannot_be_written_by_them() -> None:
    """A residual is added again behind the last product: the first one's tiles do, too.

    Neither writes the sum, so storing it takes a kernel of its own, which moves more.
    """
    b = Builder()
    x, y = b.given("x", (196, 64)), b.given("y", (196, 64))
    wide, deep, back = (
        b.given(name, shape, weight=True)
        for name, shape in (("w", (64, 384)), ("v", (384, 384)), ("u", (384, 64)))
    )
    b.given("one", (), weight=True)
    residual = b.node("add", x, y)
    at = residual
    for weight in (wide, deep):
        at = b.node("minimum", b.node("relu", b.node("matmul", at, weight)), "one")
    joined = b.node("add", residual, b.node("matmul", at, back))
    graph = b.build([joined, b.node("relu", b.node("matmul", joined, wide))])
    price = _price(graph, 0)
    found = solve(graph, lambda region, _: price(region)).partition
    assert found.objective_seconds == pytest.approx(
        least_cost(graph, price, "full"), rel=1e-6
    )
