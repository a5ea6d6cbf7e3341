"""A tuning run as a state machine, on a device with made-up times."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tests.tuner.search.conftest import (
    Log,
    digest_of,
    kernel_runs,
    made_up_seconds,
    no_clock,
    replay,
    results_by_key,
    run_to_end,
    session_of,
    through_json,
)
from tuner.model import Model
from tuner.plan import Options, Pin
from tuner.runtime.null import NullRunner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

Finished = tuple[TuningSession, Log]


def test_a_replayed_run_proposes_the_same_and_ends_with_the_same_plan(
    model: Model, finished: Finished
) -> None:
    """A worker that was killed resumes from stored results, wherever it stopped."""
    first, log = finished
    again = session_of(model)
    replay(again, log)
    assert again.propose() is None
    assert digest_of(again) == digest_of(first)


def test_no_kernel_is_run_twice_with_one_schedule(finished: Finished) -> None:
    """Neither repeated proposals nor equal layers cost a second run."""
    items = kernel_runs(finished[1])
    assert len(items) == len(set(items)) > 0


def test_every_kernel_of_the_plan_was_measured(finished: Finished) -> None:
    """With enough budget a plan's evidence is `measured` throughout."""
    plan = finished[0].plan()
    assert str(plan.evidence) == "measured"
    assert all(kernel.measurement is not None for kernel in plan.kernels)


def test_the_budget_of_trials_is_kept(model: Model, runner: NullRunner) -> None:
    """Never more kernel runs than were allowed."""
    tuning = session_of(model, budget=Budget(seconds=1e6, trials=5))
    assert len(kernel_runs(run_to_end(tuning, runner))) <= 5


def test_the_budget_of_seconds_is_kept(model: Model) -> None:
    """Recorded costs end the run; whole plans are left something, and come in time."""
    tuning = session_of(model, budget=Budget(seconds=4.0, trials=1000))
    spent, before = 0.0, math.inf
    runner = NullRunner(made_up_seconds)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        for item, result in zip(batch["items"], results, strict=True):
            if item["kind"] == "whole":
                before = spent
            result["cost_seconds"] = 0.3 if item["kind"] == "kernel" else 0.0
            spent += result["cost_seconds"]
        tuning.observe(batch, results)
    assert before <= 4.0 * 0.6 + 0.3
    assert spent <= 4.0 + 1e-9
    assert tuning.plan().whole


def test_a_run_killed_anywhere_ends_with_the_same_plan(
    model: Model, runner: NullRunner, finished: Finished, soak: bool
) -> None:
    """Workers die in ten places; each successor repeats at most one batch.

    In a short run four of them die: at the first batch, at the last, and between.
    """
    whole, log = finished
    deaths = 10 if soak else 4
    for place in {round(k * (len(log) - 1) / (deaths - 1)) for k in range(deaths)}:
        successor = session_of(model)
        replay(successor, log[:place])
        rest = run_to_end(successor, runner)
        assert [batch for batch, _ in rest] == [batch for batch, _ in log[place:]]
        assert digest_of(successor) == digest_of(whole)


def test_a_replay_solves_nothing(
    model: Model, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are recorded, so the solver's clock cannot change a replay."""
    _, log = finished
    again = session_of(model)
    monkeypatch.setattr(again.planner, "solve", None)
    replay(again, log)
    assert again.propose() is None


def test_no_question_is_put_to_the_solver_twice(
    model: Model, finished: Finished
) -> None:
    """As long as no price has changed, the last partition stands."""
    again = session_of(model)
    asked: list[object] = []
    for batch, results in finished[1]:
        assert through_json(again.propose()) == batch
        first = batch["items"][0]
        if first.get("price") == "measured" and not first.get("avoided"):
            asked.append(again._run.costs.known())
        again.observe(batch, results)
    assert asked
    assert all(one != other for one, other in pairwise(asked))


def _labels(model: Model, options: Options) -> set[str]:
    """Who is run whole under these options."""
    few = Budget(seconds=1e6, trials=30, trials_per_kernel=1)
    tuning = TuningSession(model, "cpu", options, few, clock=no_clock)
    log = run_to_end(tuning, NullRunner(made_up_seconds))
    items = [item for batch, _ in log for item in batch["items"]]
    return {label for i in items if i["kind"] == "whole" for label in i["labels"]}


def test_who_must_fuse_never_runs_the_plan_without_fusion(model: Model) -> None:
    """A pin that demands one kernel for two nodes keeps what breaks it out."""
    add = next(node for node in model.graph.nodes if node.op == "add")
    (tanh,) = (n for n in model.graph.nodes if add.outputs[0] in n.inputs)
    pair = (add.name, tanh.name)
    apart, together = (Pin(fuse=fuse, nodes=pair) for fuse in (False, True))
    assert "unfused" in _labels(model, Options(pins=(apart,)))
    assert "unfused" not in _labels(model, Options(pins=(together,)))


def test_the_forecast_says_what_a_run_would_take(
    model: Model, finished: Finished
) -> None:
    """Kernels, runs and seconds, without a device; known kernels cost one run less."""
    told = through_json(session_of(model).forecast())
    assert told["distinct_kernels"] == len(told["kernels"]) > 0
    assert 0 < told["trials"] <= told["budget_trials"]
    assert told["known_kernels"] == 0
    assert all(row["schedules"] >= 1 for row in told["kernels"])
    tuning, log = finished
    again = session_of(model, results_by_key(log)).forecast(tuning.toolchain)
    assert again["known_kernels"] == again["distinct_kernels"]
