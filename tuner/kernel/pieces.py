"""Outputs that are put together: where the loops of a reduction reach them.

A concatenation, a pad or a slice behind a reduction has no map of its own from the
loops to all of its elements. It has several: one for each part that is tied to the
rows, and boxes of elements that have nothing to do with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.index import Guard, Guards, Index, Map, Space, shifted
from tuner.kernel.shapes import shape_of

if TYPE_CHECKING:
    from tuner.ir.graph import Graph, Node


class Place(NamedTuple):
    """Where each point of the loops has an element, if the guards hold."""

    map: Map
    guards: Guards


class Box(NamedTuple):
    """A block of elements: its first corner and its extents."""

    corner: tuple[int, ...]
    extents: tuple[int, ...]


class Pieces(NamedTuple):
    """Disjoint parts that make up a tensor."""

    places: tuple[Place, ...]
    boxes: tuple[Box, ...]


class Splitter:
    """Finds the pieces of tensors behind concatenations, pads and slices."""

    def __init__(self, graph: Graph, space: Space, tied: Mapping[str, Map]) -> None:
        """Look at one graph.

        Args:
            graph: whose tensors are split.
            space: the loops.
            tied: tensors that one map reaches.
        """
        self._graph = graph
        self._space = space
        self._tied = tied

    def pieces(self, tensor: str, dependent: set[str]) -> Pieces | None:
        """The pieces of a tensor, or None if it cannot be told.

        Args:
            tensor: what is split.
            dependent: tensors that depend on a reduction; others need no place.
        """
        place = self._tied.get(tensor)
        if place is not None:
            return Pieces((Place(place, ()),), ())
        if tensor not in dependent:
            return self.whole(tensor)
        return self._of_node(self._graph.producers[tensor], dependent)

    def _of_node(self, node: Node, dependent: set[str]) -> Pieces | None:
        if OPS[node.op].pattern is Pattern.ELEMENTWISE:
            return self._elementwise(node, dependent)
        if node.op == "concat":
            return self._concat(node, dependent)
        rule = _RULES.get(node.op)
        inner = self.pieces(node.inputs[0], dependent) if rule else None
        if rule is None or inner is None:
            return None
        return rule(self._graph, self._space, node, inner)

    def whole(self, tensor: str) -> Pieces:
        """A tensor that is left to a walk of its own."""
        shape = self._shape(tensor)
        return Pieces((), (Box((0,) * len(shape), shape),))

    def _shape(self, tensor: str) -> tuple[int, ...]:
        return shape_of(self._graph, tensor)

    def _elementwise(self, node: Node, dependent: set[str]) -> Pieces | None:
        shape = self._shape(node.outputs[0])
        for name in node.inputs:
            if name in dependent and self._shape(name) == shape:
                found = self.pieces(name, dependent)
                if found is not None:
                    return found
        return None

    def _concat(self, node: Node, dependent: set[str]) -> Pieces | None:
        axis = whole(node.attributes, "axis")
        places: list[Place] = []
        boxes: list[Box] = []
        start = 0
        for name in node.inputs:
            part = self.pieces(name, dependent)
            if part is None:
                return None
            offset = [0] * len(self._shape(name))
            offset[axis] = start
            moved = _moved(part, offset)
            places += moved.places
            boxes += moved.boxes
            start += self._shape(name)[axis]
        return Pieces(tuple(places), tuple(boxes))


def _moved(pieces: Pieces, offset: Sequence[int]) -> Pieces:
    """The same pieces further along in a larger tensor."""
    return Pieces(
        tuple(
            Place(tuple(map(shifted, place.map, offset)), place.guards)
            for place in pieces.places
        ),
        tuple(
            Box(tuple(map(sum, zip(box.corner, offset, strict=True))), box.extents)
            for box in pieces.boxes
        ),
    )


def _pad(graph: Graph, _: Space, node: Node, inner: Pieces) -> Pieces:
    before = ints(node.attributes, "before")
    moved = _moved(inner, before)
    source = shape_of(graph, node.inputs[0])
    shape = shape_of(graph, node.outputs[0])
    corner, extents = [0] * len(shape), list(shape)
    boxes = list(moved.boxes)
    for axis, (first, size) in enumerate(zip(before, source, strict=True)):
        for start, length in ((0, first), (first + size, shape[axis] - first - size)):
            if length:
                edge, sizes = list(corner), list(extents)
                edge[axis], sizes[axis] = start, length
                boxes.append(Box(tuple(edge), tuple(sizes)))
        corner[axis], extents[axis] = first, size
    return Pieces(moved.places, tuple(boxes))


def _slice(_: Graph, space: Space, node: Node, inner: Pieces) -> Pieces | None:
    starts, sizes = ints(node.attributes, "starts"), ints(node.attributes, "sizes")
    if inner.boxes or any(
        step != 1 and size > 1
        for step, size in zip(ints(node.attributes, "steps"), sizes, strict=True)
    ):
        return None
    places: list[Place] = []
    for place in inner.places:
        guards = list(place.guards)
        indices: list[Index] = []
        for index, start, size in zip(place.map, starts, sizes, strict=True):
            moved = shifted(index, -start)
            low, high = space.bounds(moved)
            if low < 0 or high >= size:
                guards.append(Guard(moved, 0, size))
            indices.append(moved)
        places.append(Place(tuple(indices), tuple(guards)))
    return Pieces(tuple(places), ())


def _transpose(_: Graph, __: Space, node: Node, inner: Pieces) -> Pieces:
    perm = ints(node.attributes, "perm")
    return Pieces(
        tuple(
            Place(tuple(place.map[axis] for axis in perm), place.guards)
            for place in inner.places
        ),
        tuple(
            Box(
                tuple(box.corner[axis] for axis in perm),
                tuple(box.extents[axis] for axis in perm),
            )
            for box in inner.boxes
        ),
    )


def _reshape(graph: Graph, space: Space, node: Node, inner: Pieces) -> Pieces | None:
    if inner.boxes:
        return None
    source = shape_of(graph, node.inputs[0])
    wanted = shape_of(graph, node.outputs[0])
    return Pieces(
        tuple(
            Place(space.reshape(place.map, source, wanted), place.guards)
            for place in inner.places
        ),
        (),
    )


_Rule = Callable[["Graph", Space, "Node", Pieces], Pieces | None]
_RULES: Final[Mapping[str, _Rule]] = MappingProxyType(
    {"pad": _pad, "slice": _slice, "transpose": _transpose, "reshape": _reshape}
)


def covers(space: Space, pieces: Pieces, shape: Sequence[int]) -> bool:
    """Whether disjoint pieces reach every element of a tensor exactly once."""
    reached = sum(math.prod(box.extents) for box in pieces.boxes)
    for place in pieces.places:
        volume = _volume(space, place)
        if not volume:
            return False
        reached += volume
    return reached == math.prod(shape)


def _volume(space: Space, place: Place) -> int:
    """Elements that a place reaches, each once; 0 if it cannot be told."""
    volume = 1
    seen: set[int] = set()
    allowed = {guard.subject: guard for guard in place.guards}
    if len(allowed) != len(place.guards):
        return 0
    for index in place.map:
        extent = _run_length(space, index, seen)
        guard = allowed.pop(index, None)
        if guard is not None:
            low = max(guard.low, index.constant)
            extent = max(0, min(guard.high, index.constant + extent) - low)
        volume *= extent
    return 0 if allowed else volume


def _run_length(space: Space, index: Index, seen: set[int]) -> int:
    """How many neighbours an index walks over, each once; 0 if it cannot be told."""
    running = 1
    for coefficient, atom in sorted((c, a) for a, c in index.terms):
        if coefficient != running or atom >= space.loops or atom in seen:
            return 0
        seen.add(atom)
        running *= space.atoms[atom].extent
    return running
