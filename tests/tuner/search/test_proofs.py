"""What a tuning run proves of its plan, and in which order it asks."""

from __future__ import annotations

import math

import pytest

from tests.tuner.search.conftest import (
    PATIENT,
    Log,
    body_of,
    made_up_seconds,
    run_to_end,
    session_of,
    through_json,
)
from tuner.assembly import kernel_form, kernel_sources
from tuner.ir.graph import Region
from tuner.model import Model
from tuner.plan import GENERATED, Family
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

Finished = tuple[TuningSession, Log]


def test_with_budget_enough_the_partition_is_proved(
    model: Model, finished: Finished
) -> None:
    """Nothing unmeasured could win: the certificate says so, and the plan holds it."""
    tuning, _ = finished
    refinement = body_of(tuning)["refinement"]
    assert refinement["measured_optimal"]
    assert refinement["measured_gap"] == pytest.approx(0, abs=1e-6)
    assert refinement["confidence"] == 0.95
    assert refinement["trials"] == tuning.progress()["trials"]
    assert tuning.progress()["measured_optimal"]
    assert tuning.partial_reason == ""


def test_the_proof_holds_against_the_true_times(
    model: Model, runner: NullRunner
) -> None:
    """With every kernel at its true time, no partition beats the proved one."""
    tuning = session_of(model, budget=Budget(seconds=1e6, trials=300))
    run_to_end(tuning, runner)
    plan = tuning.plan()
    mine = sum(k.measurement.seconds for k in plan.kernels if k.measurement)

    def true(region: Region, family: Family) -> float:
        priced = tuning.planner.pricer.priced(region, family)
        if priced is None:
            return math.inf
        form = kernel_form(model.graph, region, family)
        state = tuning._run.kernels.get(form.fingerprint)
        if state is not None and state.best is not None:
            return state.best.measurement.seconds
        generated = family in GENERATED
        source = kernel_sources(form, priced.schedule)[0] if generated else None
        return made_up_seconds(MeasureRequest(graph=form.graph, source=source))

    best = tuning.planner.solve(true).partition.objective_seconds
    assert mine <= best * (1 + 1e-9)


def test_a_short_budget_leaves_a_stated_gap(model: Model, runner: NullRunner) -> None:
    """What was not proved is not claimed."""
    tuning = session_of(model, budget=Budget(seconds=1e6, trials=5))
    run_to_end(tuning, runner)
    refinement = body_of(tuning)["refinement"]
    assert not refinement["measured_optimal"]
    gap = refinement["measured_gap"]
    assert gap is None or 0 < gap <= 1
    assert tuning.is_exhausted


def test_a_proof_leans_on_what_matters_first(model: Model, runner: NullRunner) -> None:
    """In a batch of a proof, what is expected to raise the bound most comes first."""
    tuning = session_of(model, budget=PATIENT)
    checked = 0
    while (batch := tuning.propose()) is not None:
        names = [i["kernel"] for i in batch["items"] if i["kind"] == "kernel"]
        if tuning.stage == "prove" and names:
            run = tuning._run
            hopes = run.costs.hopes([s for s in run.kernels.values() if s.uses])
            rises = [hopes[name] for name in names]
            assert rises == sorted(rises, reverse=True)
            waiting = [s for s in run.kernels.values() if s.uses and s.best is None]
            assert rises[0] >= max(hopes[s.name] for s in waiting if not s.has_failed)
            checked += 1
        tuning.observe(batch, through_json(tuning.measure(batch, runner)))
    assert checked


def test_the_last_runs_of_a_proof_count(model: Model, runner: NullRunner) -> None:
    """When the budget ends, the bound is that of everything that was measured."""
    for trials in range(8, 40, 6):
        tuning = session_of(model, budget=Budget(seconds=1e6, trials=trials))
        kinds: list[str] = []
        while (batch := tuning.propose()) is not None:
            if tuning.stage == "prove":
                kinds += [item["kind"] for item in batch["items"]]
            tuning.observe(batch, through_json(tuning.measure(batch, runner)))
        assert kinds[-1:] != ["kernel"]
        assert tuning.progress()["trials"] <= trials
