"""The few numbers that stand at the head of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.dashboard.formats import clock, count, duration, percent, ratio, size

if TYPE_CHECKING:
    from service.dashboard.jobs import JobLine

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
            note=f"{count(plan['candidate_space']['candidates'])} candidates",
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
        note = f"{duration(low)} to {duration(high)}"
        return Figure(label="Measured", value=duration(whole["seconds"]), note=note)
    seconds = plan["objective_seconds"]
    return Figure(label="Predicted", value=duration(seconds), note=plan["evidence"])


def _comparisons(plan: Json) -> tuple[Figure, ...]:
    measured = plan.get("measured") or {}
    whole = measured.get("plan")
    if whole:
        rivals = (("unfused", "Without fusion"), ("reference", "ONNX Runtime"))
        return tuple(
            Figure(
                label=label,
                value=duration(measured[name]["seconds"]),
                note=_speed(measured[name]["seconds"] / whole["seconds"]),
            )
            for name, label in rivals
            if measured.get(name) and whole["seconds"]
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


def _speed(quotient: float) -> str:
    """How our time stands against another: `1.8 times` faster or slower."""
    if quotient >= 1:
        return f"ours is {ratio(quotient)} as fast"
    return f"ours takes {ratio(1 / quotient)} as long" if quotient else ""


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


def cache_figures(cache: Json) -> tuple[Figure, ...]:
    """What runs now, and what is stored."""
    jobs, plans = cache["jobs"], cache["plans"]
    ended = f"{count(jobs['succeeded'])} succeeded"
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
    )
