"""Launch order of kernels, and the ring that is in the way when there is none."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import InternalError
from tuner.fusion.traffic import home_of
from tuner.ir.graph import Graph, region_inputs
from tuner.plan import Choice


def runnable_order(
    needs: Sequence[int], makes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Kernels in an order in which each can run, and those that cannot.

    Args:
        needs, makes: tensor masks of what each kernel reads and writes.
    """
    written = 0
    for mask in makes:
        written |= mask
    missing = [need & written for need in needs]
    order: list[int] = []
    waiting = list(range(len(needs)))
    ready = 0
    while True:
        at = next((k for k in waiting if not missing[k] & ~ready), None)
        if at is None:
            return order, waiting
        order.append(at)
        waiting.remove(at)
        ready |= makes[at]


def launch_order(graph: Graph, choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Kernels in launch order: first in the graph first, as far as reads allow.

    Raises:
        InternalError: they wait for each other.
    """
    places = {node.name: k for k, node in enumerate(graph.nodes)}
    ordered = sorted(
        choices,
        key=lambda c: (max(places[n] for n in c.region.nodes), c.region.outputs),
    )
    tensors = {t: 1 << j for j, t in enumerate(graph.producers)}
    needs, makes = [], []
    for choice in ordered:
        reads = region_inputs(graph, choice.region.nodes)
        homes = {home_of(graph, name) for name in reads}
        needs.append(sum(tensors.get(name, 0) for name in homes))
        makes.append(sum(tensors[name] for name in choice.region.outputs))
    order, waiting = runnable_order(needs, makes)
    if waiting:
        stuck = ordered[waiting[0]].region.outputs[0]
        raise InternalError(stuck, "its kernel is part of a ring of kernels")
    return tuple(ordered[k] for k in order)
