"""From a small graph to its loop nest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.ir.ops import OPS, Pattern
from tuner.kernel.arrange import arranged, built, cut, make_group
from tuner.kernel.body import NO_FRAME, Body, Frame
from tuner.kernel.boxes import boxes_of
from tuner.kernel.contraction import contractions
from tuner.kernel.errors import CannotLower
from tuner.kernel.families import family_of
from tuner.kernel.frames import (
    Ties,
    choose,
    is_empty,
    long_frames,
    loops_over,
    pattern_of,
)
from tuner.kernel.index import Map, Space, shifted, strides_of
from tuner.kernel.nest import Group, Kind, LoopNest, Tensor
from tuner.kernel.pieces import Box, Pieces, Splitter, covers
from tuner.kernel.shapes import is_static, shape_of
from tuner.kernel.views import Key
from tuner.plan import Family

if TYPE_CHECKING:
    from tuner.ir.graph import Graph, Node

_FAMILIES = (Family.POINTWISE, Family.REDUCTION, Family.CONTRACTION, Family.WINDOW)


def lower(graph: Graph) -> LoopNest:
    """The loop nest that computes a small graph's outputs.

    Args:
        graph: of primitive operators with static shapes, as `extract` gives it.

    Raises:
        CannotLower: no family here can run the graph.
    """
    family = family_of(graph)
    if family not in _FAMILIES:
        raise CannotLower(family.value, "runs in a library")
    if not is_static(graph):
        raise CannotLower("shapes", "symbolic dimensions", hint="bind them first")
    tensors = _tensors(graph)
    slots = {tensor.name: slot for slot, tensor in enumerate(tensors)}
    outputs = [name for name in graph.outputs if graph.types[name].elements]
    groups: list[Group] = []
    if family is Family.REDUCTION and outputs and _has_rows(graph):
        groups, outputs = _reductions(graph, slots, outputs)
    elif family is Family.CONTRACTION and outputs:
        groups += contractions(graph, slots, outputs)
        outputs = []
    for names in _alike(graph, outputs):
        groups += _pointwise(graph, slots, names)
    return LoopNest(family=family, tensors=tensors, groups=tuple(groups), graph=graph)


def _has_rows(graph: Graph) -> bool:
    return any(
        OPS[node.op].pattern is Pattern.REDUCTION and not is_empty(node, graph)
        for node in graph.nodes
    )


def _tensors(graph: Graph) -> tuple[Tensor, ...]:
    names = [(name, False) for name in graph.inputs]
    names += [(name, False) for name in graph.weights]
    names += [(name, True) for name in graph.outputs]
    return tuple(
        Tensor(
            name=name,
            dtype=graph.types[name].dtype,
            elements=graph.types[name].elements,
            is_output=is_output,
        )
        for name, is_output in names
    )


# Pointwise


def _alike(graph: Graph, outputs: Sequence[str]) -> list[list[str]]:
    """Outputs that one walk can store together: equal elements in equal order."""
    found: list[tuple[tuple[int, ...], list[str]]] = []
    for name in outputs:
        shape = tuple(n for n in shape_of(graph, name) if n != 1)
        home = next((names for other, names in found if _same_walk(other, shape)), None)
        if home is None:
            found.append((shape, [name]))
        else:
            home.append(name)
    return [names for _, names in found]


def _same_walk(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether one shape is the other with neighbouring axes merged."""
    if left == right:
        return True
    if math.prod(left) != math.prod(right):
        return False
    a, b = set(strides_of(left)), set(strides_of(right))
    return a <= b or b <= a


def _pointwise(
    graph: Graph, slots: Mapping[str, int], names: Sequence[str]
) -> list[Group]:
    """Groups for outputs that one walk can store: one, or one for each kind of box."""
    boxes = boxes_of(graph, names)
    if len(boxes) > 1:
        return [
            _boxes(
                graph, slots, names, [box for box in boxes if box.extents == extents]
            )
            for extents in dict.fromkeys(box.extents for box in boxes)
        ]
    finest = max(names, key=lambda name: len(graph.types[name].shape))
    extents = shape_of(graph, finest)

    def build(space: Space) -> Body:
        body = Body(graph, slots, space, NO_FRAME)
        for name in names:
            place = space.reshape(space.axes, extents, body.shape(name))
            body.store(name, Key(name, place, ()), place, ())
        return body

    return [_flat(built(extents, build))]


def _boxes(
    graph: Graph, slots: Mapping[str, int], names: Sequence[str], boxes: Sequence[Box]
) -> Group:
    """A group for boxes of outputs that have equal extents."""

    def build(space: Space) -> Body:
        body = Body(graph, slots, space, NO_FRAME)
        for box, name in itertools.product(boxes, names):
            place = tuple(map(shifted, space.axes, box.corner))
            body.store(name, Key(name, place, ()), place, ())
        return body

    return _flat(built(boxes[0].extents, build))


def _flat(body: Body) -> Group:
    outer, inner = cut(body, tuple(range(body.space.loops)))
    return make_group(body, Kind.POINTWISE, outer, inner, ())


# Reductions


