"""What loop nests do at least, however nodes are joined and whatever the schedule."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.roofline import SCHEDULE_PIPES
from cost_model.work import Pipe
from tuner.ir.inference import whole
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.bounds import may_have_normal_reciprocal
from tuner.kernel.held import HELD
from tuner.kernel.schedule import widths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost_model.device import Device
    from tuner.ir.graph import Graph, Node
    from tuner.ir.types import TensorType

Axes = tuple[bool, ...]
"""Of each axis of a tensor, whether its elements are told apart along it."""
WORD_BYTES: Final = 4
"""Narrower elements are converted on their way from and to memory."""


def moving_operations(tensor: TensorType, device: Device) -> Mapping[Pipe, float]:
    """Operations that go with reading or writing all of a tensor once.

    Each access has an address, and each narrow element is converted: what `Counter`
    counts of every load and every store outside of staged tiles. The neighbours of one
    vector share an address, on a processor those of all lanes. No fewer accesses reach
    all elements.
    """
    sharing = widths(tensor.dtype.bytes, device)[-1]
    if device.kind == "cpu":
        sharing *= device.subgroup_threads
    found = {Pipe.INTEGER: tensor.elements / sharing}
    if tensor.dtype.bytes < WORD_BYTES:
        found[Pipe.CONVERT] = float(tensor.elements)
    return MappingProxyType(found)


def varying_axes(graph: Graph) -> Mapping[str, Axes]:
    """Along which axes of each tensor every element is computed apart, in any kernel.

    What is read from memory differs along all axes that it has, so its loops are
    walked. An element-wise result has the loops of all of its operands, and a tensor
    that was repeated those of what it repeats, in whatever kernel both are. Other
    operators give each of their elements a place of its own where all of their
    operands do; else nothing is said of them. An axis of one element is walked, too.
    Boxes of what is joined may share one walk, and with it all that is computed of
    equal parts, see `boxes_of`: nothing is said along the axis of a join.
    """
    found = {name: (True,) * len(kind.shape) for name, kind in graph.types.items()}
    for node in graph.nodes:
        is_spread = node.op == "expand"
        is_spread = is_spread or OPS[node.op].pattern is Pattern.ELEMENTWISE
        is_whole = all(all(found[name]) for name in node.inputs)
        if is_spread:
            found[node.outputs[0]] = _spread(graph, node, found)
        elif node.op == "concat":
            found[node.outputs[0]] = _joined(graph, node, found)
        elif not is_whole:
            for name in node.outputs:
                shape = graph.types[name].shape
                found[name] = tuple(extent == 1 for extent in shape)
    return MappingProxyType(found)


def _spread(graph: Graph, node: Node, known: Mapping[str, Axes]) -> Axes:
    """The same of a result over which operands are broadcast."""
    shape = graph.types[node.outputs[0]].shape
    found = [extent == 1 for extent in shape]
    for name in node.inputs:
        own = graph.types[name].shape
        for back, walked in enumerate(reversed(known[name]), start=1):
            if walked and own[-back] == shape[-back]:
                found[-back] = True
    return tuple(found)


def _joined(graph: Graph, node: Node, known: Mapping[str, Axes]) -> Axes:
    """The same of operands that lie one behind the other."""
    at = whole(node.attributes, "axis")
    walked = [all(each) for each in zip(*(known[n] for n in node.inputs), strict=True)]
    shape = graph.types[node.outputs[0]].shape
    return tuple(
        extent == 1 or (walked[axis] and axis != at)
        for axis, extent in enumerate(shape)
    )


def computing_operations(
    graph: Graph,
    node: Node,
    alone: Mapping[Pipe, float],
    axes: Mapping[str, Axes],
) -> Mapping[Pipe, float]:
    """Operations of computing all of a node once, in whatever kernel.

    Args:
        graph: where the node is.
        node: of a reduction, each element counts once: how lanes join what they found
            depends on the schedule. Of a division by numbers that many elements may
            share a product counts, and no reciprocal: a kernel that divides rows by
            one number each may take one a row.
        alone: what was counted in a kernel of its own, where all that it reads differs.
        axes: what `varying_axes` says of the graph.
    """
    most, share = float("inf"), 1.0
    kind = graph.types[node.outputs[0]]
    unknown = set(SCHEDULE_PIPES)
    if OPS[node.op].pattern is Pattern.REDUCTION:
        most = float(graph.types[node.inputs[0]].elements)
    else:
        pairs = zip(kind.static_shape, axes[node.outputs[0]], strict=True)
        apart = math.prod(extent for extent, walked in pairs if walked)
        share = apart / max(1, kind.elements)
    if node.op == "div" and _may_share(graph, node, axes[node.inputs[1]]):
        most = float(kind.elements)
        unknown.add(Pipe.SPECIAL)
    return MappingProxyType(
        {p: share * min(n, most) for p, n in alone.items() if p not in unknown}
    )


def _may_share(graph: Graph, node: Node, axes: Axes) -> bool:
    """Whether a kernel may take one reciprocal for many elements of a division.

    A kernel takes one of a number that has none of the loops that it reduces along, if
    it can tell that the reciprocal is normal, see `Body`. So it takes none of a number
    of each element, which has all the loops that the dividend has; and none of what
    comes from memory, or of a result whose operator says nothing of its size.
    """
    name, shape = node.inputs[1], graph.types[node.outputs[0]].shape
    own = graph.types[name].shape
    if own == shape and all(axes):
        return False
    maker = graph.producers.get(name)
    while maker is not None and maker.op in ("reshape", "expand"):
        name = maker.inputs[0]
        maker = graph.producers.get(name)
    if maker is None:
        return name in graph.constants
    row = OPS[maker.op]
    if row.pattern is not Pattern.ELEMENTWISE or maker.op == "cast":
        return True
    held = HELD[graph.types[name].dtype]
    return may_have_normal_reciprocal(row.expression, len(maker.inputs), held)
