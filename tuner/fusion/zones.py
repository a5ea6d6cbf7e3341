"""Zones: parts of the graph that no candidate spans, and which of them are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tuner.fusion.groups import Groups
from tuner.fusion.units import Units
from tuner.fusion.view import bits

LARGE: Final = 512
"""A zone of more units is not compared with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """Units that kernels may join, and no kernel joins with others.

    Attributes:
        units: unit mask.
        nodes: its nodes, in graph order.
        tensors: what they make, in graph order.
        form: two zones share it when they are equal but for names: the same nodes,
            wired alike, with the same ties to the rest of the graph.
    """

    units: int
    nodes: tuple[int, ...]
    tensors: tuple[int, ...]
    form: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """Translates masks of one zone into masks of another one like it."""

    source: Zone
    target: Zone

    def nodes(self, mask: int) -> int:
        """A node mask."""
        return _moved(mask, self.source.nodes, self.target.nodes)

    def tensors(self, mask: int) -> int:
        """A tensor mask."""
        return _moved(mask, self.source.tensors, self.target.tensors)


def _moved(mask: int, source: tuple[int, ...], target: tuple[int, ...]) -> int:
    place = {i: n for n, i in enumerate(source)}
    return sum(1 << target[place[i]] for i in bits(mask))


def find_zones(
    units: Units, joins: Callable[[int, int], bool], together: Iterable[int]
) -> tuple[Zone, ...]:
    """Zones in graph order.

    Args:
        units: the steps in which kernels grow.
        joins: whether two units that share a tensor can be in one kernel.
        together: node masks that must not be torn apart.
    """
    groups = Groups(len(units))
    for mask in together:
        first, *rest = bits(units.of(mask))
        for u in rest:
            groups.join(u, first)
    for u in range(len(units)):
        near = (units.partners[u] >> u << u) | units.light[u]
        for other in bits(near):
            if groups.top(u) != groups.top(other) and joins(u, other):
                groups.join(u, other)
    return tuple(make_zone(units, members) for members in groups.masks())


def make_zone(units: Units, members: int) -> Zone:
    """A zone of these units."""
    view = units.view
    nodes = tuple(bits(units.nodes(members)))
    tensors = tuple(j for i in nodes for j in bits(view.made[i]))
    return Zone(
        units=members, nodes=nodes, tensors=tensors, form=_form(units, members, nodes)
    )


def _form(units: Units, members: int, nodes: tuple[int, ...]) -> object:
    if members.bit_count() > LARGE:
        return members
    view = units.view
    mask = units.nodes(members)
    inside = tuple(bits(members))
    local = {i: n for n, i in enumerate(nodes)}
    leaving = tuple(
        (view.delivered >> j & 1, bool(view.readers[j] & ~mask), units.stored >> j & 1)
        for i in nodes
        for j in bits(view.made[i])
    )
    return (
        view.structure(mask, 0),
        leaving,
        tuple(tuple(local[i] for i in bits(units.masks[u])) for u in inside),
        tuple(_detours(units, members, u) for u in inside),
    )


def _detours(units: Units, members: int, u: int) -> tuple[int, ...]:
    """Units of the zone that lie behind a unit by way of other zones."""
    outside = units.below[u] & ~members
    if not outside:
        return ()
    return tuple(n for n, v in enumerate(bits(members)) if units.above[v] & outside)
