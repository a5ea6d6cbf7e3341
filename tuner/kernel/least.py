"""What loop nests do at least, however nodes are joined and whatever the schedule."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.roofline import SCHEDULE_PIPES
from cost_model.work import Pipe
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.schedule import widths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost_model.device import Device
    from tuner.ir.graph import Graph, Node
    from tuner.ir.types import TensorType

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


def computing_operations(
    graph: Graph, node: Node, alone: Mapping[Pipe, float]
) -> Mapping[Pipe, float]:
    """Operations of computing all of a node once, in whatever kernel.

    Args:
        graph: where the node is.
        node: of a reduction, each element counts once: how lanes join what they found
            depends on the schedule. Of a division by numbers that many elements may
            share a product counts, and no reciprocal: a kernel that divides rows by
            one number each takes one a row.
        alone: what was counted in a kernel of its own.
    """
    most = float("inf")
    if OPS[node.op].pattern is Pattern.REDUCTION:
        most = float(graph.types[node.inputs[0]].elements)
    unknown = set(SCHEDULE_PIPES)
    if node.op == "div" and not _varies(graph, node.inputs[1], node.outputs[0]):
        most = float(graph.types[node.outputs[0]].elements)
        unknown.add(Pipe.SPECIAL)
    return MappingProxyType(
        {p: min(n, most) for p, n in alone.items() if p not in unknown}
    )


def _varies(graph: Graph, tensor: str, like: str) -> bool:
    """Whether each element of a tensor is computed of its own element of an input.

    Then it depends on every axis of `like`, which has the same shape, in whatever
    kernel: no loop can be left out of it. Where a chain reaches no input in that shape,
    such as behind a broadcast, nothing is said.
    """
    shape = graph.types[like].shape
    seen, left = {tensor}, [tensor]
    while left:
        name = left.pop()
        if graph.types[name].shape != shape:
            continue
        maker = graph.producers.get(name)
        if maker is None:
            if name in graph.inputs or name in graph.weights:
                return True
        elif OPS[maker.op].pattern is Pattern.ELEMENTWISE:
            left += [each for each in maker.inputs if each not in seen]
            seen.update(maker.inputs)
    return False
