"""Launch order of kernels, and the ring that is in the way when there is none."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from tuner.errors import InternalError
from tuner.fusion.traffic import home_of
from tuner.fusion.view import bits
from tuner.ir.graph import Graph, region_inputs
from tuner.plan import Choice


def runnable_order(
    needs: Sequence[int], makes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Kernels in an order in which each can run, and those that cannot.

    Args:
        needs: tensor mask of what each kernel reads.
        makes: tensor mask of what each kernel writes.
    """
    written = 0
    for mask in makes:
        written |= mask
    readers: dict[int, list[int]] = {}
    missing = []
    for k, need in enumerate(needs):
        missing.append((need & written).bit_count())
        for j in bits(need & written):
            readers.setdefault(j, []).append(k)
    order: list[int] = []
    free = [k for k, count in enumerate(missing) if not count]
    while free:
        at = heappop(free)
        order.append(at)
        for k in (k for j in bits(makes[at]) for k in readers.pop(j, ())):
            missing[k] -= 1
            if not missing[k]:
                heappush(free, k)
    return order, [k for k, count in enumerate(missing) if count]


def ring_of(
    needs: Sequence[int], makes: Sequence[int], stuck: Sequence[int]
) -> tuple[list[int], int]:
    """Few kernels that wait for each other, and the tensors that they wait for.

    Args:
        needs: tensor mask of what each kernel reads.
        makes: tensor mask of what each kernel writes.
        stuck: kernels that `runnable_order` could not place.

    Returns:
        Kernels, and tensors that no kernel outside them writes. A short ring where
        each tensor has one writer, else all that are stuck.
    """
    ready, waiting = 0, set(stuck)
    for k, mask in enumerate(makes):
        if k not in waiting:
            ready |= mask
    writers: dict[int, list[int]] = {}
    for k in stuck:
        for bit in _single_bits(makes[k] & ~ready):
            writers.setdefault(bit, []).append(k)
    path, seen = [stuck[0]], {stuck[0]: 0}
    wanted: list[int] = []
    while True:
        missing = [b for b in _single_bits(needs[path[-1]] & ~ready) if b in writers]
        single = [b for b in missing if len(writers[b]) == 1]
        if not single:
            return list(stuck), sum(writers)
        wanted.append(single[0])
        (following,) = writers[single[0]]
        if following in seen:
            start = seen[following]
            return path[start:], sum(set(wanted[start:]))
        seen[following] = len(path)
        path.append(following)


def _single_bits(mask: int) -> list[int]:
    return [1 << place for place in bits(mask)]


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
