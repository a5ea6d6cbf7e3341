"""Runs as lines of a table, as a plot, and what known kernels saved."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from benchmarks.tuning.running import Moment, Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]
HEAD: Final = (
    "| model | budget s | wall s | runs | kernels measured | known before | candidates "
    "| measured gap | winner | whole plans, ms | ended |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def line(row: Tuned) -> str:
    """One run as a line of a Markdown table."""
    gap = "unknown" if row.measured_gap is None else f"{row.measured_gap:.1%}"
    whole = ", ".join(f"{n} {s * 1e3:.2f}" for n, s in row.whole_seconds.items())
    return (
        f"| {row.model} | {row.budget_seconds:.0f} | {row.wall_seconds:.0f} "
        f"| {row.trials} | {row.kernels_measured} "
        f"| {row.kernels_known} ({row.spared_seconds:.1f} s) "
        f"| {row.candidates} | {gap} | {row.winner} | {whole} "
        f"| {row.partial_reason or 'complete'} |"
    )


def plot(rows: Sequence[Tuned]) -> str:
    """The proved gap over the device time spent, one line for each run, as SVG."""
    width, height, left, low = 720, 400, 60, 340
    longest = max((m.seconds for row in rows for m in row.timeline), default=1.0) or 1.0

    def place(moment: Moment) -> str:
        gap = min(moment.measured_gap or 0.0, 1.0)
        x = left + (width - left - 20) * moment.seconds / longest
        return f"{x:.1f},{low - (low - 20) * gap:.1f}"

    parts = []
    for number, row in enumerate(rows):
        known = [m for m in row.timeline if m.measured_gap is not None]
        colour = f"hsl({360 * number // max(len(rows), 1)},70%,40%)"
        points = " ".join(map(place, known))
        end = _dot(points.rpartition(" ")[2], colour) if known else ""
        title = f"{row.model}, {row.budget_seconds:.0f} s"
        title += "" if known else ": no gap was proved"
        parts.append(
            f'<polyline fill="none" stroke="{colour}" points="{points}"/>{end}'
            f'<text x="{left + 10}" y="{35 + 16 * number}" fill="{colour}">'
            f"{title}</text>"
        )
    axes = "".join(
        f'<text x="8" y="{low - (low - 20) * share + 4:.0f}">{share:.0%}</text>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
        f'<path d="M{left},20 V{low} H{width - 20}" fill="none" stroke="black"/>{axes}'
        f'<text x="{left}" y="{low + 20}">0 s</text>'
        f'<text x="{width - 60}" y="{low + 20}">{longest:.0f} s</text>'
        f'<text x="{left}" y="{low + 40}">measured gap over device time and solving'
        f"</text>{''.join(parts)}</svg>\n"
    )


def _dot(point: str, colour: str) -> str:
    x, y = point.split(",")
    return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'


def saving(name: str, alone: Tuned, after: Tuned) -> Json:
    """What known kernels saved.

    Returns:
        `spared_seconds` that the known runs took and `runs_known` of them,
        `seconds_sooner` by which the second run had proved the gap that the first one
        proved in the end (None where one of them never did), and the difference of the
        whole runs.
    """
    gap = alone.timeline[-1].measured_gap if alone.timeline else None
    first, second = _reached(alone, gap), _reached(after, gap)
    sooner = None if first is None or second is None else first - second
    return {
        "model": name,
        "spared_seconds": after.spared_seconds,
        "runs_known": after.runs_known,
        "kernels_known": after.kernels_known,
        "seconds_sooner": sooner,
        "seconds": alone.wall_seconds - after.wall_seconds,
        "trials": alone.trials - after.trials,
    }


def _reached(row: Tuned, gap: float | None) -> float | None:
    """When a run had proved as small a gap; None: never, or there is none."""
    if gap is None:
        return None
    return next(
        (
            moment.seconds
            for moment in row.timeline
            if moment.measured_gap is not None and moment.measured_gap <= gap
        ),
        None,
    )


def told_saving(saved: Json) -> str:
    """What known kernels saved, in a sentence."""
    sooner = saved["seconds_sooner"]
    same = (
        "the gap that it proves alone was not reached"
        if sooner is None
        else f"the gap that it proves alone was reached {sooner:.1f} s sooner"
    )
    return (
        f"{saved['model']}: {saved['runs_known']} runs of {saved['kernels_known']} "
        f"kernels were known and spared {saved['spared_seconds']:.1f} s; {same}; the "
        f"whole run took {saved['seconds']:+.1f} s less"
    )


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
