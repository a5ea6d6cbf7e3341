"""Samples as dots on a line: a drawing that needs no script."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.dashboard.formats import duration

WIDTH: Final = 640
HEIGHT: Final = 72
_MARGIN: Final = 12
_ROWS: Final = 6
_MAX_DOTS: Final = 400
_FAR: Final = 4.0
"""Where the longest run takes so many times the shortest, the axis is logarithmic:
one run that was interrupted would press all others into one dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Dots, the median's place, and the two ends of the axis, in drawing units."""

    dots: tuple[tuple[float, float], ...]
    median: float
    low: str
    high: str
    middle: str
    text: str
    width: int = WIDTH
    height: int = HEIGHT


def strip(samples: Sequence[float]) -> Strip | None:
    """A drawing of all samples; None without any."""
    if not samples:
        return None
    ordered = sorted(samples)
    low, high = ordered[0], ordered[-1]
    middle = statistics.median(ordered)
    is_log = low > 0 and high > _FAR * low

    def along(value: float) -> float:
        return math.log(value / low) if is_log else value - low

    room = along(high) or 1.0

    def place(value: float) -> float:
        return round(_MARGIN + along(value) / room * (WIDTH - 2 * _MARGIN), 1)

    dots = tuple(
        (place(value), 10.0 + 7.0 * (index % _ROWS))
        for index, value in enumerate(samples[:_MAX_DOTS])
    )
    return Strip(
        dots=dots,
        median=place(middle),
        low=duration(low),
        high=duration(high),
        middle=duration(middle),
        text=f"{len(samples)} samples between {duration(low)} and {duration(high)},"
        f" median {duration(middle)}{', on a logarithmic axis' if is_log else ''}",
    )
