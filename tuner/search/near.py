"""Kernels of the same structure in other sizes: where a search may begin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cost_model.catalog import DEVICES
from cost_model.device import Device, base_of
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


def is_like(name: str, device: Device) -> bool:
    """Whether a device of the catalogue has the schedules of another one."""
    other = DEVICES.get(name)
    own = base_of(device.id)
    return other is not None and other.kind == device.kind and name != own


class Neighbours:
    """Best schedules of earlier runs by structure; hints, never answers.

    Args:
        records: runs on this device, as they are stored; what is damaged is passed by.
        elsewhere: runs on devices like it.
    """

    def __init__(
        self, records: Iterable[object], elsewhere: Iterable[object] = ()
    ) -> None:
        self._own: dict[str, list[_Record]] = {}
        self._others: dict[str, list[_Record]] = {}
        for found, given in ((self._own, records), (self._others, elsewhere)):
            for record in given:
                if isinstance(record, Mapping):
                    self._add(record, found)

    @staticmethod
    def _add(record: Mapping[str, Any], found: dict[str, list[_Record]]) -> None:
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
        found.setdefault(str(record.get("near")), []).append(entry)

    def hints(self, graph: Graph, family: Family) -> tuple[Schedule, ...]:
        """Best schedules of the nearest kernels of the same structure.

        Of equally near ones those of this device come first.
        """
        ours, key = sizes(graph), near_key(graph, family)
        ranked = sorted(
            (distance(ours, there), place, there, schedule.knobs)
            for place, found in enumerate((self._own, self._others))
            for there, schedule in _fastest(found.get(key, ())).items()
        )
        found = dict.fromkeys(Schedule(knobs=knobs) for *_, knobs in ranked)
        return tuple(found)[:HINTS]


def _fastest(records: Iterable[_Record]) -> dict[tuple[int, ...], Schedule]:
    """The best schedule for each list of extents."""
    fastest: dict[tuple[int, ...], tuple[float, Schedule]] = {}
    for there, seconds, schedule in records:
        if there not in fastest or seconds < fastest[there][0]:
            fastest[there] = (seconds, schedule)
    return {there: schedule for there, (_, schedule) in fastest.items()}
