"""A short tuning run on this processor, from end to end."""

from __future__ import annotations

import json

import pytest

from tests.tuner.search.conftest import (
    Log,
    body_of,
    replay,
    results_by_key,
    run_to_end,
    through_json,
)
from tuner.execution import whole_request
from tuner.model import Model
from tuner.plan import Options
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.contest import surely_faster
from tuner.search.session import TuningSession

BUDGET = Budget(seconds=6.0, trials=8, trials_per_kernel=3)


@pytest.fixture(scope="module")
def ran(opencl: OpenCLBackend, model: Model) -> tuple[TuningSession, Log]:
    """A run that is over."""
    assert opencl.name
    tuning = TuningSession(model, "cpu", Options(), BUDGET)
    with Runner("cpu") as runner:
        return tuning, run_to_end(tuning, runner)


def test_a_run_measures_verifies_and_is_served_the_second_time(
    opencl: OpenCLBackend, model: Model, ran: tuple[TuningSession, Log]
) -> None:
    """Kernels and whole plans pass; a second run repeats nothing undisturbed."""
    first, log = ran
    known = results_by_key(log)
    with Runner("cpu") as runner:
        second = TuningSession(model, "cpu", Options(), BUDGET, known)
        log_of_second = run_to_end(second, runner)
    failed = [r for _, results in log for r in results if r.get("failure")]
    assert not failed
    whole = next(r for _, results in log for r in results if r.get("whole"))
    assert whole["verified"]
    assert {"untuned", "unfused", "alone", "reference"} <= set(whole["whole"])
    assert all(not m["failure"] for m in whole["whole"].values())
    body = json.loads(json.dumps(body_of(first)))
    assert body["refinement"]["trials"] > 0
    measured = body["measured"]
    assert measured["alone"]["timed"] == measured["reference"]["timed"]
    assert measured["alone"]["timed"] != measured["plan"]["timed"]
    quiet = {key for key, result in known.items() if not result["contended"]}
    measured_again = {
        item["key"]
        for batch, _ in log_of_second
        for item in batch["items"]
        if item["kind"] == "kernel"
    }
    assert not quiet & measured_again
    assert opencl.name in str(first.toolchain)
    if not quiet:
        pytest.skip("other processes disturbed every kernel run")


def test_a_killed_run_ends_with_a_plan_as_good(
    model: Model, ran: tuple[TuningSession, Log]
) -> None:
    """Its successor takes over what was measured, and goes on; neither plan is beaten.

    The two are timed by turns, since a processor never repeats a time.
    """
    whole, log = ran
    successor = TuningSession(model, "cpu", Options(), BUDGET)
    replay(successor, log[: len(log) // 2])
    with Runner("cpu") as runner:
        rest = run_to_end(successor, runner)
        assert len(rest) >= 1
        assert through_json(rest[0][0]) == log[len(log) // 2][0]
        plans = {"whole": whole.plan(), "killed": successor.plan()}
        request = whole_request(model, plans, "opencl", budget_seconds=1.0, attempts=4)
        found = runner.measure_whole(request).measurements
    assert not found["killed"].failure
    assert not surely_faster(found["whole"], found["killed"])
