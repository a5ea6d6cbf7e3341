"""The roofline of a plan: where each kernel stands under the device's roofs.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009. Work of
all pipes is told in FP32 FMA equivalents: the time that the device's arithmetic needs,
times its rate of FP32 FMAs. So one compute roof fits all kernels, and the height of a
point under it is the share of time in which arithmetic was busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from service.dashboard.formats import duration, percent, ratio, size

if TYPE_CHECKING:
    from service.dashboard.kernels import KernelRow

Json = Mapping[str, Any]

MAX_POINTS: Final = 600
"""Kernels that are drawn, those that take longest first; the table has all."""

_MEMORY: Final = (
    ("Main memory", "dram_bytes_per_second"),
    ("Last-level cache", "l2_bytes_per_second"),
    ("Private caches", "l1_bytes_per_second"),
)
_PIPE: Final = "fma32"


def roofline_view(rows: Sequence[KernelRow], numbers: Json, base: str) -> Json:
    """Roofs and points, JSON-ready.

    Args:
        rows: kernels of a plan.
        numbers: the device's numbers, as the API gives them.
        base: address of a kernel's page without its name.
    """
    rate = float((numbers.get("operations_per_second") or {}).get(_PIPE) or 0)
    points = [point for row in rows if (point := _point(row, rate, base)) is not None]
    points.sort(key=lambda point: -point["seconds"])
    return {
        "memory": [
            {"name": name, "bytes_per_second": float(numbers[field])}
            for name, field in _MEMORY
            if numbers.get(field)
        ],
        "compute": [{"name": "FP32 FMA", "operations_per_second": rate}]
        if rate
        else [],
        "points": points[:MAX_POINTS],
        "without_arithmetic": len(rows) - len(points),
        "not_drawn": max(0, len(points) - MAX_POINTS),
    }


def _point(row: KernelRow, rate: float, base: str) -> dict[str, Any] | None:
    operations = dict(row.terms)["compute"] * rate
    if not operations or not row.traffic_bytes or not row.predicted_seconds:
        return None
    measured = row.measured_seconds
    return {
        "name": row.name,
        "family": row.family,
        "nodes": row.summary + (f" +{row.more}" if row.more else ""),
        "intensity": operations / row.traffic_bytes,
        "predicted": operations / row.predicted_seconds,
        "measured": operations / measured if measured else None,
        "seconds": row.seconds,
        "share": row.share,
        "href": base + row.name,
        "told": _told(row),
    }


def _told(row: KernelRow) -> str:
    """What hovering says, line by line."""
    terms = ", ".join(f"{term} {duration(seconds)}" for term, seconds in row.terms)
    lines = [f"predicted {duration(row.predicted_seconds)}: {terms}"]
    if row.measured_seconds is not None:
        lines.append(
            f"measured {duration(row.measured_seconds)}, {ratio(row.ratio)} predicted"
        )
    lines.append(
        f"{percent(row.roof)} of the roof, bound by {row.bound_by or 'nothing'}"
    )
    lines.append(f"{size(row.traffic_bytes)} in and out")
    return "\n".join(lines)
