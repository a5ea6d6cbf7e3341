"""Candidates that are priced only when they may matter."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_model.device import LaunchMode
from tests.conftest import SOAK
from tests.tuner.fusion.random_graphs import random_graph
from tests.tuner.fusion.zoo_pieces import cut, static_graphs
from tuner.assembly import limits_for
from tuner.fusion.candidates import Space
from tuner.fusion.columns import Columns
from tuner.fusion.legality import Rules
from tuner.fusion.linear import Row
from tuner.fusion.milp import minimise
from tuner.fusion.partition import JOINED_IN_BOUND, Partitioner
from tuner.fusion.soundness import UnsoundBound
from tuner.fusion.view import View
from tuner.ir.graph import Graph, Region
from tuner.pipeline import resolve_target
from tuner.plan import Family, Options
from tuner.pricing import Pricer, floor_of

GRAPHS = 400 if SOAK else 10
PIECES = 60 if SOAK else 3


@pytest.fixture(scope="module")
def graphs(zoo_dir: Path) -> Mapping[str, Graph]:
    """Canonical graphs of the static models."""
    return static_graphs(zoo_dir)


class _Asked:
    """A planner's problem with and without a floor, and what was priced."""

    def __init__(self, graph: Graph, target: str, mode: LaunchMode = "stream") -> None:
        device = resolve_target(target)
        options = Options(launch_mode=mode)
        self.graph = graph
        self.pricer = Pricer(graph, device, options)
        self.floor = floor_of(device, options, self.pricer)
        self.limits = limits_for(device, options)

    def price(self, region: Region, family: Family) -> float:
        """The cost model's price."""
        return self.pricer.seconds(region, family)

    def objectives(self) -> tuple[float, float]:
        """Least cost with every candidate priced, and with as few as may be."""
        solver = Partitioner(self.graph, limits=self.limits, clock=lambda: 0.0)
        eager = solver.solve(self.price)
        lazy = solver.solve(self.price, floor=self.floor)
        is_joined = JOINED_IN_BOUND in lazy.partition.candidate_space.rules
        assert is_joined or lazy.partition.gap <= 1e-6
        bound = lazy.partition.bound_seconds
        assert bound <= eager.partition.objective_seconds * (1 + 1e-9)
        return eager.partition.objective_seconds, lazy.partition.objective_seconds

    def check_floors(self) -> int:
        """Every candidate costs at least what is said without lowering it."""
        rules = Rules(View(self.graph), "full", self.limits)
        space = Space(rules, out_of_time=lambda: False)
        columns = Columns(rules, self.price, floor=self.floor)
        count = 0
        for zone in space.zones(()):
            for candidate in space.candidates(zone).kernels:
                least, is_exact = columns.at_least(candidate)
                seconds = columns.price(candidate).seconds
                assert least <= seconds * (1 + 1e-9), candidate
                count += not is_exact
        return count


def test_no_kernel_of_a_random_graph_costs_less_than_its_floor() -> None:
    """A floor is never above the price, in a stream and in a recorded graph."""
    floored = 0
    for seed in range(GRAPHS):
        mode: LaunchMode = "stream" if seed % 2 else "graph"
        floored += _Asked(random_graph(seed, 7), "sm_90", mode).check_floors()
    assert floored > GRAPHS


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_no_kernel_of_a_model_costs_less_than_its_floor(
    graphs: Mapping[str, Graph], target: str
) -> None:
    """The same of pieces of real models."""
    floored = 0
    for graph in _pieces(graphs, 8):
        floored += _Asked(graph, target).check_floors()
    assert floored > PIECES


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_the_least_cost_does_not_depend_on_what_was_priced(
    graphs: Mapping[str, Graph], target: str
) -> None:
    """With a floor the planner finds partitions as cheap as when it prices all."""
    for graph in _pieces(graphs, 14):
        eager, lazy = _Asked(graph, target).objectives()
        assert lazy == pytest.approx(eager, rel=1e-6)


def _pieces(graphs: Mapping[str, Graph], size: int) -> list[Graph]:
    rng = random.Random(size)
    found: list[Graph] = []
    while len(found) < PIECES:
        piece = cut(graphs[rng.choice(sorted(graphs))], rng, size)
        if piece is not None:
            found.append(piece)
    return found


@pytest.mark.parametrize("seed", range(600 if SOAK else 20))
def test_costs_known_from_below_lead_to_the_same_least(seed: int) -> None:
    """A cover is as cheap when its costs are only told on demand, or are infinite."""
    rng = np.random.default_rng(seed)
    holds = rng.random((9, 60)) < 0.25
    costs = rng.uniform(1.0, 2.0, 60) * holds.sum(axis=0).clip(1) ** 0.7
    costs[rng.random(60) < 0.1] = np.inf
    rows = [
        Row(
            columns=tuple(np.flatnonzero(row).tolist()),
            coefficients=(1.0,) * int(row.sum()),
            least=1,
        )
        for row in holds
    ]
    known = np.minimum(costs, 1e6)
    told: set[int] = set()

    def settle(columns: Sequence[int]) -> list[float]:
        assert not told.intersection(columns)
        told.update(columns)
        return [float(costs[k]) for k in columns]

    expected = minimise(known, rows, binaries=60)
    low = np.where(np.isfinite(costs), costs, 3.0) * rng.uniform(0.8, 1.0, 60)
    found = minimise(
        low,
        rows,
        binaries=60,
        vague=range(60),
        settle=settle,
    )
    least = sum(costs[k] for k in expected.chosen)
    assert sum(costs[k] for k in found.chosen) == pytest.approx(least, rel=1e-6)
    assert found.bound == pytest.approx(least, rel=1e-6)
    assert len(told) < 60


def test_a_bound_stands_when_no_column_can_be_asked() -> None:
    """Without time to ask, there is no choice but a bound on every choice."""
    rows = [Row(columns=(0, 1), coefficients=(1.0, 1.0), least=1)]
    found = minimise(
        [2.0, 3.0],
        rows,
        binaries=2,
        vague=(0, 1),
        settle=lambda _: None,
    )
    assert found.feasible
    assert not found.chosen
    assert found.bound == pytest.approx(2.0)


def test_a_floor_that_a_price_refutes_is_given_up(graphs: Mapping[str, Graph]) -> None:
    """Where a kernel costs less than its floor, all kernels are priced instead."""
    for graph in _pieces(graphs, 12):
        asked = _Asked(graph, "sm_90")
        solver = Partitioner(graph, limits=asked.limits, clock=lambda: 0.0)
        eager = solver.solve(asked.price).partition
        device = asked.floor.device
        slower = replace(device, launch_seconds=1.2 * device.launch_seconds)
        high = replace(asked.floor, device=slower)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsoundBound)  # the floor of all is refuted
            lazy = solver.solve(asked.price, floor=high).partition
        assert lazy.objective_seconds == pytest.approx(eager.objective_seconds)
