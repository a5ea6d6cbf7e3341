"""What earlier runs measured: when it is served, and when it is not believed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.tuner.search.conftest import (
    Log,
    kernel_runs,
    made_up_seconds,
    results_by_key,
    run_to_end,
    session_of,
    small_model,
    through_json,
)
from tuner.model import Model, load
from tuner.plan import Measurement
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult
from tuner.search.session import TuningSession

Json = dict[str, Any]
Finished = tuple[TuningSession, Log]


def test_known_results_cost_nothing(
    model: Model, runner: NullRunner, finished: Finished
) -> None:
    """What the database knows is not measured again, and leads to the same plan."""
    first, log = finished
    second = session_of(model, results_by_key(log))
    assert not kernel_runs(run_to_end(second, runner))
    found, again = (
        [(k.region, k.schedule, k.measurement) for k in tuning.plan().kernels]
        for tuning in (first, second)
    )
    assert again == found


def test_results_of_another_toolchain_are_not_served(
    model: Model, finished: Finished
) -> None:
    """A driver or a device that changed measures again; null never serves cpu."""
    known = results_by_key(finished[1])
    other = NullRunner(made_up_seconds, toolchain="null 2")
    log = run_to_end(session_of(model, known), other)
    assert len(kernel_runs(log)) >= 10
    assert not set(known) & set(results_by_key(log))


def test_cold_and_warm_results_are_kept_apart(model: Model, finished: Finished) -> None:
    """A cold run asks for flushed launches, and is served no warm result."""
    known = results_by_key(finished[1])
    flushed: set[bool] = set()

    class Listening(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            flushed.add(request.flush_bytes > 0)
            return super().measure(request)

        def measure_whole(self, request: PlanRequest) -> PlanResult:
            flushed.add(request.flush_bytes > 0)
            return super().measure_whole(request)

    log = run_to_end(session_of(model, known, cache="cold"), Listening(made_up_seconds))
    assert flushed == {True}
    cold = results_by_key(log)
    assert cold
    assert not set(known) & set(cold)
    again = session_of(model, {**known, **cold}, cache="cold")
    assert not kernel_runs(run_to_end(again, Listening(made_up_seconds)))


@pytest.mark.parametrize(
    "damage",
    [
        {"toolchain": "another"},
        {"seconds": "fast"},
        {"seconds": -1.0},
        {"low_seconds": 5.0},
        {"contended": True},
        {"gone": "the device is gone"},
    ],
)
def test_an_invalid_entry_is_a_miss(
    model: Model, runner: NullRunner, finished: Finished, damage: Json
) -> None:
    """Damaged, foreign and disturbed entries are measured again."""
    _, log = finished
    known = {k: {**r, **damage} for k, r in results_by_key(log).items()}
    again = session_of(model, known)
    opening = again.propose()
    assert opening is not None
    again.observe(opening, through_json(again.measure(opening, runner)))
    assert again.propose() == log[1][0]


def test_loaded_results_are_verified_before_they_are_used(
    model: Model, finished: Finished
) -> None:
    """Every loaded kernel of the plan is verified once, without timing."""
    known = results_by_key(finished[1])
    asked: list[MeasureRequest] = []

    class Listening(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            asked.append(request)
            return super().measure(request)

    tuning = session_of(model, known)
    run_to_end(tuning, Listening(made_up_seconds))
    assert asked
    assert not any(request.timed for request in asked)
    assert len(asked) >= len({k.fingerprint for k in tuning.plan().kernels})


def test_a_loaded_result_that_fails_its_check_is_dropped(
    model: Model, finished: Finished
) -> None:
    """The plan goes around the kernel, or takes another schedule."""
    first, log = finished
    victim = first.plan().kernels[0]
    nodes = first._run.kernels[victim.fingerprint].form.graph.nodes

    class Strict(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            if not request.timed and request.graph.nodes == nodes:
                return Measurement(
                    seconds=math.inf, failure="correctness", message="differs"
                )
            return super().measure(request)

    second = session_of(model, results_by_key(log))
    run_to_end(second, Strict(made_up_seconds))
    used = [(k.fingerprint, k.schedule) for k in second.plan().kernels]
    assert (victim.fingerprint, victim.schedule) not in used
    assert str(second.plan().evidence) == "measured"


def test_near_shapes_give_the_second_trial(
    model: Model, runner: NullRunner, finished: Finished
) -> None:
    """The best schedule of the same kernel in another size is tried, not believed."""
    known = results_by_key(finished[1])
    other = load(small_model(rows=24))
    blank = results_by_key(run_to_end(session_of(other), runner))
    structure, runs = _first_improved(blank, set(_by_structure(known)))
    best = {"seconds": 1e-7, "low_seconds": 1e-7, "high_seconds": 1e-7}
    hint = {**best, "schedule": runs[-1]["schedule"]}
    victim = next(k for k, r in known.items() if r["near"] == structure)
    known = {**known, victim: {**known[victim], **hint}}
    found = results_by_key(run_to_end(session_of(other, known), runner))
    assert not set(found) & set(known)
    default, hinted, *_ = _by_structure(found)[structure]
    assert default["schedule"] == runs[0]["schedule"]
    assert hinted["schedule"] == runs[-1]["schedule"] != runs[1]["schedule"]


def _first_improved(
    results: dict[str, Json], wanted: set[str]
) -> tuple[str, list[Json]]:
    """The kernel that was run a second time first: till then no hint shows."""
    order = {key: place for place, key in enumerate(results)}
    keys: dict[str, list[str]] = {}
    for key, result in results.items():
        keys.setdefault(result["near"], []).append(key)
    improved = {
        structure: ran
        for structure, ran in keys.items()
        if structure in wanted
        and len(ran) > 2
        and len({results[key]["kernel"] for key in ran}) == 1
    }
    structure = min(improved, key=lambda one: order[improved[one][1]])
    return structure, [results[key] for key in improved[structure]]


def _by_structure(results: dict[str, Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for result in results.values():
        found.setdefault(result["near"], []).append(result)
    return found
