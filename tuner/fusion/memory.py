"""Where every intermediate tensor lives: liveness, reuse, offsets in one arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tuner.fusion.traffic import home_of
from tuner.fusion.view import homes
from tuner.ir.graph import Graph, Region, region_inputs
from tuner.plan import Buffer, MemoryPlan

ALIGNMENT_BYTES: Final = 128
"""Sub-buffers of an OpenCL arena start at multiples of this."""


def plan_memory(
    graph: Graph,
    regions: Sequence[Region],
    scratch: Sequence[Mapping[str, int]] = (),
) -> MemoryPlan:
    """Lay out the tensors that pass between kernels.

    Args:
        graph: the whole graph.
        regions: the kernels, in launch order.
        scratch: bytes by name of what the launches of each kernel hand to each other.

    Tensors that the graph is given or delivers have memory of their own; the arena
    holds the others. Offsets go to the largest tensors first, each at the lowest place
    that is free while it lives (greedy by size: Y. Pisarchyk, J. Lee, "Efficient
    memory management for deep neural net inference", 2020).
    """
    spans = _spans(graph, regions)
    sizes = {name: graph.types[name].bytes for name in spans}
    for step, own in enumerate(scratch):
        spans |= dict.fromkeys(own, (step, step))
        sizes |= own
    buffers = _placed(sizes, spans)
    arena = max((b.offset + _aligned(b.bytes) for b in buffers), default=0)
    home = homes(graph)
    aliases = {name: source for name, source in home.items() if name != source}
    return MemoryPlan(
        buffers=buffers,
        aliases=MappingProxyType(aliases),
        arena_bytes=arena,
        peak_bytes=resident_bytes(graph) + _peak(sizes, spans, len(regions)),
    )


def resident_bytes(graph: Graph) -> int:
    """Bytes that live all the time: what the graph is given, holds and delivers."""
    delivered = {home_of(graph, name) for name in graph.outputs}
    fixed = {*graph.inputs, *graph.weights, *graph.constants, *delivered}
    return sum(graph.types[name].bytes for name in fixed)


def needed_bytes(graph: Graph, memory: MemoryPlan) -> int:
    """Device memory that a plan takes: what lives all the time, and its arena."""
    return resident_bytes(graph) + memory.arena_bytes


def _spans(graph: Graph, regions: Sequence[Region]) -> dict[str, tuple[int, int]]:
    """First and last kernel of every tensor that is written and not delivered."""
    delivered = {home_of(graph, name) for name in graph.outputs}
    spans: dict[str, tuple[int, int]] = {}
    for step, region in enumerate(regions):
        reads = (home_of(graph, n) for n in region_inputs(graph, region.nodes))
        for name in (*reads, *region.outputs):
            if name in graph.producers and name not in delivered:
                first, _ = spans.get(name, (step, step))
                spans[name] = (first, step)
    return spans


def _placed(
    sizes: Mapping[str, int], spans: Mapping[str, tuple[int, int]]
) -> tuple[Buffer, ...]:
    placed: list[Buffer] = []
    order = sorted(spans, key=lambda n: (-sizes[n], spans[n], n))
    for name in order:
        first, last = spans[name]
        size = sizes[name]
        alive = sorted(
            (b.offset, b.offset + _aligned(b.bytes))
            for b in placed
            if b.first <= last and first <= b.last
        )
        offset = 0
        for start, end in alive:
            if offset + _aligned(size) <= start:
                break
            offset = max(offset, end)
        placed.append(
            Buffer(tensor=name, offset=offset, bytes=size, first=first, last=last)
        )
    return tuple(sorted(placed, key=lambda b: (b.first, b.offset, b.tensor)))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _peak(
    sizes: Mapping[str, int], spans: Mapping[str, tuple[int, int]], steps: int
) -> int:
    """Most bytes between kernels that are alive at once."""
    change = [0] * (steps + 1)
    for name, (first, last) in spans.items():
        change[first] += sizes[name]
        change[last + 1] -= sizes[name]
    alive = most = 0
    for step in change:
        alive += step
        most = max(most, alive)
    return most
