"""Kernels and baselines of a plan as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Json = Mapping[str, Any]
Names = Mapping[str, Sequence[str]]

MAX_NAMES: Final = 3
"""Nodes named in a table cell; the rest is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel of a plan.

    Attributes:
        nodes: the user's node names, or ids where no name is known.
        ops: its operators, each once.
        is_named: whether the names are the user's.
        measured_seconds: None until the kernel was timed; likewise the interval.
        seconds: measured where known, else predicted.
        share: of the sum of all kernels' seconds.
        roof_seconds: the longer of the modelled memory and compute terms: no kernel
            that moves these bytes and does these operations is faster on this device.
        roof: `roof_seconds` / `seconds`; above 1 the device's numbers are too low.
        ratio: measured / predicted.
        terms: (name, seconds) of the estimate.
    """

    name: str
    family: str
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    is_named: bool
    outputs: tuple[str, ...]
    predicted_seconds: float
    measured_seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    seconds: float
    share: float
    roof_seconds: float
    roof: float | None
    ratio: float | None
    traffic_bytes: int
    registers: int | None
    spill_bytes: int | None
    bound_by: str
    evidence: str
    schedule: str
    terms: tuple[tuple[str, float], ...]

    @property
    def summary(self) -> str:
        """The first names, or the first operators where there are only ids."""
        return ", ".join(self._told[:MAX_NAMES])

    @property
    def more(self) -> int:
        """How many names or operators the summary leaves out."""
        return max(0, len(self._told) - MAX_NAMES)

    @property
    def _told(self) -> tuple[str, ...]:
        return self.nodes if self.is_named else self.ops


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRow:
    """What another strategy would have cost under the same model.

    Attributes:
        slower: its time / ours.
    """

    label: str
    objective_seconds: float
    slower: float | None
    kernels: int
    traffic_bytes: int


BASELINES: Final[Mapping[str, str]] = {
    "unfused": "no fusion",
    "tvm": "TVM's rules",
    "xla": "XLA-style greedy",
    "inductor": "Inductor-style greedy",
}

_TERMS: Final = ("launch", "memory", "compute", "latency")


def kernel_rows(plan: Json, names: Names) -> tuple[KernelRow, ...]:
    """All kernels in launch order.

    Args:
        plan: a plan's body.
        names: canonical id -> the user's names; may be empty.
    """
    whole = sum(seconds_of(kernel) for kernel in plan["kernels"])
    ops = {node["id"]: node["op"] for node in plan["graph"]["nodes"]}
    return tuple(_row(kernel, names, ops, whole) for kernel in plan["kernels"])


def user_names(ids: Sequence[str], names: Names) -> tuple[str, ...]:
    """Each user name once, ids where there is none."""
    found = (name for i in ids for name in names.get(i) or (i,))
    return tuple(dict.fromkeys(found))


def seconds_of(kernel: Json) -> float:
    """Measured time of a kernel, else what was predicted."""
    measured = kernel.get("measurement")
    return float(measured["seconds"] if measured else kernel["estimate"]["seconds"])


def _row(kernel: Json, names: Names, ops: Mapping[str, str], whole: float) -> KernelRow:
    estimate = kernel["estimate"]
    measured = kernel.get("measurement") or {}
    seconds = seconds_of(kernel)
    predicted = float(estimate["seconds"])
    terms = tuple((term, float(estimate.get(f"{term}_seconds", 0))) for term in _TERMS)
    roof_seconds = max(dict(terms)["memory"], dict(terms)["compute"])
    knobs = kernel.get("schedule") or {}
    return KernelRow(
        name=kernel["name"],
        family=kernel["family"],
        nodes=user_names(kernel["nodes"], names),
        ops=tuple(dict.fromkeys(ops.get(n, "?") for n in kernel["nodes"])),
        is_named=any(names.get(n) for n in kernel["nodes"]),
        outputs=user_names(kernel["outputs"], names),
        predicted_seconds=predicted,
        measured_seconds=measured.get("seconds"),
        low_seconds=measured.get("low_seconds"),
        high_seconds=measured.get("high_seconds"),
        seconds=seconds,
        share=seconds / whole if whole else 0.0,
        roof_seconds=roof_seconds,
        roof=roof_seconds / seconds if seconds else None,
        ratio=measured["seconds"] / predicted if measured and predicted else None,
        traffic_bytes=kernel["traffic_bytes"],
        registers=kernel.get("registers"),
        spill_bytes=estimate.get("spill_bytes"),
        bound_by=str(estimate.get("bound_by") or ""),
        evidence=kernel["evidence"],
        schedule=" ".join(f"{knob}={value}" for knob, value in knobs.items()),
        terms=terms,
    )


def baseline_rows(plan: Json) -> tuple[BaselineRow, ...]:
    """What the plan was compared with, the slowest first."""
    objective = plan["objective_seconds"]
    rows = (
        BaselineRow(
            label=BASELINES.get(name, name),
            objective_seconds=other["objective_seconds"],
            slower=other["objective_seconds"] / objective if objective else None,
            kernels=other["kernels"],
            traffic_bytes=other["traffic_bytes"],
        )
        for name, other in plan["baselines"].items()
    )
    return tuple(sorted(rows, key=lambda row: -row.objective_seconds))
