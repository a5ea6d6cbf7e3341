"""A long curve in few points that looks the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The best plan after a trial.

    Attributes:
        low_share, high_share: ends of the trial's 95 % interval over its median.
    """

    trial: int
    elapsed_seconds: float
    best_seconds: float
    gap: float | None
    low_share: float | None = None
    high_share: float | None = None


def thin(points: Sequence[Point], limit: int) -> tuple[Point, ...]:
    """At most `limit` points: of each stretch its ends and its extremes.

    What a person sees of a line in as many pixels is exactly that, so that nothing
    visible is lost (the M4 aggregation of U. Jugel et al., VLDB 7(10), 2014).
    """
    if len(points) <= limit:
        return tuple(points)
    stretches = max(1, limit // 4)
    width = len(points) / stretches
    kept: set[int] = set()
    for stretch in range(stretches):
        indices = range(int(stretch * width), int((stretch + 1) * width))
        kept |= {indices[0], indices[-1]}
        kept.add(min(indices, key=lambda i: points[i].best_seconds))
        kept.add(max(indices, key=lambda i: points[i].best_seconds))
    return tuple(points[i] for i in sorted(kept))
