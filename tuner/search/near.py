"""Kernels of the same structure in other sizes: where a search may begin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tuner.document import digest, encode
from tuner.ir.graph import Graph
from tuner.plan import Family, Schedule

HINTS: Final = 1
"""Schedules taken over from near kernels."""
_Record = tuple[tuple[int, ...], float, Schedule]


def near_key(graph: Graph, family: Family) -> str:
    """Equal for kernels that differ in their extents only.

    Args:
        graph: the kernel's own graph, in local names.
        family: of the kernel.
    """
    rows = [
        [
            node.op,
            list(node.inputs),
            list(node.outputs),
            sorted(node.attributes),
            [_kind(graph, name) for name in (*node.inputs, *node.outputs)],
        ]
        for node in graph.nodes
    ]
    return digest(encode([str(family), rows, list(graph.outputs)]))[:32]


def _kind(graph: Graph, name: str) -> str:
    kind = graph.types[name]
    return f"{kind.dtype}/{len(kind.shape)}"


def sizes(graph: Graph) -> tuple[int, ...]:
    """All extents of all results, in the order of the nodes."""
    return tuple(
        extent
        for node in graph.nodes
        for out in node.outputs
        for extent in graph.types[out].static_shape
    )


def distance(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """How unlike two lists of extents are: mean factor between them, as a logarithm."""
    if len(one) != len(other):
        return math.inf
    pairs = zip(one, other, strict=True)
    apart = sum(abs(math.log(max(a, 1) / max(b, 1))) for a, b in pairs)
    return apart / max(len(one), 1)


class Neighbours:
    """Best schedules of earlier runs by structure; hints, never answers."""

    def __init__(self, records: Iterable[object]) -> None:
        self._records: dict[str, list[_Record]] = {}
        for record in records:
            if isinstance(record, Mapping):
                self._add(record)

    def _add(self, record: Mapping[str, Any]) -> None:
        seconds = record.get("seconds")
        if not seconds or record.get("contended") or record.get("failure"):
            return
        try:
            entry = (
                tuple(int(extent) for extent in record["sizes"]),
                float(seconds),
                Schedule.of(**{k: int(v) for k, v in record["schedule"].items()}),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return
        self._records.setdefault(str(record.get("near")), []).append(entry)

    def hints(self, graph: Graph, family: Family) -> tuple[Schedule, ...]:
        """Best schedules of the nearest kernels of the same structure."""
        ours = sizes(graph)
        fastest: dict[tuple[int, ...], tuple[float, Schedule]] = {}
        for there, seconds, schedule in self._records.get(near_key(graph, family), ()):
            if there not in fastest or seconds < fastest[there][0]:
                fastest[there] = (seconds, schedule)
        near = sorted(fastest, key=lambda there: (distance(ours, there), there))
        found = (fastest[there][1] for there in near)
        return tuple(dict.fromkeys(found))[:HINTS]
