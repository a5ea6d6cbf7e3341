"""Rows and positions: how the reductions of a graph lie over one another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.body import UNROLLED_ELEMENTS
from tuner.kernel.errors import CannotLower
from tuner.kernel.index import ZERO, Index, Map, Space
from tuner.kernel.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tuner.ir.graph import Graph, Node


class Segment(NamedTuple):
    """Neighbouring axes that are all kept, or all reduced."""

    extent: int
    reduced: bool


def pattern_of(node: Node, graph: Graph) -> tuple[Segment, ...]:
    """Kept and reduced axes of a reduction, without ones, neighbours merged.

    Source: the fusion rules of the reference patterns, rule 5, "same frame".
    """
    axes = ints(node.attributes, "axes")
    found: list[Segment] = []
    for axis, extent in enumerate(shape_of(graph, node.inputs[0])):
        if extent == 1:
            continue
        reduced = axis in axes
        if found and found[-1].reduced is reduced:
            found[-1] = Segment(found[-1].extent * extent, reduced)
        else:
            found.append(Segment(extent, reduced))
    return tuple(found)


def reduced_elements(pattern: Sequence[Segment]) -> int:
    """How many elements make one result."""
    return math.prod(s.extent for s in pattern if s.reduced)


def is_empty(node: Node, graph: Graph) -> bool:
    """Whether a reduction has nothing to reduce: its result, if any, is a literal."""
    return 0 in shape_of(graph, node.inputs[0])


def _patterns(graph: Graph) -> dict[str, tuple[Segment, ...]]:
    """How the rows of each reduction of something lie, by its name."""
    return {
        node.name: pattern_of(node, graph)
        for node in graph.nodes
        if OPS[node.op].pattern is Pattern.REDUCTION and not is_empty(node, graph)
    }


def long_frames(graph: Graph) -> frozenset[tuple[Segment, ...]]:
    """Frames of the reductions that are too long to be unrolled."""
    return _long(_patterns(graph).values())


def _long(
    patterns: Iterable[tuple[Segment, ...]],
) -> frozenset[tuple[Segment, ...]]:
    return frozenset(p for p in patterns if reduced_elements(p) > UNROLLED_ELEMENTS)


def choose(graph: Graph) -> tuple[tuple[Segment, ...], frozenset[str]]:
    """The frame of a graph with reductions, and the nodes that are loops over it.

    Raises:
        CannotLower: long reductions have different frames.
    """
    patterns = _patterns(graph)
    long = _long(patterns.values())
    if len(long) > 1:
        raise CannotLower(
            "reductions", f"{len(long)} long reductions have different frames"
        )
    chosen = next(iter(long), None) or _shared(list(patterns.values()))
    framed = frozenset(name for name, p in patterns.items() if p == chosen)
    return chosen, framed


def _shared(patterns: Sequence[tuple[Segment, ...]]) -> tuple[Segment, ...]:
    """Of short frames, the last: what feeds it is unrolled."""
    return patterns[-1]


def loops_over(space: Space, segments: Sequence[Segment], *, reduced: bool) -> int:
    """Mask of the loops over rows, or of those over positions."""
    mask = 0
    for segment, atoms in zip(segments, space.axis_atoms, strict=True):
        if segment.reduced is reduced:
            mask |= sum(1 << atom for atom in atoms)
    return mask


class Ties:
    """Finds, for tensors tied to the reductions, where each point has its element."""

    def __init__(
        self,
        graph: Graph,
        space: Space,
        segments: Sequence[Segment],
        framed: frozenset[str],
    ) -> None:
        self._graph = graph
        self._space = space
        self._extents = tuple(s.extent for s in segments)
        self._framed = framed
        self._rows = loops_over(space, segments, reduced=False)
        self._positions = loops_over(space, segments, reduced=True)
        self.found: dict[str, Map] = {}

    def solve(self) -> Mapping[str, Map]:
        """Spread from each reduction's source as far as maps can be told.

        Two reductions may share a value and have their rows across each other, as the
        rows and the columns of a square do. The second is then tied by itself, and the
        value that they share is computed for each of them.
        """
        alone: dict[str, Map] = {}
        while True:
            self.found = dict(alone)
            self._solve()
            crossed = [name for name in self._crossed() if name not in alone]
            if not crossed:
                return self.found
            alone[crossed[0]] = self._straight(crossed[0])

    def _solve(self) -> None:
        for node in self._graph.nodes:
            if node.name not in self._framed or node.inputs[0] in self.found:
                continue
            self.found[node.inputs[0]] = self._straight(node.inputs[0])
            self._spread()
        if not all(self._is_done(node) for node in self._graph.nodes):
            self._spread()

    def _straight(self, source: str) -> Map:
        """Where the loops have the elements of what a reduction reads."""
        return self._space.reshape(self._space.axes, self._extents, self._shape(source))

    def _crossed(self) -> Iterator[str]:
        """What reductions read in other rows than those of the loops."""
        for node in self._graph.nodes:
            if node.name not in self._framed:
                continue
            axes = ints(node.attributes, "axes")
            for axis, index in enumerate(self.found[node.inputs[0]]):
                others = self._rows if axis in axes else self._positions
                if self._space.loops_in(index) & others:
                    yield node.inputs[0]

    def _is_done(self, node: Node) -> bool:
        return node.name not in self._framed or node.outputs[0] in self.found

    def _spread(self) -> None:
        self._back()
        self._forth()
        self._back()

    def _shape(self, tensor: str) -> tuple[int, ...]:
        return shape_of(self._graph, tensor)

    def _forth(self) -> None:
        for node in self._graph.nodes:
            out = node.outputs[0]
            if out in self.found:
                continue
            place = self._result(node)
            if place is not None:
                self.found[out] = place

    def _result(self, node: Node) -> Map | None:
        known = [name for name in node.inputs if name in self.found]
        if not known:
            return None
        if OPS[node.op].pattern is Pattern.ELEMENTWISE or node.op == "expand":
            return self._broadcast(node, known)
        return self._viewed(node, self.found[known[0]])

    def _viewed(self, node: Node, place: Map) -> Map | None:
        if node.op == "reshape":
            source, out = node.inputs[0], node.outputs[0]
            return self._space.reshape(place, self._shape(source), self._shape(out))
        if node.op == "transpose":
            return tuple(place[axis] for axis in ints(node.attributes, "perm"))
        return self._kept(node, place) if node.name in self._framed else None

    def _kept(self, node: Node, place: Map) -> Map:
        axes = ints(node.attributes, "axes")
        keep = whole(node.attributes, "keepdims")
        return tuple(
            ZERO if axis in axes else index
            for axis, index in enumerate(place)
            if keep or axis not in axes
        )

    def _broadcast(self, node: Node, known: Sequence[str]) -> Map | None:
        shape = self._shape(node.outputs[0])
        for name in known:
            if self._shape(name) == shape:
                return self.found[name]
        result: list[Index | None] = [ZERO if n == 1 else None for n in shape]
        for name in known:
            offset = len(shape) - len(self._shape(name))
            for axis, index in enumerate(self.found[name]):
                if self._shape(name)[axis] == shape[offset + axis] != 1:
                    result[offset + axis] = index
        return self._filled(result, shape)

    def _filled(
        self, result: Sequence[Index | None], shape: tuple[int, ...]
    ) -> Map | None:
        """Give axes of unknown origin the loops that are still free, in order."""
        used = {a for index in result if index is not None for a, _ in index.terms}
        free = [a for a in range(self._space.loops) if a not in used]
        extents = [self._space.atoms[atom].extent for atom in free]
        open_axes = [axis for axis, index in enumerate(result) if index is None]
        wanted = [shape[axis] for axis in open_axes]
        if math.prod(extents) != math.prod(wanted):
            return None
        loops = tuple(Index(0, ((atom, 1),)) for atom in free)
        rest = self._space.reshape(loops, extents, wanted)
        places = dict(zip(open_axes, rest, strict=True))
        return tuple(
            places[axis] if index is None else index
            for axis, index in enumerate(result)
        )

    def _back(self) -> None:
        for node in reversed(self._graph.nodes):
            place = self.found.get(node.outputs[0])
            if place is None:
                continue
            shape = self._shape(node.outputs[0])
            for name in node.inputs:
                if name not in self.found and name not in self._graph.constants:
                    source = self._source(node, name, place, shape)
                    if source is not None:
                        self.found[name] = source

    def _source(
        self, node: Node, name: str, place: Map, shape: tuple[int, ...]
    ) -> Map | None:
        if OPS[node.op].pattern is Pattern.ELEMENTWISE:
            return place if self._shape(name) == shape else None
        if node.op == "reshape":
            return self._space.reshape(place, shape, self._shape(name))
        if node.op == "transpose":
            perm = ints(node.attributes, "perm")
            order = sorted(range(len(perm)), key=perm.__getitem__)
            return tuple(place[axis] for axis in order)
        return None
