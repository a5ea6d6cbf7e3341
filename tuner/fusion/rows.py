"""Whether all reductions of a kernel work on the same rows.

A value that depends on a reduced value belongs to the row it came from. It may be
repeated only over the positions of that row, and may not meet a value of another row.
The rules are those of the fusion patterns: same frame, rows stay apart, back over the
same rows, short enough to hold, short inner loops unrolled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.fusion import labels
from tuner.fusion.labels import Affine, Label
from tuner.fusion.traffic import move
from tuner.fusion.view import ALIAS, View, bits, joined
from tuner.ir.graph import Graph, Node
from tuner.ir.inference import ints
from tuner.ir.ops import OPS, Pattern

UNROLL_LIMIT: Final = 16
"""Longest reduction that counts as an unrolled inner loop."""
ROW_LIMIT: Final = 16384
"""Longest row over which the fusion patterns reuse a reduced value. Kernels of ours
walk along a row again when they cannot hold it, which costs no more than a second
kernel that reads it: what they can do has no such limit."""

Frame = tuple[tuple[int, bool], ...]
"""Extents of an iteration space, each with whether it is reduced."""


class _Broken(Exception):
    """A rule is broken; the message says which and where."""


def frame(graph: Graph, node: Node) -> Frame:
    """Iteration space of a reduction, without unit and split-up axes."""
    axes = ints(node.attributes, "axes")
    found: list[tuple[int, bool]] = []
    for axis, extent in enumerate(graph.types[node.inputs[0]].static_shape):
        reduced = axis in axes
        if extent == 1:
            continue
        if found and found[-1][1] == reduced:
            found[-1] = (found[-1][0] * extent, reduced)
        else:
            found.append((extent, reduced))
    return tuple(found)


def row_length(graph: Graph, node: Node) -> int:
    """How many elements one output of a reduction is made of."""
    shape = graph.types[node.inputs[0]].static_shape
    return math.prod(shape[axis] for axis in ints(node.attributes, "axes"))


def row_fault(
    graph: Graph,
    nodes: Sequence[Node],
    *,
    unroll: int = UNROLL_LIMIT,
    longest: int | None = ROW_LIMIT,
) -> str:
    """The first rule that a set of pointwise and reduction nodes breaks, or "".

    Args:
        graph: where the nodes live.
        nodes: in graph order, with the reshapes that they read through.
        unroll: longest inner reduction without a frame; 1 forbids them.
        longest: longest row that is read again for a reduced value; None is any.
    """
    return _judged(graph, nodes, unroll, longest).fault


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What is known of one set of nodes.

    Attributes:
        fault: the first rule that it breaks, or "".
        frames: the iteration space of each reduction that has one, with its name, in
            graph order.
    """

    fault: str
    frames: tuple[tuple[Frame, str], ...]


def _judged(
    graph: Graph, nodes: Sequence[Node], unroll: int, longest: int | None
) -> _Judged:
    rows = _Rows(graph, nodes, unroll, longest)
    try:
        rows.run()
    except _Broken as broken:
        return _Judged(fault=str(broken), frames=rows.frames)
    return _Judged(fault="", frames=rows.frames)


