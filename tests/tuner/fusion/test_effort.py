"""Where a solve stops: by counted work, or by the clock of a user who asks for it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scale import transformer
from cost_model.catalog import find
from tests.tuner.fusion.random_graphs import random_graph
from tests.tuner.fusion.test_least import scan
from tuner.fusion.effort import LOOK_STEPS, Effort
from tuner.fusion.legality import Limits
from tuner.fusion.linear import Row
from tuner.fusion.milp import Minimiser
from tuner.fusion.partition import SPENT, STOPPED, Partitioner
from tuner.ir.graph import Graph, Region
from tuner.model import load
from tuner.pipeline import Planner
from tuner.plan import Family, Options, Partition
from tuner.pricing import Pricer, floor_of

SLEEP_SECONDS = 0.002


def _planned(
    graph: Graph,
    *,
    steps: float | None = None,
    sleep: float = 0.0,
    seconds: float | None = None,
) -> Partition:
    """A plan within so much work, on a machine that takes so long for each price."""
    device, options = find("sm_90"), Options()
    pricer = Pricer(graph, device, options)

    def price(region: Region, family: Family) -> float:
        time.sleep(sleep)
        return pricer.seconds(region, family)

    ticks = itertools.count()
    solver = Partitioner(
        graph, limits=Limits.of(device), clock=lambda: 0.01 * next(ticks)
    )
    return solver.solve(
        price,
        steps=steps,
        time_limit_seconds=seconds,
        floor=floor_of(device, options, pricer),
    ).partition


@pytest.mark.parametrize("steps", [20_000, 60_000, 150_000, 500_000])
def test_a_slow_machine_makes_the_plan_of_a_fast_one(steps: float) -> None:
    """What is left out where work ends does not depend on how long work takes."""
    graph = scan(3)
    fast = _planned(graph, steps=steps)
    slow = _planned(graph, steps=steps, sleep=SLEEP_SECONDS)
    assert fast == slow
    assert SPENT in fast.candidate_space.rules
    assert STOPPED not in fast.candidate_space.rules
    assert 0 < fast.bound_seconds <= fast.objective_seconds


def test_a_time_limit_is_a_clock() -> None:
    """A limit ends a solve by the clock, and is told of; so is what came first."""
    found = _planned(scan(3), seconds=1.0)
    assert STOPPED in found.candidate_space.rules
    assert SPENT not in found.candidate_space.rules
    assert 0 < found.bound_seconds <= found.objective_seconds
    both = _planned(scan(3), steps=1, seconds=1e9)
    assert SPENT in both.candidate_space.rules
    assert STOPPED not in both.candidate_space.rules


def test_a_small_plan_spends_little() -> None:
    """Work that suffices is not told of, and the proof is whole."""
    for seed in range(5):
        found = _planned(random_graph(seed, 6), steps=2_000_000)
        assert not {SPENT, STOPPED}.intersection(found.candidate_space.rules)
        assert found.candidate_space.complete


def test_a_model_has_one_plan_at_every_speed(zoo_dir: Path) -> None:
    """The planner gives a real model the same kernels when pricing sleeps."""

    class Slow(Planner):
        """A planner on a machine on which each price takes longer."""

        def price(self, region: Region, family: Family) -> float:
            time.sleep(SLEEP_SECONDS / 10)
            return super().price(region, family)

    model = load((zoo_dir / "bert_mini_torchscript.onnx").read_bytes())
    plans = []
    for kind in (Planner, Slow):
        planner = kind(model=model, device=find("sm_90"), options=Options())
        plans.append(planner.plan(planner.solve()).partition)
    assert plans[0] == plans[1]


class _Hard:
    """A covering problem that takes many nodes."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        holds = rng.random((70, 140)) < 0.06
        holds[:, 0] |= ~holds.any(axis=1)
        self.costs = rng.uniform(1.0, 1.2, 140)
        self.rows = [_cover(np.flatnonzero(row).tolist()) for row in holds]

    def solve(self, effort: Effort) -> tuple[tuple[int, ...], float]:
        """What is found within so much work."""
        problem = Minimiser(
            self.costs, self.rows, binaries=len(self.costs), effort=effort
        )
        found = problem.solve()
        return found.chosen, found.bound


def _cover(columns: Sequence[int]) -> Row:
    ones = (1.0,) * len(columns)
    return Row(columns=tuple(columns), coefficients=ones, least=1.0)


def test_a_search_ends_where_its_work_does() -> None:
    """A solver that is stopped says the same twice, and its bound is below the best."""
    problem = _Hard(3)
    whole = Effort.unlimited()
    best, proved = problem.solve(whole)
    assert sum(problem.costs[list(best)]) == pytest.approx(proved, rel=1e-6)
    for share in (0.05, 0.3):
        efforts = [Effort(steps=share * whole.spent) for _ in range(2)]
        first, second = (problem.solve(effort) for effort in efforts)
        assert first == second
        assert efforts[0].spent == efforts[1].spent < whole.spent
        assert 0 < first[1] <= proved * (1 + 1e-9)


def test_twice_the_layers_take_about_twice_the_work() -> None:
    """Equal layers are solved once, and nothing else grows faster than the model."""
    spent = []
    for layers in (4, 8, 16):
        model = load(transformer(layers).SerializeToString())
        planner = Planner(model=model, device=find("sm_90"), options=Options())
        planner.solve()
        spent.append(planner.partitioner.spent)
    assert spent[2] - spent[1] <= 2.2 * (spent[1] - spent[0])


def test_looks_count() -> None:
    """A loop that only asks whether to end comes to an end."""
    effort = Effort(steps=10 * LOOK_STEPS)
    assert [effort.is_over for _ in range(12)].index(True) == 9
    assert effort.was_over


def test_a_share_is_kept() -> None:
    """However late it is, what comes last has a share of the work."""
    effort = Effort(steps=1000)
    effort.spend(5000)
    assert effort.is_over
    effort.keep(0.1)
    assert effort.left == pytest.approx(100)
