"""Several runs beside each other: where each ended, and how soon it was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.dashboard.jobs import JobLine

Json = Mapping[str, Any]

MAX_RUNS: Final = 6
"""Curves in one drawing; a person tells no more apart."""

NEAR: Final = 1.05
"""A run is near its end when its plan takes at most so many times the final time."""

_TRIAL, _ELAPSED, _BEST, _GAP = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    Attributes:
        first_seconds: time of the plan after the first trial.
        last_seconds: time of the plan at the end; None before the first trial.
        near_trial: the trial from which on the plan was within 5 % of the last one.
        near_elapsed_seconds: the same as time since submission.
        against: the last time over that of the first run.
    """

    line: JobLine
    first_seconds: float | None
    last_seconds: float | None
    last_gap: float | None
    near_trial: int | None
    near_elapsed_seconds: float | None
    against: float | None


def compared_runs(lines: Sequence[JobLine], histories: Sequence[Json]) -> list[Run]:
    """Runs in the order in which they were chosen; the first is what others face."""
    found: list[Run] = []
    for line, history in zip(lines, histories, strict=True):
        points = history["points"]
        last = points[-1][_BEST] if points else None
        near = _near(points)
        base = found[0].last_seconds if found else last
        found.append(
            Run(
                line=line,
                first_seconds=points[0][_BEST] if points else None,
                last_seconds=last,
                last_gap=points[-1][_GAP] if points else None,
                near_trial=None if near is None else int(near[_TRIAL]),
                near_elapsed_seconds=None if near is None else near[_ELAPSED],
                against=last / base if last and base else None,
            )
        )
    return found


def _near(points: Sequence[Sequence[float]]) -> Sequence[float] | None:
    """The first point from which on the plan stayed near its last time."""
    found = None
    for point in reversed(points):
        if not 1 / NEAR <= point[_BEST] / points[-1][_BEST] <= NEAR:
            break
        found = point
    return found