class RowFaults:
    """Faults of many sets of nodes of one graph; equal parts are looked at once.

    A node says something about rows only if it is a reduction or depends on one in the
    same kernel: of what comes before, no value belongs to a row yet. Such nodes fall
    into parts that share no value. Labels pass along values alone, so parts are judged
    one by one; all that ties them together is that their rows must be the same.
    """

    def __init__(self, view: View, longest: int | None = ROW_LIMIT) -> None:
        """Start with nothing known.

        Args:
            view: the graph.
            longest: longest row that is read again for a reduced value; None is any.
        """
        self._view = view
        self._longest = longest
        self._parts: dict[int, _Judged] = {}
        self._faults: dict[int, str] = {}

    @property
    def judged(self) -> int:
        """Parts that have been looked at."""
        return len(self._parts)

    def fault(self, mask: int) -> str:
        """The first rule that the nodes of a mask break, or "".

        Where rows have no greatest length, kernels are those of ours: nodes that share
        no computed value are then loops side by side, each over its own rows.
        """
        found = self._joint(mask)
        if not found or self._longest is not None:
            return found
        beside = list(self._apart(mask))
        if len(beside) < 2:  # noqa: PLR2004
            return found
        return next((fault for fault in map(self._joint, beside) if fault), "")

    def _joint(self, mask: int) -> str:
        """The first rule that nodes break as one loop."""
        view = self._view
        behind = mask & view.masks[Pattern.REDUCTION]
        for i in bits(joined(view.below, behind) & mask & ~behind):
            if view.before[i] & behind:
                behind |= 1 << i
        found = self._faults.get(behind)
        if found is None:
            parts = [self._part(part) for part in self._apart(behind)]
            found = self._faults[behind] = self._together(parts)
        return found

    def _apart(self, mask: int) -> Iterator[int]:
        """The parts of a mask that no value leads from one to another."""
        near, rest = self._view.near, mask
        while rest:
            part, front = 0, rest & -rest
            while front:
                part |= front
                reached = 0
                for i in bits(front):
                    reached |= near[i]
                front = reached & rest & ~part
            rest &= ~part
            yield part

    def _part(self, mask: int) -> _Judged:
        found = self._parts.get(mask)
        if found is None:
            graph = self._view.graph
            names = self._view.region(mask, 0).nodes
            nodes = [graph.by_name[name] for name in names]
            found = self._parts[mask] = _judged(
                graph, nodes, UNROLL_LIMIT, self._longest
            )
        return found

    @staticmethod
    def _together(parts: Sequence[_Judged]) -> str:
        frames = dict(pair for part in parts for pair in part.frames)
        return _frames_fault(frames) or next((p.fault for p in parts if p.fault), "")


def _frames_fault(frames: Mapping[Frame, str]) -> str:
    if len(frames) <= 1:
        return ""
    names = ", ".join(sorted(frames.values()))
    return f"reductions over different rows: {names}"


def _is_reduction(node: Node) -> bool:
    return OPS[node.op].pattern is Pattern.REDUCTION


