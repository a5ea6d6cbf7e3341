"""Two plans side by side, and a plan beside what no fusion would have made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from service.dashboard.formats import count, duration, percent, ratio, size
from service.dashboard.kernels import KernelRow, Names, baseline_rows, user_names
from service.dashboard.tensors import tensor_bytes

Json = Mapping[str, Any]

FAR: Final = 2.0
"""From three times on a quotient says more than a percentage."""

MAX_LINES: Final = 300
"""Kernels in one table of differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One number of two plans.

    Attributes:
        change: b / a - 1; None where there is nothing to divide.
        is_better: whether b is less than a, which is better for all of these.
    """

    label: str
    a: str
    b: str
    change: str
    is_better: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A kernel of one of the plans."""

    name: str
    family: str
    nodes: str
    more: int
    seconds: float
    traffic_bytes: int
    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A kernel in both plans, or in one of them."""

    a: Side | None
    b: Side | None


_TOTALS: Final = (
    ("objective_seconds", "Time", duration),
    ("bound_seconds", "Bound", duration),
    ("gap", "Gap", percent),
    ("kernels", "Kernels", count),
    ("traffic_bytes", "Traffic", size),
    ("peak_memory_bytes", "Peak memory", size),
)


def totals(found: Mapping[str, Json]) -> tuple[Total, ...]:
    """The totals that the API compares."""
    return tuple(
        total(label, found[name]["a"], found[name]["b"], shown)
        for name, label, shown in _TOTALS
        if name in found
    )


def total(label: str, a: float | None, b: float | None, shown: Any) -> Total:
    """One number of both, with how much the second one differs."""
    if not a or b is None:
        return Total(label=label, a=shown(a), b=shown(b), change="", is_better=None)
    change = b / a - 1
    sign = "+" if change > 0 else "\N{MINUS SIGN}"
    text = "equal" if change == 0 else f"{sign}{percent(abs(change))}"
    if change >= FAR:
        text = ratio(b / a)
    better = None if change == 0 else change < 0
    return Total(label=label, a=shown(a), b=shown(b), change=text, is_better=better)


def pairings(found: Json | None, names: Names) -> tuple[Pairing, ...]:
    """Kernels that differ: those in both plans first, then those of one alone."""
    if found is None:
        return ()
    both = (
        Pairing(
            a=_side({**pair["a"], "nodes": pair["nodes"]}, names),
            b=_side({**pair["b"], "nodes": pair["nodes"]}, names),
        )
        for pair in found["changed"]
    )
    first = (Pairing(a=_side(kernel, names), b=None) for kernel in found["only_a"])
    second = (Pairing(a=None, b=_side(kernel, names)) for kernel in found["only_b"])
    return (*both, *first, *second)


def _side(kernel: Json, names: Names) -> Side:
    told = user_names(kernel["nodes"], names)
    knobs = (kernel.get("schedule") or {}).items()
    return Side(
        name=kernel["name"],
        family=kernel["family"],
        nodes=", ".join(told[:3]),
        more=max(0, len(told) - 3),
        seconds=kernel["measured_seconds"] or kernel["predicted_seconds"],
        traffic_bytes=kernel["traffic_bytes"],
        schedule=" ".join(f"{knob}={value}" for knob, value in knobs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A kernel beside the separate kernels that would do its work.

    Attributes:
        separate: how many kernels that would be: one for each node but reshapes.
        kept_bytes: what passes between its nodes and is never written now.
        apart_seconds: what those kernels take; None where one was never priced alone.
    """

    row: KernelRow
    separate: int
    kept_bytes: int
    apart_seconds: float | None


def against_no_fusion(
    plan: Json,
    rows: Sequence[KernelRow],
    times: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Saved, ...]:
    """Every kernel with what fusing saves in it, the most first.

    Args:
        plan: a plan's body.
        rows: its kernels.
        times: seconds of operators in kernels of their own, as far as known.
    """
    nodes = {node["id"]: node for node in plan["graph"]["nodes"]}
    types = plan["graph"]["tensors"]
    found = [
        _saved(row, kernel, (nodes, types), times)
        for row, kernel in zip(rows, plan["kernels"], strict=True)
    ]
    fused = (saved for saved in found if saved.separate > 1)
    return tuple(sorted(fused, key=lambda saved: -saved.kept_bytes))


def _saved(
    row: KernelRow,
    kernel: Json,
    graph: tuple[Mapping[str, Json], Json],
    times: Mapping[str, float],
) -> Saved:
    nodes, types = graph
    inside = [nodes[n] for n in kernel["nodes"] if n in nodes]
    real = [node for node in inside if node["op"] != "reshape"]
    made = {t for node in inside for t in node["outputs"]}
    read = {t for node in real for t in node["inputs"]}
    kept = (made & read) - set(kernel["outputs"])
    return Saved(
        row=row,
        separate=len(real),
        kept_bytes=sum(tensor_bytes(types.get(tensor)) for tensor in kept),
        apart_seconds=_sum([times.get(node["id"]) for node in real]),
    )


def _sum(times: Sequence[float | None]) -> float | None:
    """The sum, if every part is known."""
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A way to cut the graph that was found or compared with.

    Attributes:
        slower: its time / that of the plan that is given out.
        revision: number among the key's plans; None for another strategy's.
        compared: of what evidence the time is.
    """

    label: str
    seconds: float
    slower: float | None
    kernels: int
    compared: str
    revision: int | None
    is_served: bool


MAX_PARTITIONS: Final = 12


def best_partitions(plan: Json, origin: Json | None) -> tuple[Partition, ...]:
    """The best ways to cut the graph that are known, the fastest first.

    Times are of the cost model with what was measured put in, so that plans of every
    evidence and the strategies that they are compared with stand on one scale.
    """
    objective = plan["objective_seconds"]
    served = set(((origin or {}).get("served") or {}).values())
    found = [
        Partition(
            label=f"revision {one['revision']}",
            seconds=one["objective_seconds"],
            slower=one["objective_seconds"] / objective if objective else None,
            kernels=one["kernels"],
            compared=one["evidence"],
            revision=one["revision"],
            is_served=one["digest"] in served,
        )
        for one in (origin or {}).get("revisions", ())
    ]
    found += [
        Partition(
            label=row.label,
            seconds=row.objective_seconds,
            slower=row.slower,
            kernels=row.kernels,
            compared="predicted",
            revision=None,
            is_served=False,
        )
        for row in baseline_rows(plan)
    ]
    return tuple(sorted(found, key=lambda one: one.seconds))[:MAX_PARTITIONS]
