"""Plans and machines as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.cli import output
from service.dashboard.contests import row_label, whole_note
from service.dashboard.formats import count, duration, percent, ratio, size

MAX_ROWS: Final = 30
"""Kernels of the table; the JSON has them all."""

MAX_NAMES: Final = 3

Json = Mapping[str, Any]


def show_plan(plan: Json) -> None:
    """Print the summary of a plan, its costliest kernels and its baselines."""
    output.facts(_summary(plan))
    kernels = plan["kernels"]
    shown = sorted(kernels, key=lambda k: -_seconds(k))[:MAX_ROWS]
    chosen = {kernel["name"] for kernel in shown}
    measured = any(kernel.get("measurement") for kernel in kernels)
    times = (">predicted", ">measured") if measured else (">predicted",)
    output.table(
        ("kernel", "family", "nodes", *times, ">of all", ">traffic", "bound by"),
        [
            _kernel_row(k, plan, measured=measured)
            for k in kernels
            if k["name"] in chosen
        ],
    )
    if len(kernels) > len(shown):
        output.line(f"{len(kernels) - len(shown)} cheaper kernels not shown (--json).")
    _show_baselines(plan)


def _summary(plan: Json) -> dict[str, str]:
    space = plan["candidate_space"]
    timing = plan.get("timing", {})
    seconds = sum(v for v in timing.values() if isinstance(v, int | float))
    facts = {
        "plan": plan["plan_key"],
        "target": f"{plan['target']['id']} ({plan['evidence']})",
        "objective": f"{duration(plan['objective_seconds'])}, bound "
        f"{duration(plan['bound_seconds'])}, gap {percent(plan['gap'])}",
        "kernels": count(len(plan["kernels"])),
        "traffic": size(plan["traffic_bytes"]),
        "peak memory": size(plan["peak_memory_bytes"]),
        "candidates": f"{count(space['candidates'])} {space['legality']}"
        + ("" if space["complete"] else ", not complete"),
    }
    if seconds:
        facts["planned in"] = duration(seconds)
    return facts


def _seconds(kernel: Json) -> float:
    measured = kernel.get("measurement")
    return float(measured["seconds"] if measured else kernel["estimate"]["seconds"])


def _kernel_row(kernel: Json, plan: Json, *, measured: bool) -> tuple[str, ...]:
    whole = plan["objective_seconds"]
    timed = kernel.get("measurement") or {}
    times = (duration(kernel["estimate"]["seconds"]), duration(timed.get("seconds")))
    return (
        kernel["name"],
        kernel["family"],
        shorten(kernel["nodes"]),
        *times[: 2 if measured else 1],
        percent(_seconds(kernel) / whole if whole else None),
        size(kernel["traffic_bytes"]),
        str(kernel["estimate"].get("bound_by", "")),
    )


def shorten(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - MAX_NAMES
    text = ", ".join(names[:MAX_NAMES])
    return f"{text} +{more}" if more > 0 else text


def _show_baselines(plan: Json) -> None:
    objective = plan["objective_seconds"]
    rows = [
        (
            name,
            duration(b["objective_seconds"]),
            ratio(b["objective_seconds"] / objective if objective else None),
            count(b["kernels"]),
            size(b["traffic_bytes"]),
        )
        for name, b in plan["baselines"].items()
    ]
    if rows:
        output.table(("instead", ">time", ">slower", ">kernels", ">traffic"), rows)


_WHOLE: Final = {
    "plan": "this plan",
    "untuned": "before tuning",
    "unfused": "without fusion",
    "alone": "this plan, alone",
    "reference": "ONNX Runtime, alone",
}


def show_measured(plan: Json) -> None:
    """Print whole runs of the plan and of what it is compared with.

    Plans were timed by turns, and ONNX Runtime alone: it is compared with the plan
    alone, where that was timed, too.
    """
    measured = plan.get("measured") or {}
    together = measured.get("plan")
    own = dict.fromkeys(measured, together) | {
        name: measured.get("alone") or together for name in ("alone", "reference")
    }
    rows = [
        (
            _WHOLE.get(name, name),
            duration(found["seconds"]),
            f"{duration(found['low_seconds'])} to {duration(found['high_seconds'])}",
            ratio(_quotient(found, own[name])),
        )
        for name, found in measured.items()
        if found
    ]
    if rows:
        output.table(("measured", ">time", ">95 % interval", ">against ours"), rows)


def _quotient(found: Json, own: Json | None) -> float | None:
    return found["seconds"] / own["seconds"] if own and own["seconds"] else None


def show_partitions(rows: Sequence[Json]) -> None:
    """Print the plans that a tuning run timed as wholes, side by side."""
    if len(rows) < 2:  # noqa: PLR2004 - one alone is the plan itself
        return
    figures = (">kernels", ">differing", ">predicted", ">by kernels", ">measured")
    output.table(
        ("run whole", *figures, ">95 % interval", "note"),
        [_plan_row(row) for row in rows],
    )


def _plan_row(row: Json) -> tuple[str, ...]:
    whole, interval = row["whole"] or {}, ""
    if whole.get("seconds"):
        low, high = whole["low_seconds"], whole["high_seconds"]
        interval = f"{duration(low)} to {duration(high)}"
    return (
        row_label(row) + (" (kept)" if row["kept"] else ""),
        count(row["kernels"]),
        count(row["differing"]),
        duration(row["predicted_seconds"]),
        duration(row["kernel_seconds"]),
        duration(whole.get("seconds")),
        interval,
        whole_note(row["whole"]),
    )