class _Rows:
    def __init__(
        self, graph: Graph, nodes: Sequence[Node], unroll: int, longest: int | None
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.unroll = unroll
        self.longest = longest
        self.labels: dict[str, Label] = {}
        self.unrolled: dict[str, int] = {}
        self.inner = self._inner_reductions()
        self.outer = [n for n in nodes if _is_reduction(n) and n.name not in self.inner]
        self.frames = tuple((frame(graph, node), node.name) for node in self.outer)
        self.frame: Frame = ()

    def run(self) -> None:
        frames = dict(self.frames)
        fault = _frames_fault(frames)
        if fault:
            raise _Broken(fault)
        if not frames:
            return
        (self.frame,) = frames
        for node in self.nodes:
            self._forward(node)

    def _inner_reductions(self) -> set[str]:
        """Short reductions that feed a reduction with another frame."""
        reductions = [node for node in self.nodes if _is_reduction(node)]
        if not reductions:
            return set()
        first, *others = (frame(self.graph, node) for node in reductions)
        if all(other == first for other in others):
            return set()
        below: dict[str, set[Frame]] = {}
        inner = set()
        for node in reversed(self.nodes):
            frames: set[Frame] = set()
            for name in node.outputs:
                frames |= below.get(name, set())
            if _is_reduction(node):
                own = frame(self.graph, node)
                short = row_length(self.graph, node) <= self.unroll
                if short and frames - {own}:
                    inner.add(node.name)
                frames = frames | {own}
            for name in node.inputs:
                below[name] = below.get(name, set()) | frames
        return inner

    def _forward(self, node: Node) -> None:
        if _is_reduction(node):
            self._reduce(node)
            return
        self._carry_unroll(node, 1)
        if not self.labels:
            return  # nothing before depends on a reduced value
        known = [self.labels.get(name) for name in node.inputs]
        if all(label is None for label in known):
            return
        if OPS[node.op].pattern is Pattern.ELEMENTWISE:
            self.labels[node.outputs[0]] = self._pointwise(node, known)
        else:
            self.labels[node.outputs[0]] = self._layout(node, known)

    def _carry_unroll(self, node: Node, factor: int) -> None:
        if factor == 1 and not self.unrolled:
            return
        if node.op == ALIAS and node.inputs[0] not in self.unrolled:
            return
        depth = factor * max(
            (self.unrolled.get(name, 1) for name in node.inputs), default=1
        )
        if depth > self.unroll and depth > 1:
            raise _Broken(f"{node.name}: {depth} elements a value are too many")
        for name in node.outputs:
            self.unrolled[name] = depth

    def _reduce(self, node: Node) -> None:
        label = self.labels.get(node.inputs[0])
        if node.name in self.inner:
            self._carry_unroll(node, row_length(self.graph, node))
            if label is None:
                return
        if label is not None:
            self._check_length(node)
        axes = ints(node.attributes, "axes")
        shape = self._shape(node.inputs[0])
        groups = labels.grouped(label, axes, shape)
        if groups is None:
            raise _Broken(f"{node.name}: reduces across rows of an earlier result")
        self.labels[node.outputs[0]] = labels.reshape(
            groups, self._shape(node.outputs[0])
        )

    def _pointwise(self, node: Node, known: Sequence[Label | None]) -> Label:
        shape = self._shape(node.outputs[0])
        total: Label | None = None
        for label in known:
            if label is None:
                continue
            full = labels.spread(label, shape)
            if math.prod(label.shape) < math.prod(shape):
                self._check_spread(node, full)
            total = labels.join(total, full)
            if total is None:
                raise _Broken(f"{node.name}: mixes values of different rows")
        assert total is not None
        return total

    def _layout(self, node: Node, known: Sequence[Label | None]) -> Label:
        first = known[0]
        attributes = node.attributes
        shape = self._shape(node.outputs[0])
        if first is not None:
            if node.op == ALIAS:
                return labels.reshape(first, shape)
            if node.op == "transpose":
                return labels.permuted(first, ints(attributes, "perm"))
            if node.op == "slice":
                keys = ("starts", "steps", "sizes")
                return labels.cut(first, *(ints(attributes, k) for k in keys))
            if node.op == "expand":
                full = labels.spread(first, shape)
                self._check_spread(node, full)
                return full
        return self._by_element(node, known)

    def _by_element(self, node: Node, known: Sequence[Label | None]) -> Label:
        """Concatenation, padding, gathers: follow every element."""
        if node.op == "gather" and node.inputs[1] not in self.graph.constants:
            raise _Broken(f"{node.name}: run-time gather of a reduced value")
        operands = known if node.op == "concat" else known[:1]
        arrays = []
        for name, label in zip(node.inputs, operands, strict=False):
            shape = self._shape(name)
            empty = np.full(shape, -1, dtype=np.int64)
            arrays.append(empty if label is None else labels.array_of(label))
        return move(self.graph, node, arrays, filler=-1)

    def _check_spread(self, node: Node, label: Label) -> None:
        """A reduced value is repeated: only over its own rows, and short ones."""
        self._check_length(node)
        shape = [extent for extent, _ in self.frame]
        own = tuple(1 if reduced else extent for extent, reduced in self.frame)
        across = [at for at, (_, reduced) in enumerate(self.frame) if reduced]
        size = math.prod(label.shape)
        kept = math.prod(own)
        if size != math.prod(shape) and len(across) == 1:
            shape[across[0]] = size // kept
        numbers = labels.counting(own)
        expected = Affine(offset=0, shape=tuple(shape), strides=numbers.strides)
        if not labels.same_order(label, expected):
            raise _Broken(f"{node.name}: repeats a reduced value across other rows")

    def _check_length(self, node: Node) -> None:
        length = max(row_length(self.graph, other) for other in self.outer)
        if self.longest is not None and length > self.longest:
            raise _Broken(f"{node.name}: rows of {length} elements are too long")

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.graph.types[name].static_shape
