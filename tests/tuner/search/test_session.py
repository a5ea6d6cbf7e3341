"""A tuning run as a state machine, on a device with made-up times."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tests.tuner.search.conftest import made_up_seconds
from tuner import document
from tuner.model import Model
from tuner.plan import Family, Options
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

Json = dict[str, Any]
RunnerWith = Callable[[Callable[[MeasureRequest], float]], NullRunner]
BUDGET = Budget(seconds=1e6, trials=80, trials_per_kernel=6)


def no_clock() -> float:
    """Time stands still, so that results do not depend on this machine."""
    return 0.0


def session(
    model: Model, known: Mapping[str, Json] | None = None, budget: Budget = BUDGET
) -> TuningSession:
    """A session on the processor's model."""
    return TuningSession(model, "cpu", Options(), budget, known, 7, clock=no_clock)


def run(tuning: TuningSession, runner: NullRunner) -> list[tuple[Json, list[Json]]]:
    """Tune to the end; returns batches and results as a job's memory holds them."""
    log = []
    while (batch := tuning.propose()) is not None:
        results = json.loads(json.dumps(tuning.measure(batch, runner)))
        tuning.observe(batch, results)
        log.append((json.loads(json.dumps(batch)), results))
    return log


def digest(tuning: TuningSession) -> str:
    """Digest of the session's plan."""
    key = tuning.key
    body = document.body(
        tuning.plan(), target=dict(key.target), toolchain=dict(key.toolchain)
    )
    return document.digest(document.encode(body))


def kernel_items(log: list[tuple[Json, list[Json]]]) -> list[tuple[str, str]]:
    """Kernel and schedule of every run."""
    return [
        (item["kernel"], json.dumps(item["schedule"]))
        for batch, _ in log
        for item in batch["items"]
        if item["kind"] == "kernel"
    ]


def test_a_replayed_run_proposes_the_same_and_ends_with_the_same_plan(
    model: Model, runner: NullRunner
) -> None:
    """A worker that was killed resumes from stored results, wherever it stopped."""
    first = session(model)
    log = run(first, runner)
    again = session(model)
    for batch, results in log:
        assert json.loads(json.dumps(again.propose())) == batch
        again.observe(batch, results)
    assert again.propose() is None
    assert digest(again) == digest(first)


def test_no_kernel_is_run_twice_with_one_schedule(
    model: Model, runner: NullRunner
) -> None:
    """Neither repeated proposals nor equal layers cost a second run."""
    items = kernel_items(run(session(model), runner))
    assert len(items) == len(set(items)) > 0


def test_known_results_cost_nothing(model: Model, runner: NullRunner) -> None:
    """What the database knows is not measured again."""
    first = session(model)
    log = run(first, runner)
    known = {
        item["key"]: result
        for batch, results in log
        for item, result in zip(batch["items"], results, strict=True)
        if item["kind"] == "kernel"
    }
    second = session(model, known)
    repeated = set(kernel_items(run(second, runner))) & set(kernel_items(log))
    assert not repeated


def test_every_kernel_of_the_plan_was_measured(
    model: Model, runner: NullRunner
) -> None:
    """With enough budget a plan's evidence is `measured` throughout."""
    tuning = session(model)
    run(tuning, runner)
    plan = tuning.plan()
    assert str(plan.evidence) == "measured"
    assert all(kernel.measurement is not None for kernel in plan.kernels)


def test_a_kernel_that_always_fails_is_avoided(
    model: Model, runner_with: RunnerWith
) -> None:
    """The partition goes around kernels that no schedule can run."""

    def seconds(request: MeasureRequest) -> float:
        is_reduction = any(n.op.startswith("reduce") for n in request.graph.nodes)
        if is_reduction and len(request.graph.nodes) > 1:
            return math.inf
        return made_up_seconds(request)

    tuning = session(model)
    run(tuning, runner_with(seconds))
    for kernel in tuning.plan().kernels:
        if kernel.family is Family.REDUCTION:
            assert len(kernel.region.nodes) == 1


def test_the_budget_of_trials_is_kept(model: Model, runner: NullRunner) -> None:
    """Never more kernel runs than were allowed."""
    tuning = session(model, budget=Budget(seconds=1e6, trials=5))
    assert len(kernel_items(run(tuning, runner))) <= 5


def test_a_tuned_plan_that_lost_is_not_kept(model: Model, runner: NullRunner) -> None:
    """When the unfused plan is surely faster as a whole, it is the plan."""
    tuning = session(model)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        if "whole" in results[0]:
            slow = {"seconds": 2.0, "low_seconds": 1.9, "high_seconds": 2.1}
            fast = {"seconds": 1.0, "low_seconds": 0.9, "high_seconds": 1.1}
            whole = {"plan": slow, "untuned": slow, "unfused": fast}
            results = [{"whole": whole, "cost_seconds": 0.0}]
        tuning.observe(batch, results)
    plan = tuning.plan()
    assert all(len(k.region.nodes) <= 2 for k in plan.kernels)
    assert plan.whole["plan"].seconds == 1.0


def test_a_tie_keeps_the_plan_that_stands(model: Model, runner: NullRunner) -> None:
    """A tuned plan within the noise of the untuned one does not replace it."""
    tuning = session(model)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        if "whole" in results[0]:
            mine = {"seconds": 0.95, "low_seconds": 0.85, "high_seconds": 1.05}
            other = {"seconds": 1.0, "low_seconds": 0.9, "high_seconds": 1.1}
            whole = {"plan": mine, "untuned": other, "unfused": other}
            results = [{"whole": whole, "cost_seconds": 0.0}]
        tuning.observe(batch, results)
    assert tuning.winner == "untuned"
    assert tuning.plan().whole["plan"].seconds == 1.0
