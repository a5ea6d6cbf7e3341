"""Ranges of whole-number inputs that end up as indices, read backwards from there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tuner.ir.graph import Graph, Node
from tuner.ir.inference import whole
from tuner.ir.types import DType

Span = tuple[int, int]
OPAQUE_SPAN: Final = (0, 1)
"""Of whole numbers that a node reads of which nothing is known."""


def spans_of(graph: Graph) -> dict[str, Span]:
    """Least and greatest value of tensors that are indices, or become them.

    An index lies inside its table. What is compared with a list of positions is a
    position. Values of which an index is computed by looking up, by moving, or by sums
    and multiples are such that it lies inside, too.
    """
    return _Spans(graph).found


class _Spans:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._grains = _grains(graph)
        self.found: dict[str, Span] = {}
        for node in reversed(graph.nodes):
            self._used(node)
            (out, *_) = node.outputs
            if out in self.found and node.op != "opaque":
                _BACK.get(node.op, _same)(self, node, self.found[out])

    def _used(self, node: Node) -> None:
        if node.op == "gather":
            extent = self._graph.types[node.inputs[0]].shape[
                whole(node.attributes, "axis")
            ]
            self.narrow(node.inputs[1], (0, max(int(extent) - 1, 0)))
        elif node.op == "equal":
            for name, other in (node.inputs, node.inputs[::-1]):
                edges = self.edges(other)
                if edges is not None and edges[0] < edges[1]:
                    self.narrow(name, edges)
        elif node.op == "opaque":
            for name in node.inputs:
                self.narrow(name, OPAQUE_SPAN)

    def edges(self, name: str) -> Span | None:
        """The least and greatest entry of a constant of whole numbers."""
        stored = self._graph.constants.get(name)
        if stored is None or not stored.size or not self._is_whole(name):
            return None
        array: Any = stored
        return int(array.min()), int(array.max())

    def grain(self, name: str) -> int:
        """What divides every value of a tensor."""
        return self._grains.get(name, 1)

    def narrow(self, name: str, span: Span) -> None:
        """Note a wish; what contradicts itself or an earlier one is passed over."""
        if not self._is_whole(name):
            return
        dtype: Any = self._graph.types[name].dtype.numpy
        limits = np.iinfo(dtype)
        span = max(span[0], int(limits.min)), min(span[1], int(limits.max))
        if span[0] > span[1]:
            return
        old = self.found.get(name, span)
        both = max(old[0], span[0]), min(old[1], span[1])
        self.found[name] = both if both[0] <= both[1] else old

    def _is_whole(self, name: str) -> bool:
        dtype = self._graph.types[name].dtype
        return not dtype.is_float and dtype is not DType.BOOL


def _same(spans: _Spans, node: Node, span: Span) -> None:
    """Operands lie where the result does."""
    for name in node.inputs:
        spans.narrow(name, span)


def _table(spans: _Spans, node: Node, span: Span) -> None:
    spans.narrow(node.inputs[0], span)


def _add(spans: _Spans, node: Node, span: Span) -> None:
    """What is left beside a constant; beside multiples of a number, the remainder."""
    low, high = span
    left, right = sorted(node.inputs, key=spans.grain)
    for name, other in ((left, right), (right, left)):
        edges = spans.edges(other)
        if edges is not None:
            spans.narrow(name, (low - edges[0], high - edges[1]))
            return
    coarse = spans.grain(right)
    most = high // coarse * coarse if coarse > spans.grain(left) else high // 2
    spans.narrow(right, (low, most))
    spans.narrow(left, (0, high - most))


def _sub(spans: _Spans, node: Node, span: Span) -> None:
    (low, high), (left, right) = span, node.inputs
    first, second = spans.edges(left), spans.edges(right)
    if second is not None:
        spans.narrow(left, (low + second[1], high + second[0]))
    elif first is not None:
        spans.narrow(right, (first[1] - high, first[0] - low))
    else:
        spans.narrow(left, (high - high // 2, high))
        spans.narrow(right, (0, high // 2))


def _mul(spans: _Spans, node: Node, span: Span) -> None:
    left, right = node.inputs
    for name, other in ((left, right), (right, left)):
        edges = spans.edges(other)
        if edges is not None and edges[0] > 0 and span[0] <= 0 <= span[1]:
            spans.narrow(name, (-(-span[0] // edges[1]), span[1] // edges[1]))
            return
    _same(spans, node, span)


_BACK: Final[Mapping[str, Callable[[_Spans, Node, Span], None]]] = MappingProxyType(
    {"gather": _table, "add": _add, "sub": _sub, "mul": _mul}
)
_GRAINS: Final[Mapping[str, Callable[..., int]]] = MappingProxyType(
    {"mul": lambda *grains: math.prod(grains), "add": math.gcd, "sub": math.gcd}
)
_MOVES: Final = frozenset({"reshape", "transpose", "expand", "slice", "cast", "concat"})


def _grains(graph: Graph) -> dict[str, int]:
    """A number above 1 for tensors of which it divides every value."""
    grains: dict[str, int] = {}
    for name, stored in graph.constants.items():
        array: Any = stored
        dtype = graph.types[name].dtype
        if not dtype.is_float and dtype is not DType.BOOL and array.size:
            grains[name] = int(np.gcd.reduce(array.reshape(-1).astype(np.int64)))
    for node in graph.nodes:
        each = [grains.get(name, 1) for name in node.inputs]
        if node.op in _GRAINS:
            grains[node.outputs[0]] = _GRAINS[node.op](*each)
        elif node.op in _MOVES:
            grains[node.outputs[0]] = math.gcd(*each)
    return {name: grain for name, grain in grains.items() if grain > 1}
