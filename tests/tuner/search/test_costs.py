"""The three prices of a kernel."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.tuner.search.conftest import session_of
from tuner.model import Model
from tuner.plan import Measurement
from tuner.search.costs import Costs, upper_quantile
from tuner.search.kernels import RETRIES, TRIES, KernelState
from tuner.search.records import solution_from, solution_json
from tuner.search.rounds import Proof, Round
from tuner.search.session import TuningSession


def _timed(seconds: float, *, contended: bool = False) -> Measurement:
    return Measurement(
        seconds=seconds,
        low_seconds=seconds * 0.99,
        high_seconds=seconds * 1.01,
        contended=contended,
    )


@pytest.fixture
def tuning(model: Model) -> TuningSession:
    """A session that has measured nothing."""
    return session_of(model)


@pytest.fixture
def first(tuning: TuningSession) -> Round:
    """A partition of several kernels."""
    return tuning._run.use(tuning.planner.unfused())


def _costs(tuning: TuningSession) -> Costs:
    return tuning._run.costs


def _price(tuning: TuningSession, answer: Round, place: int, kind: str) -> float:
    choice = answer.solution.partition.choices[place]
    price = _costs(tuning).price(kind)  # type: ignore[arg-type]
    return price(choice.region, choice.family)


def _measure(state: KernelState, factor: float) -> None:
    state.take(state.default, _timed(state.predicted_seconds * factor))


def test_prices_bracket_each_other_until_something_is_measured(
    tuning: TuningSession, first: Round
) -> None:
    """A bound is below the prediction; a measurement is all three."""
    for place in range(len(first.states)):
        low = _price(tuning, first, place, "optimistic")
        assert 0 < low <= _price(tuning, first, place, "measured")
    _measure(first.states[0], 3.0)
    expected = first.states[0].predicted_seconds * 3.0
    assert _price(tuning, first, 0, "optimistic") == pytest.approx(expected)
    assert _price(tuning, first, 0, "measured") == pytest.approx(expected)


def test_unmeasured_kernels_are_corrected_by_an_upper_quantile(
    tuning: TuningSession, first: Round
) -> None:
    """When measured kernels are three times slower than predicted, so are others."""
    target = first.states[0]
    other = next(s for s in first.states if s is not target)
    place = next(n for n, s in enumerate(first.states) if s is other)
    before = _price(tuning, first, place, "measured")
    _measure(target, 3.0)
    assert _price(tuning, first, place, "measured") == pytest.approx(3 * before)


def test_the_quantile_lies_above_the_median() -> None:
    """Three quarters of the errors are not above it."""
    assert upper_quantile([1, 2, 3, 4], default=0) == 3
    assert upper_quantile([5], default=0) == 5
    assert upper_quantile([], default=1.0) == 1.0


def _fail(state: KernelState) -> None:
    failed = Measurement(seconds=math.inf, failure="timeout")
    for schedule in state.study.space[:TRIES]:
        state.take(schedule, failed)
    assert state.is_hopeless


def test_hopeless_kernels_cost_infinity(tuning: TuningSession) -> None:
    """After enough failures no partition uses a fused kernel, under no price."""
    fused = tuning._run.use(tuning.planner.solve())
    sizes = [len(c.region.nodes) for c in fused.solution.partition.choices]
    place = sizes.index(max(sizes))
    _fail(fused.states[place])
    assert math.isinf(_price(tuning, fused, place, "measured"))
    assert math.isinf(_price(tuning, fused, place, "optimistic"))


def test_a_node_that_always_fails_is_a_last_resort(
    tuning: TuningSession, first: Round
) -> None:
    """There may be no other way to run it: dear, but a plan; and proofs are settled."""
    predicted = _price(tuning, first, 0, "predicted")
    open_before = Proof(first, _costs(tuning))
    _fail(first.states[0])
    assert open_before.is_stale
    for kind in ("measured", "optimistic"):
        assert 10 * predicted < _price(tuning, first, 0, kind) < math.inf
    price = _costs(tuning).price("optimistic")
    partition = first.solution.partition
    choices = [replace(c, seconds=price(c.region, c.family)) for c in partition.choices]
    again = replace(
        first.solution, partition=replace(partition, choices=tuple(choices))
    )
    settled = Round(solution=again, states=first.states)
    assert not Proof(settled, _costs(tuning)).is_stale


def test_a_kill_from_outside_makes_nothing_hopeless(first: Round) -> None:
    """Such failures are not the kernel's."""
    state = first.states[0]
    stray = Measurement(seconds=math.inf, failure="runtime", contended=True)
    state.take(state.default, stray)
    assert not state.is_hopeless
    for _ in range(RETRIES):
        assert state.is_waiting
        assert state.next_schedule() == state.default
    assert not state.is_waiting
    assert state.is_drowned


def test_disturbed_runs_price_but_do_not_prove(
    tuning: TuningSession, first: Round
) -> None:
    """They stand in for a measurement, and leave the lower bound where it was."""
    low = _price(tuning, first, 0, "optimistic")
    first.states[0].take(first.states[0].default, _timed(0.5, contended=True))
    assert _price(tuning, first, 0, "measured") == 0.5
    assert _price(tuning, first, 0, "optimistic") == low
    assert first.total_seconds is None


def test_bounds_shrink_when_a_kernel_beats_its_own(
    tuning: TuningSession, first: Round
) -> None:
    """A time below the lower bound shows that all bounds may be too high."""
    proof = Proof(first, _costs(tuning))
    before = proof.bound_seconds
    state = first.states[0]
    state.take(state.default, _timed(state.floor_seconds / 4))
    assert _costs(tuning).floor_scale() == pytest.approx(0.25 * 0.99)
    assert proof.bound_seconds <= before / 4
    assert proof.is_stale


def test_a_partition_survives_its_json(first: Round) -> None:
    """What is recorded is what was solved."""
    again = solution_from(solution_json(first.solution))
    assert again.partition == first.solution.partition
    assert dict(again.baselines) == dict(first.solution.baselines)
