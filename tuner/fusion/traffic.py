"""Bytes that a kernel moves: the one metric that every plan is compared by.

Reads count only the elements that the written tensors need. That need is followed
backwards through the nodes of the kernel, element by element where a node moves
elements about (slice, gather, pad, concat), and wholesale everywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from tuner.fusion.view import ALIAS, FREE_ELEMENTS, NARROWING
from tuner.ir.graph import Graph, Node, Region
from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern

BoolArray = npt.NDArray[np.bool_]
Wanted = Literal[True] | BoolArray
"""Which elements of a tensor are needed: all of them, or those marked."""
KNOWN_BYTES: Final = 64 << 20
"""So much is remembered of which elements whole results need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Unique bytes that one kernel moves, by home tensor."""

    reads: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    writes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total_bytes(self) -> int:
        """Everything read and written."""
        return sum(self.reads.values()) + sum(self.writes.values())


Part = tuple[str, Wanted]
"""An operand and which of its elements are needed."""


class Known:
    """Which elements of its operands all of a node's result needs, by node.

    A mark takes one bit, and equal marks are kept once: the slices of all layers of a
    model are often the same. What no longer fits is worked out again.
    """

    def __init__(self, limit_bytes: int = KNOWN_BYTES) -> None:
        """Start empty."""
        self.bytes = 0
        self._limit_bytes = limit_bytes
        self._found: dict[str, tuple[tuple[str, bytes | None], ...]] = {}
        self._marks: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        """Nodes of which it is remembered."""
        return len(self._found)

    def get(self, graph: Graph, node: str) -> tuple[Part, ...] | None:
        """What is remembered of a node; None if nothing."""
        found = self._found.get(node)
        if found is None:
            return None
        return tuple(
            (name, marks is None or _unpacked(marks, graph.types[name].static_shape))
            for name, marks in found
        )

    def add(self, node: str, parts: Sequence[Part]) -> None:
        """Remember what a node needs where there is room for it."""
        packed = [
            (name, None if part is True else np.packbits(part).tobytes())
            for name, part in parts
        ]
        fresh = {marks for _, marks in packed if marks is not None} - self._marks.keys()
        size = sum(map(len, fresh))
        if self.bytes + size > self._limit_bytes:
            return
        self.bytes += size
        self._marks.update((marks, marks) for marks in fresh)
        self._found[node] = tuple(
            (name, None if marks is None else self._marks[marks])
            for name, marks in packed
        )


def _unpacked(marks: bytes, shape: tuple[int, ...]) -> BoolArray:
    flags = np.unpackbits(np.frombuffer(marks, np.uint8), count=math.prod(shape))
    return flags.view(np.bool_).reshape(shape)


def traffic(graph: Graph, region: Region, known: Known | None = None) -> Traffic:
    """Count what a kernel reads and writes.

    Constants and weights of up to 64 elements are free. A gather with run-time
    indices reads as many elements as it produces, but never more than the table has.

    Args:
        graph: the whole graph.
        region: the kernel.
        known: what was found out about nodes of this graph before; more is added.
    """
    nodes = [graph.by_name[name] for name in region.nodes]
    writes = {name: graph.types[name].bytes for name in region.outputs}
    counts = _counts(graph, nodes, region.outputs, Known() if known is None else known)
    made = {out for node in nodes for out in node.outputs}
    reads: dict[str, int] = {}
    for name, count in counts.items():
        if name in made:
            continue
        home = home_of(graph, name)
        if count and not is_free(graph, home):
            moved = count * graph.types[home].dtype.bytes
            reads[home] = max(reads.get(home, 0), moved)
    return Traffic(reads=MappingProxyType(reads), writes=MappingProxyType(writes))


def home_of(graph: Graph, name: str) -> str:
    """The tensor whose memory this one shares."""
    maker = graph.producer(name)
    while maker is not None and maker.op == ALIAS:
        name = maker.inputs[0]
        maker = graph.producer(name)
    return name


def is_free(graph: Graph, name: str) -> bool:
    """Whether reading this tensor costs nothing: a small constant or weight."""
    if graph.types[name].elements > FREE_ELEMENTS:
        return False
    return name in graph.constants or name in graph.weights


def _counts(
    graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], known: Known
) -> Mapping[str, int]:
    if not any(node.op in NARROWING for node in nodes):
        return _all_needed(graph, nodes, outputs)
    demand = _Demand(graph, known)
    for name in outputs:
        demand.want(name, wanted=True)
    for node in reversed(nodes):
        demand.back_through(node)
    return {name: demand.count(name) for name in demand.touched}


def _all_needed(
    graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]
) -> Mapping[str, int]:
    """Without narrowing operators, what is needed at all is needed in full."""
    wanted = set(outputs)
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
    return {name: graph.types[name].elements for name in wanted}


class _Demand:
    """Elements that a kernel needs of every tensor it touches."""

    def __init__(self, graph: Graph, known: Known) -> None:
        self.graph = graph
        self.known = known
        self.marked: dict[str, Wanted] = {}
        self.looked_up: dict[str, int] = {}

    @property
    def touched(self) -> set[str]:
        return {*self.marked, *self.looked_up}

    def want(self, tensor: str, wanted: Wanted) -> None:
        before = self.marked.get(tensor)
        if before is True:
            return
        if wanted is not True:
            if before is not None:
                wanted = before | wanted
            if bool(wanted.all()):
                wanted = True
        self.marked[tensor] = wanted

    def look_up(self, tensor: str, count: int) -> None:
        if count:
            limit = self._elements(tensor)
            self.looked_up[tensor] = min(limit, self.looked_up.get(tensor, 0) + count)

    def count(self, tensor: str) -> int:
        wanted = self.marked.get(tensor)
        if wanted is True:
            return self._elements(tensor)
        known = 0 if wanted is None else int(wanted.sum())
        return min(self._elements(tensor), known + self.looked_up.get(tensor, 0))

    def back_through(self, node: Node) -> None:
        """Turn what is needed of the outputs into what is needed of the inputs."""
        extra = max(self.looked_up.get(name, 0) for name in node.outputs)
        needed = [self.marked.get(name) for name in node.outputs]
        if not extra and all(wanted is None for wanted in needed):
            return
        wanted = needed[0] if len(needed) == 1 else True
        match OPS[node.op].pattern:
            case Pattern.ELEMENTWISE:
                self._elementwise(node, wanted, extra)
            case Pattern.INJECTIVE:
                self._injective(node, wanted, extra)
            case Pattern.REDUCTION:
                self._reduction(node, wanted, extra)
            case _:
                for name in node.inputs:
                    self.want(name, wanted=True)

    def _elementwise(self, node: Node, wanted: Wanted | None, extra: int) -> None:
        for name in node.inputs:
            if wanted is True:
                self.want(name, wanted=True)
            elif wanted is not None:
                self.want(name, _unbroadcast(wanted, self._shape(name)))
            self.look_up(name, extra)

    def _injective(self, node: Node, wanted: Wanted | None, extra: int) -> None:
        if node.op == "gather" and node.inputs[1] not in self.graph.constants:
            self._lookup(node, wanted, extra)
            return
        names = node.inputs if node.op == "concat" else node.inputs[:1]
        for name in names:
            self.look_up(name, extra)
        if wanted is True and node.op not in NARROWING:
            for name in names:
                self.want(name, wanted=True)
        elif wanted is not None:
            self._follow(node, names, wanted)

    def _follow(self, node: Node, names: Sequence[str], wanted: Wanted) -> None:
        found = self.known.get(self.graph, node.name) if wanted is True else None
        if found is None:
            found = self._followed(node, names, wanted)
            if wanted is True:
                self.known.add(node.name, found)
        for name, part in found:
            self.want(name, part)

    def _followed(
        self, node: Node, names: Sequence[str], wanted: Wanted
    ) -> tuple[Part, ...]:
        """Operands of which something is needed, and what."""
        codes, start = [], 0
        for name in names:
            count = self._elements(name)
            codes.append(np.arange(start, start + count).reshape(self._shape(name)))
            start += count
        moved = move(self.graph, node, codes, filler=-1)
        chosen = moved.ravel() if wanted is True else moved[wanted]
        hit = np.zeros(start, dtype=np.bool_)
        hit[chosen[chosen >= 0]] = True
        found: list[Part] = []
        start = 0
        for name in names:
            part = hit[start : start + self._elements(name)]
            if part.any():
                is_whole = bool(part.all())
                found.append((name, is_whole or part.reshape(self._shape(name))))
            start += self._elements(name)
        return tuple(found)

    def _lookup(self, node: Node, wanted: Wanted | None, extra: int) -> None:
        table, index = node.inputs
        result = self._elements(node.outputs[0])
        count = result
        if wanted is not True:
            count = 0 if wanted is None else int(wanted.sum())
        self.look_up(table, min(result, count + extra))
        if wanted is True or extra:
            self.want(index, wanted=True)
        elif wanted is not None:
            first = whole(node.attributes, "axis")
            last = first + len(self._shape(index))
            others = tuple(a for a in range(wanted.ndim) if not first <= a < last)
            self.want(index, np.asarray(wanted.any(axis=others)))

    def _reduction(self, node: Node, wanted: Wanted | None, extra: int) -> None:
        name = node.inputs[0]
        shape, axes = self._shape(name), ints(node.attributes, "axes")
        if wanted is True:
            self.want(name, wanted=True)
        elif wanted is not None:
            kept = tuple(1 if a in axes else dim for a, dim in enumerate(shape))
            self.want(name, np.broadcast_to(wanted.reshape(kept), shape))
        self.look_up(name, extra * math.prod(shape[axis] for axis in axes))

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.graph.types[name].static_shape

    def _elements(self, name: str) -> int:
        return self.graph.types[name].elements


def _unbroadcast(wanted: BoolArray, shape: tuple[int, ...]) -> BoolArray:
    lead = wanted.ndim - len(shape)
    axes = tuple(
        axis
        for axis, dim in enumerate(wanted.shape)
        if axis < lead or (shape[axis - lead] == 1 and dim != 1)
    )
    return np.asarray(wanted.any(axis=axes, keepdims=True)).reshape(shape)


def move(
    graph: Graph,
    node: Node,
    arrays: Sequence[npt.NDArray[np.int64]],
    *,
    filler: int,
) -> npt.NDArray[np.int64]:
    """Apply an injective node to arrays that stand for its data operands.

    A gather must have constant indices.
    """
    attributes = node.attributes
    if node.op == "pad":
        before, after = ints(attributes, "before"), ints(attributes, "after")
        widths = list(zip(before, after, strict=True))
        if not widths:
            return arrays[0]
        return np.pad(arrays[0], widths, constant_values=filler)
    reference = OPS[node.op].reference
    assert reference is not None
    operands = list(arrays)
    if node.op == "gather":
        operands.append(graph.constants[node.inputs[1]].astype(np.int64))
    return np.asarray(reference(operands, attributes)[0], dtype=np.int64)
