"""Lowering of contractions: what runs along rows, along columns, and is summed up.

Several contractions in one kernel stand side by side: a group of loops for each, with
blocks of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.arrange import arranged, built, make_group
from tuner.kernel.body import Anchor, Body, Frame
from tuner.kernel.errors import CannotLower
from tuner.kernel.index import (
    ZERO,
    Guard,
    Guards,
    Index,
    Map,
    Space,
    flatten,
    plus,
    shifted,
    times,
)
from tuner.kernel.nest import Group, Kind
from tuner.kernel.shapes import shape_of
from tuner.kernel.views import Key

if TYPE_CHECKING:
    from tuner.ir.graph import Graph, Node

FEWEST_TILED: Final = 8
"""Fewer rows, columns or terms than this do not pay for tiles."""


class Axes(NamedTuple):
    """The axes that a contraction iterates over, by what they do.

    Attributes:
        extents: of all axes.
        outer, rows, inner, reduced: numbers of axes.
        anchor: how the contraction lies in a space of these axes.
    """

    extents: tuple[int, ...]
    outer: tuple[int, ...]
    rows: tuple[int, ...]
    inner: tuple[int, ...]
    reduced: tuple[int, ...]
    anchor: Callable[[Space], Anchor]

    def points(self, axes: Sequence[int]) -> int:
        """Number of points of some axes together."""
        return math.prod(self.extents[axis] for axis in axes)

    @property
    def is_tiled(self) -> bool:
        """Whether there is enough of everything for tiles."""
        sizes = map(self.points, (self.rows, self.inner, self.reduced))
        return min(sizes) >= FEWEST_TILED


def contractions(
    graph: Graph, slots: Mapping[str, int], outputs: Sequence[str]
) -> tuple[Group, ...]:
    """The groups of contractions that stand side by side, in graph order.

    Raises:
        CannotLower: an output needs two contractions, or none; or they are so unequal
            that no schedule suits all of them.
    """
    nodes = [n for n in graph.nodes if OPS[n.op].pattern is Pattern.CONTRACTION]
    above = _contractions_above(graph, {node.name for node in nodes})
    for name in outputs:
        if len(above[name]) != 1:
            raise CannotLower(name, f"follows {len(above[name])} contractions")
    groups = tuple(
        _contraction(graph, slots, node, own)
        for node in nodes
        if (own := [name for name in outputs if node.name in above[name]])
    )
    if len({group.kind for group in groups}) > 1:
        raise CannotLower(nodes[0].name, "some products beside it are too small")
    return groups


def _contractions_above(graph: Graph, names: set[str]) -> Mapping[str, frozenset[str]]:
    """The contractions that each tensor depends on."""
    found: dict[str, frozenset[str]] = {}
    for node in graph.nodes:
        above = frozenset().union(*(found.get(t, frozenset()) for t in node.inputs))
        if node.name in names:
            above |= {node.name}
        found.update(dict.fromkeys(node.outputs, above))
    return {name: found.get(name, frozenset()) for name in graph.types}


def _contraction(
    graph: Graph, slots: Mapping[str, int], node: Node, outputs: Sequence[str]
) -> Group:
    """The group of one contraction, its prologue and its epilogue.

    Raises:
        CannotLower: an output does not have the elements of the result, each at one
            place.
    """
    axes = _AXES[node.op](graph, node)

    def build(space: Space) -> Body:
        anchor = axes.anchor(space)
        places = _behind(graph, space, node.outputs[0], anchor.place)
        reduced = _mask(_loops(space, axes.reduced))
        body = Body(graph, slots, space, Frame({}, frozenset(), reduced, anchor))
        for name in outputs:
            if name not in places:
                raise CannotLower(name, "does not follow the contraction, one to one")
            body.store(name, Key(name, places[name], ()), places[name], ())
        return body

    body = built(axes.extents, build)
    if not axes.is_tiled:
        return arranged(body)
    return make_group(
        body,
        Kind.TILE,
        outer=_loops(body.space, axes.outer),
        rows=_loops(body.space, axes.rows),
        inner=_loops(body.space, axes.inner),
        serial=_loops(body.space, axes.reduced),
    )


def _loops(space: Space, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(loop for axis in axes for loop in space.axis_atoms[axis])


def _mask(loops: Sequence[int]) -> int:
    return sum(1 << loop for loop in loops)


def _behind(graph: Graph, space: Space, start: str, place: Map) -> Mapping[str, Map]:
    """Where each point has its element, for all that follows one to one."""
    places = {start: place}
    for node in graph.nodes:
        for name in node.inputs:
            if name in places:
                found = _onward(graph, space, node, name, places[name])
                if found is not None:
                    places.setdefault(node.outputs[0], found)
    return places


def _onward(
    graph: Graph, space: Space, node: Node, name: str, place: Map
) -> Map | None:
    shape, wanted = shape_of(graph, name), shape_of(graph, node.outputs[0])
    if OPS[node.op].pattern is Pattern.ELEMENTWISE:
        if math.prod(shape) != math.prod(wanted):
            return None
        return (ZERO,) * (len(wanted) - len(shape)) + place
    if node.op == "reshape":
        return space.reshape(place, shape, wanted)
    if node.op == "transpose":
        return tuple(place[axis] for axis in ints(node.attributes, "perm"))
    return None


# Matrix products


def _matmul(graph: Graph, node: Node) -> Axes:
    left, right = (shape_of(graph, name) for name in node.inputs)
    result = shape_of(graph, node.outputs[0])
    rows, columns = len(left) > 1, len(right) > 1
    batches = tuple(range(len(result) - rows - columns))
    row_axes = (len(batches),) if rows else ()
    inner = (len(batches) + rows,) if columns else ()
    is_flat = math.prod(right[:-2]) == 1  # then batches are more rows

    def anchor(space: Space) -> Anchor:
        place, term = space.axes[:-1], space.axes[-1]
        batch = place[: len(batches)]
        row = place[len(batches) : len(batches) + rows]
        column = place[len(batches) + rows :]
        at = (*_shared(batch, left[:-2]), *row, term)
        to = (*_shared(batch, right[:-2]), term, *column)
        return Anchor(
            node=node.name,
            place=place,
            left=Key(node.inputs[0], at, ()),
            right=Key(node.inputs[1], to, ()),
        )

    return Axes(
        extents=(*result, left[-1]),
        outer=() if is_flat else batches,
        rows=(*batches, *row_axes) if is_flat else row_axes,
        inner=inner,
        reduced=(len(result),),
        anchor=anchor,
    )


def _shared(batch: Map, extents: Sequence[int]) -> Map:
    """Map of an operand's batch axes, which may be broadcast."""
    tail = batch[len(batch) - len(extents) :]
    return tuple(
        ZERO if extent == 1 else index
        for extent, index in zip(extents, tail, strict=True)
    )


