"""The few numbers that stand at the head of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.dashboard.formats import (
    NO_FIGURE,
    clock,
    count,
    duration,
    many,
    percent,
    ratio,
    size,
)

if TYPE_CHECKING:
    from service.dashboard.accuracy import Quality
    from service.dashboard.jobs import JobLine
    from service.dashboard.kernels import KernelRow
    from service.dashboard.metrics import Counters

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its name, and what it rests on."""

    label: str
    value: str
    note: str = ""


def plan_figures(plan: Json) -> tuple[Figure, ...]:
    """Time, comparison, certificate and memory of a plan."""
    return (
        _time(plan),
        *_comparisons(plan),
        Figure(
            label="Gap",
            value=percent(plan["gap"]),
            note=f"bound {duration(plan['bound_seconds'])}",
        ),
        Figure(
            label="Kernels",
            value=count(len(plan["kernels"])),
            note=many(plan["candidate_space"]["candidates"], "candidate"),
        ),
        Figure(
            label="Traffic",
            value=size(plan["traffic_bytes"]),
            note=f"peak {size(plan['peak_memory_bytes'])}",
        ),
    )


def _time(plan: Json) -> Figure:
    whole = (plan.get("measured") or {}).get("plan")
    if whole:
        low, high = whole["low_seconds"], whole["high_seconds"]
        note = f"{duration(low)} to {duration(high)}{_disturbed(whole)}"
        return Figure(label="Measured", value=duration(whole["seconds"]), note=note)
    seconds = plan["objective_seconds"]
    return Figure(label="Predicted", value=duration(seconds), note=plan["evidence"])


def _comparisons(plan: Json) -> tuple[Figure, ...]:
    measured = plan.get("measured") or {}
    whole = measured.get("plan")
    if whole:
        alone = measured.get("alone") or whole
        rivals = (
            ("unfused", "Without fusion", whole),
            ("reference", "ONNX Runtime", alone),
        )
        return tuple(
            Figure(
                label=label,
                value=duration(measured[name]["seconds"]),
                note=_against(measured[name], ours),
            )
            for name, label, ours in rivals
            if measured.get(name) and ours["seconds"]
        )
    unfused = plan["baselines"].get("unfused")
    objective = plan["objective_seconds"]
    if not unfused or not objective:
        return ()
    return (
        Figure(
            label="Without fusion",
            value=duration(unfused["objective_seconds"]),
            note=_speed(unfused["objective_seconds"] / objective),
        ),
    )


def _against(rival: Json, ours: Json) -> str:
    """A comparison, unless other processes had a part in one of the times."""
    if rival.get("contended") or ours.get("contended"):
        return "disturbed: not compared"
    return _speed(rival["seconds"] / ours["seconds"])


def _disturbed(measured: Json) -> str:
    """What a reader must know before comparing a time."""
    return ", disturbed" if measured.get("contended") else ""


def _speed(quotient: float) -> str:
    """How our time stands against another: `1.8 times` faster or slower."""
    if quotient >= 1:
        return f"ours {ratio(quotient)} as fast"
    return f"ours {ratio(1 / quotient)} as long" if quotient else ""


def job_figures(job: JobLine) -> tuple[Figure, ...]:
    """How far a job is."""
    return (
        Figure(label="Best so far", value=duration(job.best_seconds)),
        Figure(label="Trials", value=count(job.trials)),
        Figure(label="Elapsed", value=clock(job.elapsed_seconds)),
        Figure(
            label="Left at most",
            value="done" if job.is_over else clock(job.remaining_seconds),
        ),
    )


def cache_figures(cache: Json, counters: Counters) -> tuple[Figure, ...]:
    """What runs now, and what is stored."""
    jobs, plans = cache["jobs"], cache["plans"]
    ended = f"{count(jobs['succeeded'])} succeeded"
    lookups = sum(counters.lookups.values())
    return (
        Figure(label="Running", value=count(jobs["running"])),
        Figure(label="Queued", value=count(jobs["queued"])),
        Figure(
            label="Ended",
            value=count(sum(jobs[s] for s in ("succeeded", "partial", "cancelled"))),
            note=ended,
        ),
        Figure(label="Failed", value=count(jobs["failed"])),
        Figure(
            label="Plans stored",
            value=count(sum(plans.values())),
            note=f"{count(plans.get('measured', 0))} measured",
        ),
        Figure(label="Measurements", value=count(cache["measurements"])),
        Figure(
            label="Hit rate",
            value=percent(counters.hit_rate),
            note=f"of {many(lookups, 'lookup')}" if lookups else "no lookup yet",
        ),
    )


