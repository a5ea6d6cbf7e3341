"""Whole plans side by side: what was expected of them, what they took, who was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.dashboard.kernels import Names, user_names

Json = Mapping[str, Any]

_PLANS: Final = {
    "plan": "best by its kernels",
    "untuned": "before tuning",
    "unfused": "without fusion",
    "incumbent": "stored before",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A kernel that the first of the plans does not have."""

    family: str
    nodes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One plan of a contest.

    Attributes:
        against: its measured time / that of the plan that was kept.
        note: why its time says little, or why there is none; empty where it is sound.
        foreign: the largest kernels that the first line's plan does not have.
        more: how many others there are.
    """

    label: str
    kernels: int
    predicted_seconds: float | None
    kernel_seconds: float | None
    seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    against: float | None
    note: str
    is_kept: bool
    foreign: tuple[Foreign, ...]
    more: int


def plan_label(label: str) -> str:
    """How a plan of a tuning run is called: `plan-2` is the second best partition."""
    rank = label.removeprefix("plan-")
    return _PLANS.get(label, f"partition {rank}" if rank != label else label)


def row_label(row: Json) -> str:
    """What a row of the API is called; equal plans share one."""
    return " = ".join(plan_label(label) for label in row["labels"])


def whole_note(whole: Json | None) -> str:
    """Why a whole run says little, or that there was none."""
    if whole is None:
        return "not run"
    if whole["failure"]:
        return str(whole["failure"])
    return "disturbed" if whole["contended"] else ""


def plan_lines(rows: Sequence[Json], names: Names) -> tuple[PlanLine, ...]:
    """Rows of the API, ready to be shown.

    Args:
        rows: plans of a contest.
        names: canonical id -> the user's names; may be empty.
    """
    kept = next((row["whole"] for row in rows if row["kept"]), None)
    own = (kept or {}).get("seconds")
    return tuple(_line(row, names, own) for row in rows)


def _line(row: Json, names: Names, own: float | None) -> PlanLine:
    whole = row["whole"] or {}
    seconds = whole.get("seconds")
    foreign = tuple(
        Foreign(
            family=kernel["family"],
            nodes=", ".join(user_names(kernel["nodes"], names)),
        )
        for kernel in row["kernels_only_here"]
    )
    return PlanLine(
        label=row_label(row),
        kernels=row["kernels"],
        predicted_seconds=row["predicted_seconds"],
        kernel_seconds=row["kernel_seconds"],
        seconds=seconds,
        low_seconds=whole.get("low_seconds") if seconds else None,
        high_seconds=whole.get("high_seconds") if seconds else None,
        against=seconds / own if seconds and own else None,
        note=whole_note(row["whole"]),
        is_kept=row["kept"],
        foreign=foreign,
        more=max(0, row["differing"] - len(foreign)),
    )
