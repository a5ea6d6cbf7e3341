"""A user's fusion rules on one graph: banned kernels and pinned pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tuner.fusion.bans import Ban, Restriction
from tuner.fusion.view import View, bits
from tuner.ir.custom import FusionRule
from tuner.ir.graph import Graph, Node
from tuner.plan import Pin

Kinds = Callable[[Node], Collection[str]]
"""Operators, primitives and op patterns that a node counts as."""


class _Owners:
    """Nodes by the user's node that they are a part of."""

    def __init__(self, view: View) -> None:
        self._by_node = [0] * len(view.nodes)
        groups: dict[str, int] = {}
        for i, node in enumerate(view.nodes):
            key = node.composite or node.name
            groups[key] = groups.get(key, 0) | 1 << i
        for i, node in enumerate(view.nodes):
            self._by_node[i] = groups[node.composite or node.name]

    def of_one(self, mask: int) -> bool:
        """Whether all nodes are parts of one node of the user's."""
        return not mask & ~self._by_node[(mask & -mask).bit_length() - 1]


class _Forbidden:
    """No kernel holds nodes of both kinds, if they are of two nodes of the user's."""

    def __init__(self, owners: _Owners, first: int, second: int) -> None:
        self._owners = owners
        self._first = first
        self._second = second

    def allows(self, mask: int, outputs: int) -> bool:  # noqa: ARG002
        """Whether one of the kinds is missing, or both are one node of the user's."""
        if not (mask & self._first and mask & self._second):
            return True
        return self._owners.of_one(mask & (self._first | self._second))

    def touches(self, mask: int) -> bool:
        """Whether both kinds are there."""
        return not self.allows(mask, 0)


class _Alone:
    """A kernel with a node of the kind holds parts of one node of the user's."""

    def __init__(self, owners: _Owners, kind: int) -> None:
        self._owners = owners
        self._kind = kind

    def allows(self, mask: int, outputs: int) -> bool:  # noqa: ARG002
        """Whether the kind is missing, or nothing else is there."""
        return not mask & self._kind or self._owners.of_one(mask)

    def touches(self, mask: int) -> bool:
        """Whether the kind is there."""
        return bool(mask & self._kind)


def wishes(
    graph: Graph, rules: Sequence[FusionRule], kinds: Kinds
) -> tuple[Pin | Restriction, ...]:
    """What the rules ask of a partition of a graph."""
    if not rules:
        return ()
    bans = (Forbids(rule, kinds) for rule in rules if rule.action != "require")
    return (*required(graph, rules, kinds), *bans)


@dataclass(frozen=True, slots=True)
class Forbids:
    """A `forbid` or `alone` rule, before it meets a graph."""

    rule: FusionRule
    kinds: Kinds

    def on(self, view: View) -> Ban:
        """The same for one graph."""
        first, *others = (_mask(view, kind, self.kinds) for kind in self.rule.kinds)
        owners = _Owners(view)
        if self.rule.action == "alone":
            return _Alone(owners, first)
        return _Forbidden(owners, first, others[0])


def _mask(view: View, kind: str, kinds: Kinds) -> int:
    return sum(1 << i for i, node in enumerate(view.nodes) if kind in kinds(node))


def required(graph: Graph, rules: Sequence[FusionRule], kinds: Kinds) -> list[Pin]:
    """Pairs that `require` rules want in one kernel: the first kind feeds the second.

    What lies between them may be a view. Parts of one node of the user's are no pair.
    """
    view = View(graph)
    owners = _Owners(view)
    found: dict[tuple[str, str], None] = {}
    for rule in rules:
        if rule.action != "require":
            continue
        first, second = (_mask(view, kind, kinds) for kind in rule.kinds)
        for i in bits(second):
            for before in bits(view.before[i] & first):
                if not owners.of_one(1 << i | 1 << before):
                    found[view.nodes[before].name, view.nodes[i].name] = None
    return [Pin(fuse=True, nodes=pair) for pair in found]
