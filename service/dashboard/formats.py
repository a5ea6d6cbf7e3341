"""Numbers as people read them, the same on every page and in the terminal."""

from __future__ import annotations

import math
from typing import Final

_SECONDS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))
_BYTES: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
NO_FIGURE: Final = "\N{EN DASH}"


def _significant(value: float) -> str:
    """Three significant digits without an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 12)}f}"


def duration(seconds: float | None) -> str:
    """Time with the unit that fits: `0.0000123` is `12.3 µs`.

    Args:
        seconds: time in seconds, or None where there is no figure.
    """
    if seconds is None or not math.isfinite(seconds):
        return NO_FIGURE
    if seconds == 0:
        return "0 s"
    for scale, unit in _SECONDS:
        if abs(seconds) >= scale:
            return f"{_significant(seconds / scale)} {unit}"
    return f"{seconds:.2g} s"


def clock(seconds: float | None) -> str:
    """Time left or elapsed for a person: `95` is `1 min 35 s`."""
    if seconds is None or not math.isfinite(seconds):
        return NO_FIGURE
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def size(count: float | None) -> str:
    """Bytes in binary units: `1536` is `1.50 KiB`."""
    if count is None or not math.isfinite(count):
        return NO_FIGURE
    for scale, unit in _BYTES:
        if abs(count) >= scale:
            return f"{_significant(count / scale)} {unit}"
    return f"{count:.0f} B"


def percent(fraction: float | None) -> str:
    """A fraction as per cent: `0.0123` is `1.23 %`, and an exact 0 is `0 %`."""
    if fraction is None or not math.isfinite(fraction):
        return NO_FIGURE
    value = fraction * 100
    if value == 0:
        return "0 %"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2  # noqa: PLR2004
    return f"{value:.{digits}f} %"


def ratio(value: float | None) -> str:
    """A speed-up or other quotient: `1.234` is 1.23 times."""
    if value is None or not math.isfinite(value):
        return NO_FIGURE
    return f"{value:.2f}\N{MULTIPLICATION SIGN}"


def count(value: float | None) -> str:
    """A whole number with thin spaces between thousands."""
    return NO_FIGURE if value is None else f"{value:,.0f}".replace(",", "\u202f")


def many(value: float | None, noun: str) -> str:
    """A number with what it counts: `1 kernel`, `2 kernels`."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"
