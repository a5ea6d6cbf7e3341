"""Pieces of real models against an enumerator that tries everything."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.tuner.fusion.enumerator import least_cost
from tests.tuner.fusion.zoo_pieces import cut, static_graphs
from tuner.fusion.candidates import EXHAUSTIVE_UNITS
from tuner.fusion.partition import solve
from tuner.fusion.trim import SOLVER_TOLERANCE
from tuner.fusion.units import LIGHT
from tuner.ir.graph import Graph, Region, region_inputs
from tuner.plan import Family

PIECES = 200 if SOAK else 8
SMALLEST, LARGEST = (8, 14) if SOAK else (8, 9)
LAUNCH_BYTES = (0, 64, 300, 1000)


@pytest.fixture(scope="module")
def graphs(zoo_dir: Path) -> Mapping[str, Graph]:
    """Canonical graphs of the static models."""
    return static_graphs(zoo_dir)


def _piece(graphs: Mapping[str, Graph], seed: int) -> Graph:
    rng = random.Random(seed)
    size = rng.randint(SMALLEST, LARGEST)
    while True:
        found = cut(graphs[rng.choice(sorted(graphs))], rng, size)
        if found is not None:
            return found


@pytest.mark.parametrize("seed", range(PIECES))
def test_no_plan_of_a_piece_is_cheaper(graphs: Mapping[str, Graph], seed: int) -> None:
    """The planner's cost of a piece is the least of all plans.

    Where every set of nodes is a candidate, the bound is that least cost. In larger
    pieces, tensors that are much smaller than others decide nothing: what they cost,
    written and read, is what may be lost.
    """
    graph = _piece(graphs, seed)
    sizes = {name: kind.bytes for name, kind in graph.types.items()}

    launch = LAUNCH_BYTES[seed % len(LAUNCH_BYTES)]

    @cache
    def read_bytes(nodes: tuple[str, ...]) -> int:
        return sum(sizes[name] for name in region_inputs(graph, nodes))

    def price(region: Region) -> float:
        written = sum(sizes[name] for name in region.outputs)
        return 1e-9 * (read_bytes(region.nodes) + written + launch)

    def priced(region: Region, _family: Family) -> float:
        return price(region)

    found = solve(graph, priced).partition
    expected = least_cost(graph, price, "full")
    assert expected * (1 - 1e-9) <= found.objective_seconds
    is_small = sum(node.op != "reshape" for node in graph.nodes) <= EXHAUSTIVE_UNITS
    light = sum(n for n in sizes.values() if n * LIGHT < max(sizes.values()))
    lost = 0.0 if is_small else 2e-9 * light
    assert found.objective_seconds <= expected * (1 + SOLVER_TOLERANCE) + lost
    assert found.candidate_space.complete
    if is_small:
        assert found.bound_seconds == pytest.approx(expected, rel=1e-6)
