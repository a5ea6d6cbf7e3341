"""Counting what a kernel does, from the same nest and mapping that make its text."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.work import Access, Pipe, Work
from tuner.kernel.counter import Counter
from tuner.kernel.mapping import map_groups
from tuner.kernel.nest import Kind, LoopNest
from tuner.kernel.tile_counter import TileCounter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cost_model.device import Device
    from tuner.plan import Schedule

_ROUNDING: Final = 1e-9
_COUNTERS: Final[Mapping[Kind, type[Counter]]] = MappingProxyType(
    {Kind.TILE: TileCounter}
)


def work(nest: LoopNest, schedule: Schedule, device: Device) -> Work:
    """Counted work of one launch."""
    mappings = map_groups(nest, schedule)
    counters = [
        _COUNTERS.get(group.kind, Counter)(nest, group, mapping, device)
        for group, mapping in zip(nest.groups, mappings, strict=True)
    ]
    for counter in counters:
        counter.run()
    lanes = mappings[0].lanes if mappings else 1
    teams = mappings[0].teams if mappings else 1
    blocks, in_flight = _busy(counters, [m.blocks for m in mappings], device)
    return Work(
        accesses=_accesses(nest, counters, device),
        operations=MappingProxyType(_total(c.operations for c in counters)),
        blocks=blocks,
        block_threads=lanes * teams,
        registers_per_thread=max((c.registers() for c in counters), default=8),
        shared_bytes_per_block=max((c.shared_bytes for c in counters), default=0),
        barriers_per_block=max((c.barriers for c in counters), default=0),
        shuffles_per_thread=max((c.shuffles for c in counters), default=0),
        bytes_in_flight_per_thread=in_flight,
        compute_share=min((c.compute_share() for c in counters), default=1.0),
        hops=sum(c.hops() for c in counters),
    )


def _busy(
    counters: Sequence[Counter], blocks: Sequence[int], device: Device
) -> tuple[int, int]:
    """Blocks as busy as the busiest that do all of the work, and bytes in flight there.

    Loops side by side have blocks of their own. The launch ends with the slowest of
    them: blocks with little to do do not make it any faster.
    """
    loads = [_load_seconds(counter, device) for counter in counters]
    shares = [load / n if n else 0.0 for load, n in zip(loads, blocks, strict=True)]
    most = max(shares, default=0.0)
    if most <= 0:
        in_flight = max((counter.in_flight() for counter in counters), default=4)
        return max(1, sum(blocks)), in_flight
    even = math.floor((1 + _ROUNDING) * sum(loads) / most)
    slowest = counters[shares.index(most)]
    return max(1, min(sum(blocks), even)), slowest.in_flight()


def _load_seconds(counter: Counter, device: Device) -> float:
    """What a group's loads, stores and arithmetic would take with all of the device."""
    moved = sum(part.requested_bytes for part in counter.traffic.values())
    rates = device.operations_per_second
    computing = sum(n / rates[pipe] for pipe, n in counter.operations.items())
    return moved / device.l2_bytes_per_second + computing


def _total(parts: Iterable[Mapping[Pipe, float]]) -> dict[Pipe, float]:
    total: dict[Pipe, float] = {}
    for part in parts:
        for pipe, count in part.items():
            total[pipe] = total.get(pipe, 0.0) + count
    return total


def _accesses(
    nest: LoopNest, counters: list[Counter], device: Device
) -> tuple[Access, ...]:
    found: list[Access] = []
    for slot, tensor in enumerate(nest.tensors):
        parts = [c.traffic[slot] for c in counters if slot in c.traffic]
        if not parts:
            continue
        width, sector = tensor.dtype.bytes, device.sector_bytes
        elements = min(sum(p.elements for p in parts), tensor.elements)
        unique = int(elements) * width
        whole = -(-tensor.elements * width // sector) * sector
        sectors = min(sum(p.sector_bytes for p in parts), whole)
        fetched = sum(p.fetched_bytes for p in parts)
        requested = sum(p.requested_bytes for p in parts) + fetched
        found.append(
            Access(
                unique_bytes=unique,
                sector_bytes=max(int(sectors), unique) + int(fetched),
                requested_bytes=max(int(requested), int(sectors + fetched), unique),
                is_write=tensor.is_output,
                useful_bytes=int(sum(p.useful_bytes for p in parts)),
                reuse=tuple(one for p in parts for one in p.reuse),
                tensor=tensor.name,
            )
        )
    return tuple(found)
