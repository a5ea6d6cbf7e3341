"""Primitives matched against terms: what an operator is made of, in any order.

A term names an operator and what its operands are: other terms, numbers, or names that
stand for the same tensor wherever they are met.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tuner.ir.graph import Graph, Node

_SWAPS: Final = frozenset({"add", "mul", "minimum", "maximum"})
_SAME: Final = 1e-6
"""Relative difference between a literal and the number that it stands for."""


@dataclass(frozen=True, slots=True)
class Term:
    """A primitive whose operands match; `name` binds its result."""

    op: str
    args: tuple[Pattern, ...]
    name: str = ""


Pattern = str | float | Term
"""A name stands for one tensor throughout, `#name` for one scalar constant, a number
for any constant of its value."""


def term(op: str, *args: Pattern, name: str = "") -> Term:
    """A term, written as a call."""
    return Term(op, args, name)


@dataclass(frozen=True, slots=True)
class Match:
    """What names stand for, and the nodes that were matched."""

    bound: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def with_name(self, name: str, tensor: str) -> Match:
        """The same, with a name for a tensor; the empty name is none."""
        if not name:
            return self
        return Match({**self.bound, name: tensor}, self.nodes)


def matches(
    graph: Graph, tensor: str, pattern: Pattern, so_far: Match
) -> Iterator[Match]:
    """Every way in which a tensor is what a pattern says."""
    if isinstance(pattern, str):
        yield from _named(graph, tensor, pattern, so_far)
        return
    if isinstance(pattern, float):
        value = scalar(graph, tensor)
        if value is not None and math.isclose(value, pattern, rel_tol=_SAME):
            yield so_far
        return
    node = graph.producer(tensor)
    if node is None or node.op != pattern.op:
        return
    begun = Match(so_far.bound, (*so_far.nodes, node)).with_name(pattern.name, tensor)
    orders = [node.inputs]
    if node.op in _SWAPS:
        orders.append(node.inputs[::-1])
    for operands in orders:
        found: Iterator[Match] = iter((begun,))
        for operand, inner in zip(operands, pattern.args, strict=True):
            found = _each(graph, operand, inner, found)
        yield from found


def _each(
    graph: Graph, tensor: str, pattern: Pattern, given: Iterator[Match]
) -> Iterator[Match]:
    for one in given:
        yield from matches(graph, tensor, pattern, one)


def _named(graph: Graph, tensor: str, name: str, so_far: Match) -> Iterator[Match]:
    known = so_far.bound.get(name)
    if name.startswith("#"):
        value = scalar(graph, tensor)
        same = known is None or value == scalar(graph, known)
        if value is not None and same:
            yield so_far.with_name(name, tensor)
    elif known is None or known == tensor:
        yield so_far.with_name(name, tensor)


def scalar(graph: Graph, tensor: str) -> float | None:
    """The value of a constant of one element."""
    array = graph.constants.get(tensor)
    if array is None or array.size != 1 or not graph.types[tensor].dtype.is_float:
        return None
    return float(array.reshape(()))