# Convolutions


def _conv(graph: Graph, node: Node) -> Axes:
    """An implicit matrix product: weights times a view of the data.

    The axes are batch, group, channel of the group, positions; then those that are
    summed up: channels of the data, positions in the window.
    """
    data, weights = (shape_of(graph, name) for name in node.inputs[:2])
    result = shape_of(graph, node.outputs[0])
    group = whole(node.attributes, "group")
    rank = len(data) - 2
    extents = (data[0], group, weights[0] // group, *result[2:], *weights[1:])
    spatial = tuple(range(3, 3 + rank))

    def anchor(space: Space) -> Anchor:
        batch, part, channel = space.axes[:3]
        window = space.axes[4 + rank :]
        source = flatten((part, space.axes[3 + rank]), (group, weights[1]))
        made = flatten((part, channel), (group, weights[0] // group))
        positions, guards = _window(space, node, data[2:], window)
        at = (made, *space.axes[3 + rank :])
        return Anchor(
            node=node.name,
            place=(batch, made, *space.axes[3 : 3 + rank]),
            left=Key(node.inputs[1], at, ()),
            right=Key(node.inputs[0], (batch, source, *positions), guards),
            addends=tuple(Key(name, (made,), ()) for name in node.inputs[2:]),
        )

    return Axes(
        extents=extents,
        outer=(1,),
        rows=(2,),
        inner=(0, *spatial),
        reduced=tuple(range(3 + rank, len(extents))),
        anchor=anchor,
    )


def _window(
    space: Space, node: Node, extents: Sequence[int], window: Map
) -> tuple[Map, Guards]:
    """Where a window finds its data, and when that is not padding."""
    strides = ints(node.attributes, "strides")
    dilations, pads = ints(node.attributes, "dilations"), ints(node.attributes, "pads")
    found: list[Index] = []
    guards: list[Guard] = []
    for axis, extent in enumerate(extents):
        first = times(space.axes[3 + axis], strides[axis])
        inside = times(window[axis], dilations[axis])
        index = shifted(plus(first, inside), -pads[axis])
        low, high = space.bounds(index)
        if low < 0 or high >= extent:
            guards.append(Guard(index, 0, extent))
        found.append(index)
    return tuple(found), tuple(guards)


_AXES: Final[Mapping[str, Callable[[Graph, Node], Axes]]] = MappingProxyType(
    {"matmul": _matmul, "conv": _conv}
)
