"""What was measured: figures by case, JSON, a table and a plot."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.peers.contention import SHARE
from benchmarks.peers.measuring import OURS, PEERS, ROOFS, Row
from tuner.runtime.timing import confidence_interval

_MICROSECONDS: Final = 1e6
_LEAST_RATIO: Final = 0.9


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """How many times faster we are, by round, with its 95 % interval."""
    each = [t / o for t, o in zip(theirs, ours, strict=True)]
    low, high = confidence_interval(each)
    return {"median": statistics.median(each), "low": low, "high": high}


def figures(row: Row) -> dict[str, Any]:
    """A row as JSON: raw samples, medians, intervals, ratios, share of the roof."""
    sides = {name: _side(row, name) for name in (OURS, *PEERS) if name in row.loads}
    timed = [name for name in PEERS if row.samples.get(name)]
    ours = row.samples.get(OURS, [])
    best = min(timed, key=lambda n: statistics.median(row.samples[n]), default=None)
    roof = _roof(row)
    bandwidth = row.moved_bytes / statistics.median(ours) if ours else None
    return {
        "case": row.case.name,
        "size": row.case.size,
        "shape": list(row.case.shape),
        "note": row.case.note,
        "moved_bytes": row.moved_bytes,
        "sides": sides,
        "best_peer": best,
        "missing": [name for name in PEERS if name not in timed],
        "ratio": ratio(row.samples[best], ours) if best and ours else None,
        "ratios": {n: ratio(row.samples[n], ours) for n in timed} if ours else {},
        "roof_bytes_per_second": roof,
        "roof_samples": {n: row.samples.get(n, []) for n in ROOFS},
        "bytes_per_second": bandwidth,
        "roof_share": bandwidth / roof if bandwidth and roof else None,
        "others": row.others,
        "repeated_rounds": row.repeated,
        "contended": row.contended,
    }


def _side(row: Row, name: str) -> dict[str, Any]:
    loaded = row.loads[name]
    samples = row.samples.get(name, [])
    found: dict[str, Any] = {**loaded, "samples": samples}
    if samples:
        low, high = confidence_interval(samples)
        found |= {"median": statistics.median(samples), "low": low, "high": high}
    return found


def _roof(row: Row) -> float | None:
    """The better of our copy kernel and the triad, of as many bytes together."""
    rates = [
        row.moved_bytes / statistics.median(row.samples[name])
        for name in ROOFS
        if row.samples.get(name)
    ]
    return max(rates, default=None)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the suite says as a whole."""
    with_ratio = [row for row in rows if row["ratio"]]
    against = {
        name: _geometric(
            [row["ratios"][name]["median"] for row in rows if name in row["ratios"]]
        )
        for name in PEERS
    }
    shares = [r["roof_share"] for r in rows if r["size"] == "large" and r["roof_share"]]
    return {
        "cases": len(rows),
        "cases_with_ratio": len(with_ratio),
        "contended": sum(bool(row["contended"]) for row in rows),
        "best_peer": _geometric([row["ratio"]["median"] for row in with_ratio]),
        "against": against,
        "surely_slower": [
            f"{row['case']}/{row['size']}"
            for row in with_ratio
            if row["ratio"]["high"] < _LEAST_RATIO
        ],
        "median_roof_share_large": statistics.median(shares) if shares else None,
        "missing": {
            name: count
            for name in PEERS
            if (count := sum(name in row["missing"] for row in rows))
        },
    }


def _geometric(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Markdown: medians in microseconds, and how we stand."""
    heads = ["case", "shape", "ours µs", *(f"{name} µs" for name in PEERS)]
    heads += ["best peer", "ratio (95 %)", "roof", "error ours / best", "exactness"]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(_cells(row))} |"


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    sides, best = row["sides"], row["best_peer"]
    yield f"{row['case']}/{row['size']}{' (contended)' if row['contended'] else ''}"
    yield "x".join(map(str, row["shape"]))
    for name in (OURS, *PEERS):
        yield _time(sides.get(name, {"failed": "missing"}))
    yield best or "none"
    found = row["ratio"]
    yield (
        f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
        if found
        else "none"
    )
    yield f"{row['roof_share']:.0%}" if row["roof_share"] else "none"
    yield f"{_error(sides.get(OURS))} / {_error(sides.get(best))}"
    yield sides.get(OURS, {}).get("details", {}).get("exactness", "none")


def _time(side: Mapping[str, Any]) -> str:
    if "median" in side:
        return f"{_MICROSECONDS * side['median']:.1f}"
    return "wrong" if side.get("failed", "").startswith("wrong") else "missing"


def _error(side: Mapping[str, Any] | None) -> str:
    errors = (side or {}).get("errors")
    return f"{max(each['error'] for each in errors):.1e}" if errors else "none"


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The summary in words."""
    yield (
        f"{found['cases']} cases, {found['cases_with_ratio']} with a ratio, "
        f"{found['contended']} with rounds in which others took more than {SHARE:.0%} "
        "of a core."
    )
    best = _number(found["best_peer"])
    yield f"Best peer of each case / ours, geometric mean: {best}"
    for name, value in found["against"].items():
        yield f"{name} / ours, geometric mean: {_number(value)}"
    share = found["median_roof_share_large"]
    yield f"Share of the roof, large, median: {f'{share:.0%}' if share else 'none'}"
    slower = ", ".join(found["surely_slower"]) or "none"
    yield f"Whole interval below {_LEAST_RATIO}: {slower}"
    for name, count in found["missing"].items():
        yield f"{name}: missing or wrong in {count} cases, which count for nobody"


def _number(value: float | None) -> str:
    return f"{value:.2f}" if value else "none"


_ROW_PIXELS: Final = 18
_LEFT: Final = 230
_SCALE: Final = 130
_WIDTH: Final = 700


def plot(rows: Sequence[Mapping[str, Any]]) -> str:
    """SVG: best peer / ours of each case on a logarithmic axis, with intervals."""
    shown = [row for row in rows if row["ratio"]]
    height = _ROW_PIXELS * (len(shown) + 2)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="11">'
    )
    parts = [
        head,
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for mark in (0.5, 0.9, 1.0, 1.1, 2.0, 4.0):
        x = _place(mark)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{height}" stroke='
            f'"{"black" if mark == 1 else "#ccc"}"/>'
        )
        parts.append(f'<text x="{x - 8:.1f}" y="11">{mark:g}</text>')
    for number, row in enumerate(shown):
        parts += _plotted(row, 14 + _ROW_PIXELS * (number + 0.7))
    return "\n".join([*parts, "</svg>", ""])


def _plotted(row: Mapping[str, Any], y: float) -> list[str]:
    found = row["ratio"]
    low, middle, high = (_place(found[key]) for key in ("low", "median", "high"))
    colour = "#1a7f37" if found["median"] >= 1 else "#cf222e"
    name = f"{row['case']}/{row['size']} ({row['best_peer']})"
    ends = f'x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
    return [
        f'<text x="4" y="{y + 4:.1f}">{name}</text>',
        f'<line {ends} stroke="{colour}" stroke-width="2"/>',
        f'<circle cx="{middle:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
    ]


def _place(value: float) -> float:
    x = _LEFT + _SCALE * (math.log2(max(value, 1e-3)) + 1)
    return min(max(x, _LEFT), _WIDTH - 4.0)
