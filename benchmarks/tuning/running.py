"""One tuning run, and what is told of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.tuning.keeping import Log, OutOfTime, ended_by
from tuner.model import Model
from tuner.plan import Options
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from tuner.runtime.requests import Measures

Json = dict[str, Any]
Known = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How far a run was when it had spent so much.

    Attributes:
        seconds: device time and solving, as the budget counts them.
        measured_gap: how far the best plan may be from the best; None: not known yet.
    """

    seconds: float
    trials: int
    stage: str
    best_seconds: float
    measured_gap: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """One run.

    Attributes:
        wall_seconds: of everything, the first solve and whole plans too.
        trials: kernel runs.
        kernels_measured: distinct kernels that were run.
        kernels_known: distinct kernels that an earlier run had measured.
        runs_known: of them, each with one schedule.
        spared_seconds: what those took when they were measured.
        candidates: of the partition problem.
        whole_seconds: time of each whole plan, by label; failed ones are left out.
    """

    model: str
    budget_seconds: float
    wall_seconds: float
    trials: int
    kernels_measured: int
    kernels_known: int
    runs_known: int
    spared_seconds: float
    candidates: int
    kernels: int
    measured_optimal: bool
    measured_gap: float | None
    winner: str
    partial_reason: str
    contended: int
    failures: Mapping[str, int]
    whole_seconds: Mapping[str, float]
    timeline: tuple[Moment, ...]


def tune(
    name: str,
    model: Model,
    opened: Callable[[], AbstractContextManager[Measures]],
    budget: Budget,
    known: Known,
    log: Log,
    *,
    clock: Callable[[], float] = perf_counter,
) -> tuple[Tuned, Known]:
    """Tune a model; the run, and what it measured by measurement key.

    Args:
        name: of the run.
        model: what is tuned.
        opened: gives the device that measures.
        budget: of the run.
        known: what earlier runs measured.
        log: where results are kept, and found.
        clock: what the costs of measuring are read from.

    Raises:
        OutOfTime: the log's time was up before the run was over.
    """
    start = perf_counter()
    found: Known = {}
    timeline: list[Moment] = []
    kept = log.run(f"{name}, {budget.seconds:g} s, {budget.trials} trials")
    spent, before = 0.0, kept["wall_seconds"]
    with opened() as runner:
        session = TuningSession(model, "cpu", Options(), budget, known, clock=clock)
        while (batch := session.propose()) is not None:
            results = _results(session, batch, runner, kept, log)
            session.observe(batch, results)
            spent += sum(float(r.get("cost_seconds", 0.0)) for r in results)
            found.update(
                (item["key"], result)
                for item, result in zip(batch["items"], results, strict=True)
                if item["kind"] == "kernel"
            )
            timeline.append(_moment(session, spent))
            kept["wall_seconds"] = before + perf_counter() - start
    log.write()
    wall = kept["wall_seconds"]
    return _row(name, session, budget, wall, found, tuple(timeline)), found


def _results(
    session: TuningSession, batch: Json, runner: Measures, kept: Json, log: Log
) -> list[Json]:
    """Of a batch: from the log, or else from the device, and into the log."""
    index = batch["index"]
    if index < len(kept["batches"]):
        stored: list[Json] = kept["batches"][index]
        return stored
    if monotonic() >= log.end:
        log.write()
        raise OutOfTime
    with ended_by(log.end):
        results = session.measure(batch, runner)
    kept["batches"].append(json.loads(json.dumps(results)))
    log.write()
    return results


def _moment(session: TuningSession, spent: float) -> Moment:
    told = session.progress()
    return Moment(
        seconds=spent,
        trials=told["trials"],
        stage=told["stage"],
        best_seconds=told["best_seconds"],
        measured_gap=told["measured_gap"],
    )


def _row(
    name: str,
    session: TuningSession,
    budget: Budget,
    wall: float,
    found: Known,
    timeline: tuple[Moment, ...],
) -> Tuned:
    plan = session.plan()
    refinement = plan.refinement
    failures: dict[str, int] = {}
    for result in found.values():
        if result["failure"]:
            failures[result["failure"]] = failures.get(result["failure"], 0) + 1
    served = session.served
    return Tuned(
        model=name,
        budget_seconds=budget.seconds,
        wall_seconds=wall,
        trials=session.progress()["trials"],
        kernels_measured=len({result["kernel"] for result in found.values()}),
        kernels_known=served["kernels"],
        runs_known=served["runs"],
        spared_seconds=served["seconds"],
        candidates=plan.partition.candidate_space.candidates,
        kernels=len(plan.kernels),
        measured_optimal=refinement is not None and refinement.measured_optimal,
        measured_gap=None if refinement is None else refinement.measured_gap,
        winner=session.winner,
        partial_reason=session.partial_reason,
        contended=sum(bool(result["contended"]) for result in found.values()),
        failures=failures,
        whole_seconds={
            label: m.seconds for label, m in plan.whole.items() if not m.failure
        },
        timeline=timeline,
    )
