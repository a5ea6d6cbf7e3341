"""The order and the names of nodes decide nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from cost_model.catalog import find
from tests.conftest import SOAK
from tests.tuner.fusion.random_graphs import random_graph
from tests.tuner.fusion.zoo_pieces import cut, static_graphs
from tests.tuner.rewrite.graphs import shuffled
from tuner.fusion.legality import Limits
from tuner.fusion.partition import Partitioner
from tuner.fusion.traffic import traffic
from tuner.ir.fingerprint import canonicalize
from tuner.ir.graph import Graph, Region
from tuner.plan import Family, Partition

GRAPHS = 400 if SOAK else 12
PIECES = 100 if SOAK else 4
INDEPENDENT_PRODUCTS = (75, 313)
"""Graphs with two products of which neither waits for the other, in one session."""
TARGETS = ("sm_90", "cpu")
LAUNCH_BYTES = (300, 500)
"""Of a kernel of ours, and of a library call."""


@pytest.fixture(scope="module")
def graphs(zoo_dir: Path) -> Mapping[str, Graph]:
    """Canonical graphs of the static models."""
    return static_graphs(zoo_dir)


def planned(graph: Graph, target: str) -> Partition:
    """The plan's partition under a device's walls; bytes and launches decide."""
    solver = Partitioner(graph, limits=Limits.of(find(target)), clock=lambda: 0.0)

    def price(region: Region, family: Family) -> float:
        launch = LAUNCH_BYTES[family is Family.LIBRARY]
        return 1e-9 * (traffic(graph, region).total_bytes + launch)

    return solver.solve(price).partition


def check(graph: Graph, seed: int) -> None:
    """A graph and one that is the same but for names and order."""
    other = shuffled(graph, seed)
    assert canonicalize(other).fingerprint == canonicalize(graph).fingerprint
    target = TARGETS[seed % len(TARGETS)]
    mine, theirs = planned(graph, target), planned(other, target)
    cost = mine.objective_seconds
    assert theirs.objective_seconds == pytest.approx(cost, rel=1e-6), seed
    assert theirs.bound_seconds <= cost * (1 + 1e-9)
    assert mine.bound_seconds <= theirs.objective_seconds * (1 + 1e-9)


def test_random_graphs_cost_the_same_in_every_order() -> None:
    """With fan-out, reductions, contractions and opaque nodes."""
    for seed in (*range(GRAPHS), *INDEPENDENT_PRODUCTS):
        check(random_graph(seed, 10), seed)


def test_pieces_of_models_cost_the_same_in_every_order(
    graphs: Mapping[str, Graph],
) -> None:
    """The same of pieces with as many nodes as are looked at in every way, and more."""
    rng = random.Random(3)
    found = 0
    while found < PIECES:
        piece = cut(graphs[rng.choice(sorted(graphs))], rng, rng.randint(8, 24))
        if piece is not None:
            check(piece, found)
            found += 1
