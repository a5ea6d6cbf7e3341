"""Which whole plan stands in the end: the tuned, the untuned, or the stored one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tuner.search.conftest import (
    Log,
    body_of,
    run_to_end,
    session_of,
)
from tuner.model import Model
from tuner.runtime.null import NullRunner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

Json = dict[str, Any]
Finished = tuple[TuningSession, Log]


def test_a_tuned_plan_that_lost_is_not_kept(model: Model, runner: NullRunner) -> None:
    """When the unfused plan is surely faster as a whole, it is the plan."""
    tuning = session_of(model)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        if batch["items"][0]["kind"] == "whole":
            slow = {"seconds": 2.0, "low_seconds": 1.9, "high_seconds": 2.1}
            fast = {"seconds": 1.0, "low_seconds": 0.9, "high_seconds": 1.1}
            whole = {"plan": slow, "untuned": slow, "unfused": fast}
            results = [{"whole": whole, "cost_seconds": 0.0}]
        tuning.observe(batch, results)
    plan = tuning.plan()
    assert all(len(k.region.nodes) <= 2 for k in plan.kernels)
    assert plan.whole["plan"].seconds == 1.0
    assert str(plan.evidence) == "measured"


def test_a_tie_keeps_the_plan_that_stands(model: Model, runner: NullRunner) -> None:
    """A tuned plan within the noise of the untuned one does not replace it."""
    tuning = session_of(model)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        if batch["items"][0]["kind"] == "whole":
            mine = {"seconds": 0.95, "low_seconds": 0.85, "high_seconds": 1.05}
            other = {"seconds": 1.0, "low_seconds": 0.9, "high_seconds": 1.1}
            whole = {"plan": mine, "untuned": other, "unfused": other}
            results = [{"whole": whole, "cost_seconds": 0.0}]
        tuning.observe(batch, results)
    assert tuning.winner == "untuned"
    assert tuning.plan().whole["plan"].seconds == 1.0


def test_the_stored_plan_stays_unless_beaten(
    model: Model, runner: NullRunner, finished: Finished
) -> None:
    """A worse run of a fresh session does not replace the stored plan."""
    stored = body_of(finished[0])
    second = session_of(
        model, budget=Budget(seconds=1e6, trials=2), incumbent=stored, seed=1
    )
    run_to_end(second, runner)
    assert second.winner == "incumbent"
    kernels = [(k["nodes"], k["schedule"]) for k in body_of(second)["kernels"]]
    assert kernels == [(k["nodes"], k["schedule"]) for k in stored["kernels"]]


@pytest.mark.parametrize("change", [{"kernels": []}, {"baselines": 3}, {}])
def test_a_stored_plan_that_does_not_fit_is_ignored(
    model: Model, runner: NullRunner, finished: Finished, change: Json
) -> None:
    """A damaged body, or one of another graph, takes no part."""
    stored = {**body_of(finished[0]), **change} if change else {"something": "else"}
    second = session_of(model, incumbent=stored)
    run_to_end(second, runner)
    assert second.winner != "incumbent"
