"""Counting what a kernel does, from the same nest and mapping that make its text."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.work import Access, Pipe, Work
from tuner.kernel.counter import Counter
from tuner.kernel.mapping import Mapping as Layout
from tuner.kernel.mapping import map_groups
from tuner.kernel.nest import Apply, Kind, Load, LoopNest
from tuner.kernel.tile_counter import TileCounter

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from cost_model.device import Device
    from tuner.kernel.counter import Traffic
    from tuner.kernel.nest import Group, Value
    from tuner.plan import Schedule

_ROUNDING: Final = 1e-9
_LAYOUT: Final = tuple(
    each.name for each in fields(Layout) if each.name != "first_block"
)
"""What a counter looks at of a mapping."""
_COUNTERS: Final[Mapping[Kind, type[Counter]]] = MappingProxyType(
    {Kind.TILE: TileCounter}
)


MOST_KNOWN: Final = 4096
"""Groups of which is remembered what was counted: a few kilobytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one group of a kernel does.

    Attributes:
        traffic: by the tensor's place among those that the group touches, as
            `_touched` has them.
        load_seconds: what its traffic and arithmetic would take with all of the device.
    """

    traffic: Mapping[int, Traffic]
    operations: Mapping[Pipe, float]
    registers: int
    shared_bytes: int
    barriers: int
    shuffles: int
    in_flight: int
    compute_share: float
    hops: float
    load_seconds: float


class Known:
    """What was counted on one device, so that equal groups are counted once.

    Kernels that a partition may choose from have many loops in common: one more or less
    stands beside them.
    """

    def __init__(self, most: int = MOST_KNOWN) -> None:
        """Start with nothing.

        Args:
            most: groups that are remembered; then all are forgotten.
        """
        self._most = most
        self._found: dict[Hashable, tuple[Group, Counted]] = {}

    def __len__(self) -> int:
        """How many groups are remembered."""
        return len(self._found)

    def get(self, key: Hashable) -> Counted | None:
        """What was counted of a group, if it is remembered."""
        found = self._found.get(key)
        return None if found is None else found[1]

    def keep(self, key: Hashable, group: Group, counted: Counted) -> None:
        """Remember; the group keeps alive what its key only points at."""
        if len(self._found) >= self._most:
            self._found.clear()
        self._found[key] = (group, counted)


def work(
    nest: LoopNest, schedule: Schedule, device: Device, known: Known | None = None
) -> Work:
    """Counted work of one launch.

    Args:
        nest: the kernel.
        schedule: how threads walk through it.
        device: what it runs on.
        known: what was counted before, on the same device.
    """
    mappings = map_groups(nest, schedule)
    slots = [_touched(group) for group in nest.groups]
    counted = [
        _counted(nest, (group, mapping, its), device, known)
        for group, mapping, its in zip(nest.groups, mappings, slots, strict=True)
    ]
    lanes = mappings[0].lanes if mappings else 1
    teams = mappings[0].teams if mappings else 1
    blocks, in_flight = _busy(counted, [m.blocks for m in mappings])
    return Work(
        accesses=_accesses(nest, counted, slots, device),
        operations=MappingProxyType(_total(c.operations for c in counted)),
        blocks=blocks,
        block_threads=lanes * teams,
        registers_per_thread=max((c.registers for c in counted), default=8),
        shared_bytes_per_block=max((c.shared_bytes for c in counted), default=0),
        barriers_per_block=max((c.barriers for c in counted), default=0),
        shuffles_per_thread=max((c.shuffles for c in counted), default=0),
        bytes_in_flight_per_thread=in_flight,
        compute_share=min((c.compute_share for c in counted), default=1.0),
        hops=sum(c.hops for c in counted),
    )


def _touched(group: Group) -> tuple[int, ...]:
    """The tensors that a group touches, by first use."""
    loads = (v.what.tensor for v in group.values if isinstance(v.what, Load))
    stored = (store.tensor for store in group.stores)
    return tuple(dict.fromkeys((*loads, *stored)))


def _counted(
    nest: LoopNest,
    part: tuple[Group, Layout, tuple[int, ...]],
    device: Device,
    known: Known | None,
) -> Counted:
    """What one group does: remembered, or counted."""
    if known is None:
        return _count(nest, part, device)
    key = _key(nest, *part)
    found = known.get(key)
    if found is None:
        found = _count(nest, part, device)
        known.keep(key, part[0], found)
    return found


def _count(
    nest: LoopNest, part: tuple[Group, Layout, tuple[int, ...]], device: Device
) -> Counted:
    group, mapping, slots = part
    counter = _COUNTERS.get(group.kind, Counter)(nest, group, mapping, device)
    counter.run()
    return Counted(
        traffic=MappingProxyType(
            {
                place: counter.traffic[slot]
                for place, slot in enumerate(slots)
                if slot in counter.traffic
            }
        ),
        operations=MappingProxyType(counter.operations),
        registers=counter.registers(),
        shared_bytes=counter.shared_bytes,
        barriers=counter.barriers,
        shuffles=counter.shuffles,
        in_flight=counter.in_flight(),
        compute_share=counter.compute_share(),
        hops=counter.hops(),
        load_seconds=_load_seconds(counter, device),
    )


def _key(
    nest: LoopNest, group: Group, mapping: Layout, slots: tuple[int, ...]
) -> Hashable:
    """What groups share that do the same on a device: all that a counter looks at.

    Tensors are numbered by first use: which is which makes no difference, nor where the
    group's blocks lie in the grid.
    """
    places = {slot: place for place, slot in enumerate(slots)}
    tensors = [nest.tensors[slot] for slot in slots]
    return (
        nest.index_bits,
        len(nest.groups) > 1,
        (group.kind, group.atoms, group.outer, group.inner, group.serial, group.rows),
        tuple([(t.dtype, t.elements, t.is_output) for t in tensors]),
        tuple([_value_key(value, places) for value in group.values]),
        tuple([(r.op, r.source, r.dtype, r.stage) for r in group.reductions]),
        tuple(
            [
                (places[s.tensor], s.index, s.guards, s.value, s.per_row, s.stage)
                for s in group.stores
            ]
        ),
        tuple(_layout_key(mapping)),
    )


def _value_key(value: Value, places: Mapping[int, int]) -> Hashable:
    """A value as a flat row; expressions are read once each, so which one is enough."""
    what = value.what
    if isinstance(what, Load):
        rest: Hashable = (places[what.tensor], what.index, what.guards)
    elif isinstance(what, Apply):
        rest = (id(what.expression), what.args, what.operand)
    else:
        rest = what
    return (value.dtype, value.loops, value.stage, rest)


def _layout_key(mapping: Layout) -> Iterator[Hashable]:
    for name in _LAYOUT:
        yield getattr(mapping, name)


def _busy(counted: Sequence[Counted], blocks: Sequence[int]) -> tuple[int, int]:
    """Blocks as busy as the busiest that do all of the work, and bytes in flight there.

    Loops side by side have blocks of their own. The launch ends with the slowest of
    them: blocks with little to do do not make it any faster.
    """
    loads = [each.load_seconds for each in counted]
    shares = [load / n if n else 0.0 for load, n in zip(loads, blocks, strict=True)]
    most = max(shares, default=0.0)
    if most <= 0:
        in_flight = max((each.in_flight for each in counted), default=4)
        return max(1, sum(blocks)), in_flight
    even = math.floor((1 + _ROUNDING) * sum(loads) / most)
    slowest = counted[shares.index(most)]
    return max(1, min(sum(blocks), even)), slowest.in_flight


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
    nest: LoopNest,
    counted: Sequence[Counted],
    slots: Sequence[tuple[int, ...]],
    device: Device,
) -> tuple[Access, ...]:
    moved: dict[int, list[Traffic]] = {}
    for each, its in zip(counted, slots, strict=True):
        for place, traffic in each.traffic.items():
            moved.setdefault(its[place], []).append(traffic)
    found: list[Access] = []
    for slot, parts in sorted(moved.items()):
        tensor = nest.tensors[slot]
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