def _reductions(
    graph: Graph, slots: Mapping[str, int], outputs: Sequence[str]
) -> tuple[list[Group], list[str]]:
    """Groups of all reductions, the longest first, and outputs that are none of theirs.

    Nodes that share no computed value are loops side by side if their rows differ.
    """
    found: list[Group] = []
    rest: list[Group] = []
    others: list[str] = []
    for own in _side_by_side(graph):
        mine = [name for name in outputs if name in own.outputs]
        if not mine or not _has_rows(own):
            others += mine
            continue
        group, left = _reduction(own, slots, mine)
        found.append(group)
        for name, box in left:
            if box.extents == shape_of(graph, name):
                others.append(name)
            else:
                rest.append(_boxes(graph, slots, [name], [box]))
    found.sort(key=lambda group: -group.serial_points * group.inner_points)
    return found + rest, others


def _side_by_side(graph: Graph) -> list[Graph]:
    """Components of a graph with rows of their own; the whole where they are alike."""
    frames = {
        pattern_of(node, graph)
        for node in graph.nodes
        if OPS[node.op].pattern is Pattern.REDUCTION and not is_empty(node, graph)
    }
    found = loops(graph) if len(frames) > 1 else ()
    if len(found) < 2:  # noqa: PLR2004
        return [graph]
    made = [{out for node in nodes for out in node.outputs} for nodes in found]
    return [
        replace(
            graph,
            nodes=tuple(nodes),
            outputs=tuple(name for name in graph.outputs if name in own),
        )
        for nodes, own in zip(found, made, strict=True)
    ]


def loops(graph: Graph) -> list[list[Node]]:
    """Nodes in graph order, by components each of which one loop can be.

    Nobody computes a view of what is given. Where long reductions over different rows
    share nothing but such views, each loop has them for itself.
    """
    found: list[list[Node]] = []
    for nodes in components(graph):
        alone = replace(graph, nodes=tuple(nodes))
        found += _without_views(alone) if len(long_frames(alone)) > 1 else [nodes]
    return found


def _without_views(graph: Graph) -> list[list[Node]]:
    """Components that share views of what is given at most, each with its views."""
    views: dict[str, Node] = {}
    for node in graph.nodes:
        out = node.outputs[0]
        if node.op != "reshape" or out in graph.outputs:
            continue
        if node.inputs[0] in views or node.inputs[0] not in graph.producers:
            views[out] = node
    rest = tuple(node for node in graph.nodes if node.outputs[0] not in views)
    return [
        [*_needed_views(views, nodes), *nodes]
        for nodes in components(replace(graph, nodes=rest))
    ]


def _needed_views(views: Mapping[str, Node], nodes: Sequence[Node]) -> list[Node]:
    """The views that some nodes read, each after the one that it is a view of."""
    needed = {name for node in nodes for name in node.inputs}
    found = []
    for name, view in reversed(tuple(views.items())):
        if name in needed:
            found.append(view)
            needed.update(view.inputs)
    return found[::-1]


def components(graph: Graph) -> list[list[Node]]:
    """Nodes in graph order, by components that share no computed value."""
    home: dict[str, int] = {}
    found: list[list[Node]] = []
    for node in graph.nodes:
        near = sorted({home[name] for name in node.inputs if name in home})
        at = near[0] if near else len(found)
        if not near:
            found.append([])
        for other in near[1:]:
            found[at] += found[other]
            found[other] = []
        found[at].append(node)
        home |= {out: at for each in found[at] for out in each.outputs}
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    return [sorted(nodes, key=lambda n: places[n.name]) for nodes in found if nodes]


def _reduction(
    graph: Graph, slots: Mapping[str, int], outputs: Sequence[str]
) -> tuple[Group, list[tuple[str, Box]]]:
    """The group of everything tied to the reductions, and the boxes left over."""
    segments, framed = choose(graph)
    dependent = _dependent(graph, framed)
    left: list[tuple[str, Box]] = []

    def build(space: Space) -> Body:
        left.clear()
        ties = Ties(graph, space, segments, framed).solve()
        splitter = Splitter(graph, space, ties)
        frame = Frame(ties, framed, loops_over(space, segments, reduced=True))
        body = Body(graph, slots, space, frame)
        for name in outputs:
            pieces = splitter.pieces(name, dependent)
            if pieces is not None and not _is_reached(body, name, pieces):
                pieces = None
            if pieces is None and name in dependent:
                raise CannotLower(name, "rows of this output cannot be told apart")
            if pieces is None:
                pieces = splitter.whole(name)
            for place in pieces.places:
                key = Key(name, place.map, place.guards)
                body.store(name, key, place.map, place.guards)
            left.extend((name, box) for box in pieces.boxes)
        return body

    body = built([s.extent for s in segments], build)
    return arranged(body), list(left)


def _is_reached(body: Body, name: str, pieces: Pieces) -> bool:
    """Whether pieces cover an output, and each place tells rows apart."""
    rows_apart = all(_whole_rows(body, place.map) for place in pieces.places)
    return rows_apart and covers(body.space, pieces, body.shape(name))


def _dependent(graph: Graph, framed: frozenset[str]) -> set[str]:
    found: set[str] = set()
    for node in graph.nodes:
        if node.name in framed or any(name in found for name in node.inputs):
            found.update(node.outputs)
    return found


def _whole_rows(body: Body, place: Map) -> bool:
    """Whether a map tells all rows apart, and all positions or none."""
    used = {atom for index in place for atom, _ in index.terms}
    reduced = body.frame.reduced
    loops = range(body.space.loops)
    rows = {loop for loop in loops if not reduced >> loop & 1}
    positions = {loop for loop in loops if reduced >> loop & 1}
    return rows <= used and (positions <= used or not positions & used)
