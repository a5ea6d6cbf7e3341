"""Launch order of kernels, and the rings that are in the way when there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def rings_of(
    needs: Sequence[int], makes: Sequence[int], stuck: Sequence[int]
) -> list[tuple[int, ...]]:
    """Tensors that wait for each other, in short rings.

    In a ring each tensor is written only by kernels that read the next one, and the
    last by kernels that read the first. So none of them is ever written, whatever else
    is chosen that does not write one of them.

    Args:
        needs: tensor mask of what each kernel reads.
        makes: tensor mask of what each kernel writes.
        stuck: kernels that `runnable_order` could not place.

    Returns:
        Through every tensor a shortest ring, each once; none where kernels that write
        the same tensor wait for different ones.
    """
    waiting = set(stuck)
    ready = never = 0
    for k, mask in enumerate(makes):
        if k in waiting:
            never |= mask
        else:
            ready |= mask
    never &= ~ready
    behind: dict[int, int] = {}
    for k in stuck:
        for j in bits(makes[k] & never):
            behind[j] = behind.get(j, never) & needs[k]
    found: dict[int, tuple[int, ...]] = {}
    for j in sorted(behind):
        ring = _shortest_ring(behind, j)
        if ring:
            found.setdefault(sum(1 << t for t in ring), ring)
    return list(found.values())


def _shortest_ring(behind: Mapping[int, int], first: int) -> tuple[int, ...]:
    """Tensors from one to the last that waits for it; none if it is in no ring."""
    origin = {first: first}
    front = [first]
    while front:
        following = []
        for t in front:
            for u in bits(behind[t]):
                if u == first:
                    return _way(origin, first, t)
                if u not in origin:
                    origin[u] = t
                    following.append(u)
        front = following
    return ()


def _way(origin: Mapping[int, int], first: int, last: int) -> tuple[int, ...]:
    way = [last]
    while way[-1] != first:
        way.append(origin[way[-1]])
    return tuple(reversed(way))


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