def device_figures(listed: Json) -> tuple[Json, ...]:
    """Every live worker with its device."""
    return tuple(
        {**worker, "target": device["id"]}
        for device in listed["devices"]
        for worker in device["workers"]
    )


def kernel_figures(row: KernelRow) -> tuple[Figure, ...]:
    """Time, error, share and roof of one kernel."""
    measured = Figure(label="Measured", value=duration(row.measured_seconds))
    if row.low_seconds is not None:
        note = f"{duration(row.low_seconds)} to {duration(row.high_seconds)}"
        measured = Figure(label="Measured", value=measured.value, note=note)
    return (
        measured,
        Figure(
            label="Predicted",
            value=duration(row.predicted_seconds),
            note=f"off by {ratio(row.ratio)}" if row.ratio else "",
        ),
        Figure(label="Share of the plan", value=percent(row.share)),
        Figure(
            label="Of its roof",
            value=percent(row.roof),
            note=f"bound by {row.bound_by}" if row.bound_by else "",
        ),
        Figure(label="Traffic", value=size(row.traffic_bytes)),
        Figure(
            label="Registers",
            value=count(row.registers),
            note=f"{size(row.spill_bytes)} spilled" if row.spill_bytes else "no spills",
        ),
    )


def trial_figures(trial: Json, times: Sequence[float]) -> tuple[Figure, ...]:
    """Time of one trial, and how it stands among those of its kernel."""
    seconds, predicted = trial["seconds"], trial["predicted_seconds"]
    interval = ""
    if trial["low_seconds"] and trial["high_seconds"]:
        low, high = duration(trial["low_seconds"]), duration(trial["high_seconds"])
        interval = f"{low} to {high}"
    figures = [
        Figure(label="Measured", value=duration(seconds), note=interval),
        Figure(
            label="Predicted",
            value=duration(predicted),
            note=f"off by {ratio(seconds / predicted)}"
            if seconds and predicted
            else "",
        ),
    ]
    if seconds and times:
        rank = sum(time < seconds for time in times) + 1
        against = f"fastest {duration(times[0])}"
        place = f"{rank} of {len(times)}"
        figures.append(Figure(label="Rank of its kernel", value=place, note=against))
    figures.append(Figure(label="Uses in the model", value=count(trial["uses"])))
    return tuple(figures)


def quality_figures(groups: Sequence[Quality]) -> tuple[Figure, ...]:
    """How well all trials together were predicted."""
    if not groups:
        return ()
    whole = groups[0]
    return (
        Figure(label="Mean error", value=percent(whole.error), note="of measured time"),
        Figure(
            label="Rank correlation",
            value=NO_FIGURE if whole.rank is None else f"{whole.rank:.3f}",
            note="Spearman",
        ),
        Figure(
            label="Bias",
            value=ratio(whole.bias),
            note="measured over predicted",
        ),
        Figure(label="Within 1.5\N{MULTIPLICATION SIGN}", value=percent(whole.within)),
        Figure(label="Trials", value=count(whole.trials)),
    )


def timeline_figures(told: Json) -> tuple[Figure, ...]:
    """How a device spent its time."""
    jobs = told["jobs"]
    trials = sum(job["trials"] for job in jobs)
    contended = sum(job["contended"] for job in jobs)
    waits = [gap for gap in told["gaps"] if gap["reason"] == "waiting"]
    waited = sum(gap["end"] - gap["begin"] for gap in waits)
    return (
        Figure(
            label="Busy",
            value=percent(told["busy_share"]),
            note=f"of {clock(told['seconds'])}",
        ),
        Figure(label="Jobs", value=count(len(jobs))),
        Figure(label="Trials", value=count(trials)),
        Figure(
            label="Disturbed",
            value=count(contended),
            note=f"{percent(contended / trials)} of trials" if trials else "",
        ),
        Figure(
            label="Killed",
            value=count(sum(job["killed"] for job in jobs)),
            note="the process was ended",
        ),
        Figure(
            label="Waited for a worker",
            value=clock(waited),
            note=f"in {many(len(waits), 'gap')}",
        ),
    )
