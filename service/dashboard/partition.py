"""The partition as boxes and arrows, never more boxes than a browser lays out well.

Kernels stand in launch order, which is a topological order. A box is a run of
consecutive kernels, so arrows between boxes never form a cycle. Runs are cut where
few tensors cross: in a transformer that is between its layers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from service.dashboard.formats import count, duration, size
from service.dashboard.kernels import Json, KernelRow, Names, kernel_rows, user_names
from tuner.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_BOXES: Final = 300
"""What the layout does quickly enough; no view shows more."""

DEFAULT_BOXES: Final = 60
"""What a person can take in before expanding anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive kernels that are drawn as one box: first and last, both included."""

    first: int
    last: int

    @property
    def id(self) -> str:
        """Identity of the box, also what a link expands."""
        return f"{self.first}-{self.last}"

    @property
    def length(self) -> int:
        """How many kernels the box stands for."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A tensor that one kernel writes and another reads."""

    producer: int
    reader: int
    tensor: str
    bytes: int


def partition_view(
    plan: Json, names: Names, *, limit: int = DEFAULT_BOXES, expand: str = ""
) -> dict[str, Any]:
    """Boxes and edges, JSON-ready.

    Args:
        plan: a plan's body.
        names: canonical id -> the user's names; may be empty.
        limit: most boxes; never more than `MAX_BOXES`.
        expand: id of a box to open; its kernels are drawn one by one where the limit
            allows it, and the rest of the plan is drawn coarser.
    """
    rows = kernel_rows(plan, names)
    arrows = _arrows(plan, names)
    runs = _runs(len(rows), arrows, min(limit, MAX_BOXES), _parse(expand, len(rows)))
    whole = max((sum(r.seconds for r in _of(rows, run)) for run in runs), default=0.0)
    return {
        "kernels": len(rows),
        "boxes": [_box(run, _of(rows, run), whole) for run in runs],
        "edges": _edges(runs, arrows),
    }


def _of(rows: Sequence[KernelRow], run: Run) -> Sequence[KernelRow]:
    return rows[run.first : run.last + 1]


def _arrows(plan: Json, names: Names) -> tuple[Arrow, ...]:
    """Every tensor that passes from a kernel to another."""
    producers: dict[str, int] = {}
    found = []
    tensors = plan["graph"]["tensors"]
    for index, kernel in enumerate(plan["kernels"]):
        for tensor in kernel["inputs"]:
            producer = producers.get(tensor)
            if producer is not None:
                found.append(
                    Arrow(
                        producer=producer,
                        reader=index,
                        tensor=user_names((tensor,), names)[0],
                        bytes=tensor_bytes(tensors.get(tensor)),
                    )
                )
        producers.update((tensor, index) for tensor in kernel["outputs"])
    return tuple(found)


def tensor_bytes(kind: Mapping[str, Any] | None) -> int:
    """Size of a tensor of the plan's graph; 0 when its type is not listed."""
    if kind is None:
        return 0
    elements: int = math.prod(kind["shape"])
    return DType(kind["dtype"]).bytes * elements


def _parse(expand: str, kernels: int) -> Run | None:
    """The run that a link names, if there is one."""
    first, _, last = expand.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        return None
    run = Run(first=int(first), last=min(int(last), kernels - 1))
    return run if run.first <= run.last else None


def _runs(
    kernels: int, arrows: Iterable[Arrow], limit: int, opened: Run | None
) -> tuple[Run, ...]:
    """Runs that cover all kernels, at most `limit` of them."""
    crossing = _crossings(kernels, arrows)
    if opened is None:
        return _split(Run(first=0, last=kernels - 1), limit, crossing)
    around = (
        Run(first=0, last=opened.first - 1),
        Run(first=opened.last + 1, last=kernels - 1),
    )
    inside = min(opened.length, limit - 2)
    rest = max(1, (limit - inside) // 2)
    before, after = (_split(run, rest, crossing) for run in around)
    return (*before, *_split(opened, inside, crossing), *after)


def _crossings(kernels: int, arrows: Iterable[Arrow]) -> Sequence[int]:
    """How many tensors are alive behind each kernel, each counted once."""
    last: dict[tuple[int, str], int] = {}
    for arrow in arrows:
        key = (arrow.producer, arrow.tensor)
        last[key] = max(last.get(key, 0), arrow.reader)
    change: Counter[int] = Counter()
    for (producer, _), reader in last.items():
        change[producer] += 1
        change[reader] -= 1
    alive, found = 0, []
    for index in range(kernels):
        alive += change[index]
        found.append(alive)
    return found


def _split(run: Run, parts: int, crossing: Sequence[int]) -> tuple[Run, ...]:
    """Cut a run into about equal parts, each cut moved to the narrowest place near."""
    if run.length <= 0:
        return ()
    parts = min(parts, run.length)
    width = run.length / parts
    reach = int(width / 2)
    found, first = [], run.first
    for part in range(1, parts):
        ideal = run.first + round(part * width) - 1
        near = range(max(first, ideal - reach), min(run.last - 1, ideal + reach) + 1)
        best = min(near, key=lambda i: (crossing[i], abs(i - ideal)), default=None)
        if best is None:
            continue
        found.append(Run(first=first, last=best))
        first = best + 1
    return (*found, Run(first=first, last=run.last))


def _box(run: Run, rows: Sequence[KernelRow], largest: float) -> dict[str, Any]:
    seconds = sum(row.seconds for row in rows)
    families = Counter(row.family for row in rows)
    family = families.most_common(1)[0][0]
    if run.length == 1:
        label, detail = rows[0].name, _told(rows[0])
    else:
        label = f"{rows[0].name} … {rows[-1].name}"
        detail = ", ".join(f"{n} {name}" for name, n in families.most_common(3))
    return {
        "id": run.id,
        "kernels": [row.name for row in rows] if run.length == 1 else run.length,
        "family": family,
        "label": label,
        "detail": detail,
        "ops": ", ".join(rows[0].ops) if run.length == 1 else "",
        "time": duration(seconds),
        "weight": seconds / largest if largest else 0.0,
        "measured": all(row.measured_seconds is not None for row in rows),
    }


def _told(row: KernelRow) -> str:
    return row.summary + (f" +{row.more}" if row.more else "")


def _edges(runs: Sequence[Run], arrows: Iterable[Arrow]) -> list[dict[str, Any]]:
    """One edge for each pair of boxes, with what passes along it."""
    owner = {i: run.id for run in runs for i in range(run.first, run.last + 1)}
    bundles: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for arrow in arrows:
        pair = (owner[arrow.producer], owner[arrow.reader])
        if pair[0] != pair[1]:
            bundles[pair][arrow.tensor] = arrow.bytes
    return [
        {
            "source": source,
            "target": target,
            "tensors": list(tensors)[:8],
            "label": size(sum(tensors.values())),
            "title": f"{count(len(tensors))} tensors" if len(tensors) > 1 else "",
            "bytes": sum(tensors.values()),
        }
        for (source, target), tensors in bundles.items()
    ]
