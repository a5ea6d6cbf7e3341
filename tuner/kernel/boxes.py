"""Outputs that are joined: a walk over each box of them instead of the whole.

At a point of the whole it must be found out which box it lies in, and what the others
would give there is computed and thrown away. Over a box alone nothing is asked; boxes
of equal extents share one walk, and with it what they read (the two halves of a rotary
embedding).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.pieces import Box
from tuner.kernel.shapes import shape_of

if TYPE_CHECKING:
    from tuner.ir.graph import Graph, Node

MOST_BOXES: Final = 8
"""Outputs of more boxes are walked as a whole: every box is text of its own."""
FEWEST_RUN: Final = 16
"""Elements that lie together in each box, at least: a cache line."""

Cuts = tuple[frozenset[int], ...]
"""For each axis, where a new box begins."""


def boxes_of(graph: Graph, names: Sequence[str]) -> tuple[Box, ...]:
    """Boxes over which outputs of equal shape are made without asking where one is.

    Returns:
        disjoint boxes that make up the outputs; one, the whole, where they are
        not joined or walks over boxes would not pay.
    """
    shape = shape_of(graph, names[0])
    whole_box = Box((0,) * len(shape), shape)
    if any(shape_of(graph, name) != shape for name in names[1:]):
        return (whole_box,)
    cuts = [_cuts(graph, name) for name in names]
    lines = [
        sorted(frozenset((0, extent)).union(*(each[axis] for each in cuts)))
        for axis, extent in enumerate(shape)
    ]
    spans = [tuple(itertools.pairwise(line)) or ((0, 0),) for line in lines]
    boxes = tuple(
        Box(
            tuple(first for first, _ in corner),
            tuple(end - first for first, end in corner),
        )
        for corner in itertools.product(*spans)
    )
    pays = len(boxes) <= MOST_BOXES and _least_run(shape, spans) >= FEWEST_RUN
    return boxes if pays else (whole_box,)


def _least_run(shape: Sequence[int], spans: Sequence[Sequence[tuple[int, int]]]) -> int:
    """Elements that lie together in the smallest box of the innermost cut axis."""
    for axis in reversed(range(len(shape))):
        if len(spans[axis]) > 1:
            shortest = min(end - first for first, end in spans[axis])
            return shortest * math.prod(shape[axis + 1 :])
    return math.prod(shape)


def _cuts(graph: Graph, name: str) -> Cuts:
    """Where the joins behind an output put its boxes, in its own axes."""
    found: dict[str, Cuts] = {}
    order = _joined(graph, name)
    for tensor in reversed(order):
        node = graph.producers[tensor]
        found[tensor] = _of_node(graph, node, found)
    return found.get(name) or (frozenset[int](),) * len(shape_of(graph, name))


def _joined(graph: Graph, name: str) -> list[str]:
    """Tensors between an output and its joins, each before those it is made from."""
    behind: dict[str, None] = {}
    stack = [name]
    while stack:
        tensor = stack.pop()
        node = graph.producers.get(tensor)
        if node is None or tensor in behind:
            continue
        if _is_followed(node):
            behind[tensor] = None
            stack.extend(node.inputs)
    places = {node.name: number for number, node in enumerate(graph.nodes)}
    return sorted(behind, key=lambda t: -places[graph.producers[t].name])


def _is_followed(node: Node) -> bool:
    is_elementwise = OPS[node.op].pattern is Pattern.ELEMENTWISE
    return is_elementwise or node.op in ("concat", "transpose")


def _of_node(graph: Graph, node: Node, found: Mapping[str, Cuts]) -> Cuts:
    shape = shape_of(graph, node.outputs[0])
    none: Cuts = (frozenset[int](),) * len(shape)
    if node.op == "transpose":
        known = found.get(node.inputs[0], none)
        return tuple(known[axis] for axis in ints(node.attributes, "perm"))
    if node.op == "concat":
        return _of_concat(graph, node, found, none)
    alike = [found.get(i, none) for i in node.inputs if shape_of(graph, i) == shape]
    return tuple(
        frozenset[int]().union(*(cuts[axis] for cuts in alike))
        for axis in range(len(shape))
    )


def _of_concat(graph: Graph, node: Node, found: Mapping[str, Cuts], none: Cuts) -> Cuts:
    axis = whole(node.attributes, "axis")
    made = list(none)
    start = 0
    for name in node.inputs:
        inner = found.get(name, none)
        for other, cuts in enumerate(inner):
            made[other] |= {start + cut for cut in cuts} if other == axis else cuts
        start += shape_of(graph, name)[axis]
        made[axis] |= {start}
    made[axis] -= {0, start}
    return tuple(made)
