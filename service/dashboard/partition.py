"""The partition as boxes and arrows, never more boxes than a browser lays out well.

Kernels stand in launch order, which is a topological order. A box is a run of
consecutive kernels, so arrows between boxes never form a cycle. Runs are cut where
few tensors cross: in a transformer that is between its layers. A kernel that is opened
alone shows its nodes: what passes between those is never written to memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from service.dashboard.formats import duration, size
from service.dashboard.kernels import Json, KernelRow, Names, kernel_rows, user_names
from service.dashboard.tensors import Tensors, tensor_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_BOXES: Final = 300
"""What the layout does quickly enough; no view shows more."""

DEFAULT_BOXES: Final = 60
"""What a person can take in before expanding anything."""

Prices = Mapping[tuple[str, str], float | None]

MAX_CUTS: Final = 6
"""Tensors told for one edge, the largest first."""


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
    """A tensor that one kernel writes and another reads.

    Attributes:
        a, b: node that makes it, and a node of the reader that takes it.
    """

    producer: int
    reader: int
    tensor: str
    bytes: int
    a: str = ""
    b: str = ""


def partition_view(
    plan: Json,
    names: Names,
    *,
    limit: int = DEFAULT_BOXES,
    expand: str = "",
    prices: Prices = MappingProxyType({}),
) -> dict[str, Any]:
    """Boxes and edges, JSON-ready.

    Args:
        plan: a plan's body.
        names: canonical id -> the user's names; may be empty.
        limit: most boxes; never more than `MAX_BOXES`.
        expand: id of a box to open; its kernels are drawn one by one where the limit
            allows it, and the rest of the plan is drawn coarser.
        prices: seconds that one kernel in the place of two would save at most, by the
            names of the two.
    """
    rows = kernel_rows(plan, names)
    arrows = _arrows(plan, names)
    opened = _parse(expand, len(rows))
    runs = _runs(len(rows), arrows, min(limit, MAX_BOXES), opened)
    whole = max((sum(r.seconds for r in _of(rows, run)) for run in runs), default=0.0)
    inside = _inside(plan, names, opened, MAX_BOXES - len(runs))
    return {
        "kernels": len(rows),
        "boxes": [_box(run, _of(rows, run), whole) for run in runs],
        "edges": _edges(plan, runs, arrows, prices),
        **inside,
    }


def _inside(
    plan: Json, names: Names, opened: Run | None, limit: int
) -> dict[str, list[dict[str, Any]]]:
    """Nodes of a kernel that was opened alone, and what passes between them."""
    if opened is None or opened.length != 1:
        return {"nodes": [], "links": []}
    wanted = plan["kernels"][opened.first]["nodes"][:limit]
    graph = {node["id"]: node for node in plan["graph"]["nodes"]}
    makers = {t: node for node in wanted for t in graph[node]["outputs"]}
    types = plan["graph"]["tensors"]
    nodes = [
        {
            "id": node,
            "parent": opened.id,
            "label": graph[node]["op"],
            "detail": user_names((node,), names)[0],
        }
        for node in wanted
    ]
    links = [
        {
            "source": makers[tensor],
            "target": node,
            "label": size(tensor_bytes(types.get(tensor))),
            "tensor": user_names((tensor,), names)[0],
        }
        for node in wanted
        for tensor in dict.fromkeys(graph[node]["inputs"])
        if tensor in makers
    ]
    return {"nodes": nodes, "links": links}


def _of(rows: Sequence[KernelRow], run: Run) -> Sequence[KernelRow]:
    return rows[run.first : run.last + 1]


def _arrows(plan: Json, names: Names) -> tuple[Arrow, ...]:
    """Every tensor that passes from a kernel to another."""
    producers: dict[str, int] = {}
    found = []
    tensors = Tensors(plan)
    for index, kernel in enumerate(plan["kernels"]):
        found += [
            Arrow(
                producer=producers[tensor],
                reader=index,
                tensor=user_names((tensor,), names)[0],
                bytes=tensor_bytes(tensors.kind(tensor)),
                a=tensors.maker(tensor),
                b=tensors.reader(tensor, kernel["nodes"]),
            )
            for tensor in kernel["inputs"]
            if tensor in producers
        ]
        producers.update((tensor, index) for tensor in kernel["outputs"])
    return tuple(found)


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


def _saves(seconds: float | None) -> str:
    """What stands on an edge: one kernel would save at most this."""
    return "" if seconds is None else f"\N{LESS-THAN OR EQUAL TO} {duration(seconds)}"


def _edges(
    plan: Json, runs: Sequence[Run], arrows: Iterable[Arrow], prices: Prices
) -> list[dict[str, Any]]:
    """One edge for each pair of boxes, with what passes along it through memory."""
    owner = {i: run.id for run in runs for i in range(run.first, run.last + 1)}
    kernels = [kernel["name"] for kernel in plan["kernels"]]
    bundles: dict[tuple[str, str], dict[str, Arrow]] = defaultdict(dict)
    for arrow in arrows:
        pair = (owner[arrow.producer], owner[arrow.reader])
        if pair[0] != pair[1]:
            bundles[pair].setdefault(arrow.tensor, arrow)

    def price(tensors: Iterable[Arrow]) -> float | None:
        """Of the dearest cut among those that one edge stands for."""
        pairs = {(kernels[one.producer], kernels[one.reader]) for one in tensors}
        known = [found for pair in pairs if (found := prices.get(pair)) is not None]
        return max(known, default=None)

    return [
        {
            "source": source,
            "target": target,
            "price": price(tensors.values()),
            "saves": _saves(price(tensors.values())),
            "label": size(sum(arrow.bytes for arrow in tensors.values())),
            "bytes": sum(arrow.bytes for arrow in tensors.values()),
            "tensors": len(tensors),
            "cuts": [
                {
                    "tensor": arrow.tensor,
                    "size": size(arrow.bytes),
                    "a": arrow.a,
                    "b": arrow.b,
                    "from": kernels[arrow.producer],
                    "to": kernels[arrow.reader],
                }
                for arrow in sorted(tensors.values(), key=lambda arrow: -arrow.bytes)
            ][:MAX_CUTS],
        }
        for (source, target), tensors in bundles.items()
    ]
