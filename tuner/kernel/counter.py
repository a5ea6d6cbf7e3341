"""What one group of a kernel does, counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.work import Pipe, Reuse
from tuner.ir.expr import Expr, operations, parse
from tuner.ir.types import DType
from tuner.kernel.addresses import depends, divisions_by_loop, elements, sectors
from tuner.kernel.ahead import LINE_BYTES, asked_ahead
from tuner.kernel.hops import hops
from tuner.kernel.index import AtomKind, Guards, Index, runs
from tuner.kernel.mapping import Mapping as Layout
from tuner.kernel.nest import (
    Apply,
    Group,
    Kind,
    Load,
    LoopNest,
    Select,
    Store,
)
from tuner.kernel.online import ONLINE_STEPS, Online, online
from tuner.kernel.pressure import RegisterCounter, computed, copies
from tuner.kernel.reuse import Operand, Terms, levels, reuses
from tuner.kernel.staged import staged_values, tile_bytes
from tuner.kernel.streams import may_stream, streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cost_model.device import Device

_STEPS_IN_FLIGHT: Final = 8
"""Unrolled steps whose loads a compiler moves in front of the first use."""
_WHOLE: Final = MappingProxyType({Pipe.FMA32: Pipe.INTEGER})
_DOUBLE: Final = MappingProxyType({Pipe.FMA32: Pipe.FMA64})
_SINGLE: Final[Mapping[Pipe, Pipe]] = MappingProxyType({})
# Division by a constant is a high multiplication, a shift and a subtraction
# (T. Granlund, P. Montgomery, "Division by Invariant Integers", PLDI 1994).
DIVISION: Final = 4.0
_GATHERED: Final = 8.0
"""Integer operations that take as long as a lane's part of a gather or scatter.

Source: A. Abel, J. Reineke, "uops.info", ASPLOS 2019: VPGATHERDD of 16 lanes takes 11
to 13 cycles on Intel cores with AVX-512, where two ports do 32 additions a cycle, of
which compiled code reaches 0.38."""
_EXP: Final = parse("exp(a0)")
_ALONE: Final = 5.0
"""How much longer the lanes of a vector take one after the other than together.

Source: rows of 80 and 100 by 64 lanes, of which a step leaves 16 and 36 over, 1.3 to
2.2 times as long as by 16 lanes, which take them together."""
_LOOSE: Final = 4.0
"""How much longer lanes that take vectors of their own behind a condition take.

Source: depthwise convolutions of 14 x 14 by lanes of four columns, which do not divide
196: 42 and 59 us, by lanes of one 14 and 25."""
_FETCHED: Final = 0.1
"""Share of the lines of a large result that a core fetches before it writes them,
though it writes all of each; without it maps of 50 to 77 MiB rank worse."""
_HALVES: Final = 44.0
"""Integer operations that take as long as a conversion from or to 16-bit floats.

Intel's compiler (2026.22) converts the lanes of a vector one by one: 1.05 ns each in
maps of 64,000 and 4 million elements."""
_ASKED: Final = 6.0
"""Integer operations that take as long as a request for a line ahead of its use.

Source: the same: PREFETCHT0 starts twice a cycle."""
_NARROW: Final = frozenset({DType.F16, DType.BF16, DType.I8, DType.U8, DType.BOOL})


@dataclass(slots=True)
class Traffic:
    """What was counted of one tensor.

    Attributes:
        fetched_bytes: of sectors that are read because a part of them is written.
    """

    elements: float = 0.0
    fetched_bytes: float = 0.0
    sector_bytes: float = 0.0
    requested_bytes: float = 0.0
    useful_bytes: float = 0.0
    reuse: list[Reuse] = field(default_factory=list)


@lru_cache(maxsize=4096)
def _cost(expression: Expr, operand: DType) -> Mapping[Pipe, float]:
    """Operations of one evaluation, on the pipes of the operand's dtype."""
    pipes = _SINGLE if operand is DType.F32 else _WHOLE
    if operand is DType.F64:
        pipes = _DOUBLE
    found: dict[Pipe, float] = {}
    for pipe, count in operations(expression).items():
        place = pipes.get(pipe, pipe)
        found[place] = found.get(place, 0.0) + count
    return MappingProxyType(found)


class Counter:
    """Counts one group under one mapping."""

    def __init__(
        self, nest: LoopNest, group: Group, mapping: Layout, device: Device
    ) -> None:
        self.nest, self.group, self.mapping = nest, group, mapping
        self.device = device
        self.traffic: dict[int, Traffic] = {}
        self._operands: dict[tuple[int, Terms], Operand] = {}
        self._again: list[tuple[Reuse, ...]] = []
        self.operations: dict[Pipe, float] = {}
        self.shared_bytes = self.barriers = self.shuffles = 0
        self._subgroup = device.subgroup_threads
        self._copied: tuple[int, ...] = ()
        self._online: Online | None = None
        if device.kind == "cpu":
            self._copied = staged_values(nest, group, mapping)
            self._online = online(group, mapping)
        self._near_bytes = 0

    def run(self) -> None:
        """Count everything but registers."""
        self._walk_points()
        self._find_reuse()
        if self._copied:
            self._meet_at_tiles()
        if self.device.kind == "cpu":
            self._ask_ahead()

    def _walk_points(self) -> None:
        for number, value in enumerate(self.group.values):
            if not value.loops & self.group.walked_mask:
                self._value(number, self._level_threads(value.loops))
        for store in self.group.stores:
            if store.per_row:
                self._store(store, self._rows())
        self._passes()

    def _passes(self) -> None:
        points = self._points()
        for place, each in enumerate(self.group.plan):
            if self._online is not None and place == 1:
                self._scale_blocks(self._online)
            for number in computed(each, self.mapping):
                is_inner = self.group.values[number].loops & self.group.inner_mask
                self._value(number, points if is_inner else self._turns())
            for store in each.stores:
                self._store(store, points)
            for reduction in each.reductions:
                self._reduction(reduction, points)
            self._near_bytes = 0

    def _scale_blocks(self, both: Online) -> None:
        """The second of two passes that one walk makes, block by block of a row.

        It finds what the first has read of the block, and scales the sum of the blocks
        before: each lane does.
        """
        block = ONLINE_STEPS * self.mapping.lanes
        self._near_bytes = block * sum(self._row_widths())
        blocks = math.ceil(self.group.inner_points / block) + 1
        lanes = float(self._rows() * self.mapping.lanes)
        dtype = self.group.reductions[both.total].dtype
        for pipe, count in _cost(_EXP, dtype).items():
            self._add(pipe, blocks * lanes * count)
        self._add(pipe_of(dtype), blocks * lanes)

    def _row_widths(self) -> Iterator[int]:
        """Bytes of the elements that the first pass reads at each point."""
        for number in self.group.plan[0].values:
            value = self.group.values[number]
            if isinstance(value.what, Load) and value.loops & self.group.inner_mask:
                yield self.nest.tensors[value.what.tensor].dtype.bytes

    def _ask_ahead(self) -> None:
        """Requests for lines of rows that the next turn walks over."""
        for load in asked_ahead(self.nest, self.group, self.mapping):
            width = self.nest.tensors[load.tensor].dtype.bytes
            lines = self._points() * width / LINE_BYTES
            self._add(Pipe.INTEGER, lines * _ASKED)

    # Tiles that a block copies on chip

    def _meet_at_tiles(self) -> None:
        """Lanes that copy a tile meet before they gather from it."""
        self.barriers += 1
        self._share(tile_bytes(self.group, self.mapping, self._copied))

    def _stage(self, load: Load, loops: int, times: float) -> None:
        """A tile is read along the order of memory, and gathered from on chip."""
        nbytes = times * self.nest.tensors[load.tensor].dtype.bytes
        self._request(load.tensor, load.index, loops, (nbytes, nbytes))
        self._address(load.index, load.guards, times)
        # Where it comes from and goes to: one address for neighbouring lanes.
        self._add(Pipe.INTEGER, 2 * times / self._subgroup)

    # How often

    def _points(self) -> float:
        group = self.group
        return float(group.outer_points * group.inner_points * group.serial_points)

    def _turns(self) -> float:
        """How often a walked value is computed that is one along the inner loops."""
        group, mapping = self.group, self.mapping
        if group.kind is Kind.ROW:
            return float(group.outer_points * group.serial_points * mapping.lanes)
        return self._points() / mapping.vector

    def _rows(self) -> float:
        group = self.group
        inner = group.inner_points if group.kind is Kind.COLUMN else 1
        return float(group.outer_points * inner)

    def _level_threads(self, loops: int) -> float:
        """Threads that compute a value once per row (POINTWISE: per chunk)."""
        group, mapping = self.group, self.mapping
        if group.kind is not Kind.COLUMN:
            return float(group.outer_points * mapping.chunks * mapping.lanes)
        threads = group.outer_points * group.inner_points * mapping.teams
        return threads / (1 if loops & group.inner_mask else mapping.vector)

    # Operations

    def _add(self, pipe: Pipe, count: float) -> None:
        self.operations[pipe] = self.operations.get(pipe, 0.0) + count

    def _value(self, number: int, times: float) -> None:
        value = self.group.values[number]
        what = value.what
        if isinstance(what, Apply):
            for pipe, count in _cost(what.expression, what.operand).items():
                self._add(pipe, count * times)
            if value.dtype is not what.operand:
                self._add(Pipe.CONVERT, times)
        elif isinstance(what, Load):
            tensor = self.nest.tensors[what.tensor]
            if number in self._copied:
                self._stage(what, value.loops, times)
            else:
                self._access(what.tensor, what.index, value.loops, times)
                self._address(what.index, what.guards, times)
            self._narrow(tensor.dtype, times)
        elif isinstance(what, Select):
            self._add(Pipe.INTEGER, times * (1 + 2 * len(what.guards)))

    def _store(self, store: Store, times: float) -> None:
        group = self.group
        loops = sum(
            1 << atom
            for atom, _ in store.index.terms
            if group.atoms[atom].kind is AtomKind.LOOP
        )
        self._access(store.tensor, store.index, loops, times)
        if self.device.kind == "cpu" and may_stream(self.nest, group, store):
            self._fetch(store)
        self._address(store.index, store.guards, times)
        self._narrow(self.nest.tensors[store.tensor].dtype, times)

    def _fetch(self, store: Store) -> None:
        """Lines of a large result that are read before they are written."""
        if streams(self.nest, self.group, self.mapping, store):
            return
        traffic = self.traffic[store.tensor]
        traffic.fetched_bytes = _FETCHED * traffic.sector_bytes

    def _narrow(self, dtype: DType, times: float) -> None:
        """Conversions of elements that are held wider than they are stored."""
        if dtype in _NARROW:
            self._add(Pipe.CONVERT, times)
        if dtype is DType.F16 and self.device.kind == "cpu":
            self._add(Pipe.INTEGER, times * _HALVES)

    def _address(self, index: Index, guards: Guards, times: float) -> None:
        count = 2.0 * len(guards)
        for each in (index, *(guard.subject for guard in guards)):
            count += DIVISION * self._divided(each)
        count /= self._shared_by(index, guards)
        count += self._own_address(index) / self.mapping.vector
        self._add(Pipe.INTEGER, times * count / self._busy_share())

    def _divided(self, index: Index) -> float:
        """Divisions of one evaluation; those of an outer loop are not made again in it.

        A processor divides a position that all lanes share once for all of them.
        """
        group = self.group
        along_inner, along_serial, derived = divisions_by_loop(group, index)
        if group.kind is Kind.COLUMN:
            lanes = self._subgroup if self.device.kind == "cpu" else 1
            along_inner /= max(group.serial_points, 1)
            along_serial /= lanes
        elif group.kind is Kind.ROW:
            along_serial /= max(group.inner_points, 1)
        return along_inner + along_serial + derived

    def _own_address(self, index: Index) -> float:
        """Operations of one lane to find its element, once the position is known.

        A processor finds one address for all lanes whose elements are neighbours.
        """
        if self.device.kind != "cpu":
            return 1.0
        return self._gathered(index) or 1.0 / self._subgroup

    def _gathered(self, index: Index) -> float:
        """What a lane of a vector pays for an element that is not its neighbour's.

        Elements a few apart come from as many loads of whole vectors; others are
        gathered. So are those of lanes that take vectors of their own: a compiler that
        packs lanes takes each vector apart. 0 where the lanes read neighbours, or all
        the same.
        """
        group = self.group
        width = min(self.mapping.lanes, self._subgroup)
        is_made = any(
            depends(group, atom) & group.inner_mask for atom, _ in index.terms
        )
        along = runs(group.atoms, index, group.inner)
        if not is_made and (not along or along[-1].below >= width):
            return 0.0
        is_split = len(along) > 1 and along[-1].extent % width
        if is_made or is_split or self.mapping.vector > 1:
            return _GATHERED
        apart = abs(along[-1].coefficient)
        is_neighbour = along[-1].below == 1 and apart == 1
        return 0.0 if is_neighbour else min(float(apart), _GATHERED)

    def _shared_by(self, index: Index, guards: Guards) -> int:
        """Points of a lane whose position and conditions are found at once.

        A processor finds those of each point anew where they are no neighbours in
        memory, or have conditions.
        """
        along = runs(self.group.atoms, index, self.group.inner)
        is_one = not along or (len(along) == 1 and along[0].below == 1)
        is_once = self.device.kind != "cpu" or (is_one and not guards)
        return self.mapping.vector if is_once else 1

    def _busy_share(self) -> float:
        """Share of the lanes' time that goes to points of their own.

        Lanes beyond the last point are idle behind a condition, and take as long as the
        others: maps of 96, 192, 196 and 200 points by 128 and 256 lanes take 1.1 to 2.2
        times as long as by lanes that the points fill. Nothing is said of rows that are
        narrow beside others of the kernel, by which lanes are chosen.

        Teams of a COLUMN group that meet at a barrier need all of their lanes: those
        beyond the last column do the last one again. Lanes that meet none are idle,
        behind a condition that takes those with vectors of their own apart.
        """
        group, mapping = self.group, self.mapping
        if self.device.kind != "cpu":
            return 1.0
        lanes = mapping.lanes * mapping.vector
        if group.kind is Kind.POINTWISE:
            is_idle = group.inner_points < lanes < 2 * group.inner_points
            return group.inner_points / lanes if is_idle else 1.0
        if group.kind is not Kind.COLUMN:
            return 1.0
        if mapping.teams == 1:
            return 1.0 / self._behind_condition()
        step = min(mapping.lanes, self._subgroup) * mapping.vector
        return -(-group.inner_points // step) * step / (mapping.chunks * mapping.tile)

    def _behind_condition(self) -> float:
        """How much longer lanes take that a condition about their columns divides."""
        group, mapping = self.group, self.mapping
        if not group.inner_points % mapping.tile:
            return 1.0
        if mapping.vector > 1:
            return _LOOSE
        is_apart = mapping.lanes > group.inner_points
        return _LOOSE / 2 if is_apart and group.inner_points % self._subgroup else 1.0

    def _reduction(self, number: int, points: float) -> None:
        reduction = self.group.reductions[number]
        pipe = pipe_of(reduction.dtype)
        self._add(pipe, points)
        mapping, rows = self.mapping, self._rows()
        size = reduction.dtype.bytes
        across = mapping.teams if self.group.kind is Kind.COLUMN else mapping.lanes
        if across == 1:
            return
        steps = math.ceil(math.log2(across))
        self._add(pipe, rows * across * steps)
        if self.group.kind is Kind.COLUMN:
            self.barriers += (2 + steps) * mapping.vector
            self._share(size * mapping.lanes * mapping.teams)
            return
        width = min(across, self._subgroup)
        self.shuffles += math.ceil(math.log2(width)) * mapping.repeat
        if across > width:
            self.barriers += 2 * mapping.repeat
            self._share(size * mapping.teams * across // width)

    def _share(self, size: int) -> None:
        self.shared_bytes = max(self.shared_bytes, size)

    # Memory

    def _access(self, slot: int, index: Index, loops: int, times: float) -> None:
        width = self.nest.tensors[slot].dtype.bytes
        requested = times / self._subgroup * self._asked(index, width)
        useful = min(requested, times * width)
        self._request(slot, index, loops, (requested, useful))

    def _request(
        self, slot: int, index: Index, loops: int, moved: tuple[float, float]
    ) -> None:
        """Sector bytes that threads ask for, and what of them they use."""
        requested, useful = moved
        traffic = self.traffic.setdefault(slot, Traffic())
        traffic.requested_bytes += requested
        traffic.useful_bytes += useful
        if self._near_bytes:
            traffic.reuse.append(
                Reuse(distance_bytes=self._near_bytes, requested_bytes=int(requested))
            )
            return
        tensor = self.nest.tensors[slot]
        width, sector = tensor.dtype.bytes, self.device.sector_bytes
        reached = float(elements(self.group, index, loops))
        reached = min(reached, tensor.elements)
        traffic.elements += reached
        touched = sectors(self.group, index, reached, width, sector)
        traffic.sector_bytes += touched
        operand = self._operands.get((slot, index.terms))
        if operand is None:
            operand = Operand(slot, index.terms, width, touched)
            self._operands[slot, index.terms] = operand
        operand.add(index.constant, requested)

    def _find_reuse(self) -> None:
        """Which requests are for sectors that the same block has asked for before."""
        operands = tuple(self._operands.values())
        self._again = [()] * len(operands)
        if all(each.requested_bytes - each.sector_bytes < 1 for each in operands):
            return
        walk = levels(self.group, self.mapping, self.device)
        self._again = list(reuses(self.group, walk, operands, self.device))
        for operand, reuse in zip(operands, self._again, strict=True):
            self.traffic[operand.slot].reuse.extend(reuse)

    def _asked(self, index: Index, width: int) -> float:
        """Sector bytes of one access by all threads of a sub-group."""
        mapping, sector = self.mapping, self.device.sector_bytes
        lanes = min(mapping.lanes, self._subgroup)
        group = self.group
        along = runs(group.atoms, index, group.inner)
        reached = 0.0
        if along:
            # Points inside the last run share an element: those of several lanes, or
            # those that one lane takes as a vector.
            last = along[-1]
            apart = min(float(abs(last.coefficient) * width), float(sector))
            reached = lanes * apart / last.below
        reached = max(reached, sector / mapping.vector)
        return reached * self._neighbours(index, lanes, reached, width)

    def _neighbours(
        self, index: Index, lanes: int, reached: float, width: int
    ) -> float:
        """How many teams of a sub-group ask for sectors of their own."""
        if lanes >= self._subgroup:
            return 1.0
        teams = self._subgroup / lanes
        group = self.group
        loops = group.serial if group.kind is Kind.COLUMN else group.outer
        along = runs(group.atoms, index, loops)
        if not along:
            return 1.0
        between = abs(along[-1].coefficient) * width
        if between >= reached:
            return teams
        return max(1.0, teams * between / reached)

    def registers(self) -> int:
        """Estimate of 32-bit registers per thread."""
        tensors = len(self.traffic)
        found = RegisterCounter(
            self.nest, self.group, self.mapping, self.device, tensors
        )
        return found.registers()

    def hops(self) -> float:
        """Pieces of operands that a core of a processor waits for."""
        moved = zip(self._operands.values(), self._again, strict=True)
        staged = frozenset(self._copied_operands())
        return hops(self.group, self.mapping, self.device, moved, staged)

    def _copied_operands(self) -> Iterator[tuple[int, Terms]]:
        for number in self._copied:
            what = self.group.values[number].what
            if isinstance(what, Load):
                yield what.tensor, what.index.terms

    def compute_share(self) -> float:
        """Share of the arithmetic rate that the structure of the text allows.

        A processor takes the lanes of a vector one after the other where not all of
        them have work: in the last step of a row whose lanes meet at a barrier.
        """
        group, mapping = self.group, self.mapping
        if self.device.kind != "cpu":
            return 1.0
        if group.kind is not Kind.ROW:
            return self._busy_share()
        step = mapping.lanes * mapping.vector
        alone = group.inner_points % step / max(group.inner_points, 1)
        if mapping.vector == 1 and mapping.lanes <= self._subgroup:
            alone = 0.0  # such a last step begins earlier, with all lanes
        return 1.0 / (1.0 + alone * _ALONE)

    def in_flight(self) -> int:
        """Bytes of independent loads that a thread has outstanding at once."""
        mapping = self.mapping
        best = 4
        steps = mapping.unroll
        if mapping.is_persistent or self.group.kind is Kind.POINTWISE:
            steps = mapping.items
        for each in self.group.plan:
            size = 0
            for number in computed(each, mapping):
                what = self.group.values[number].what
                if isinstance(what, Load):
                    width = self.nest.tensors[what.tensor].dtype.bytes
                    size += width * copies(self.group, mapping, number)
            best = max(best, size * min(steps, _STEPS_IN_FLIGHT))
        return best


def pipe_of(dtype: DType) -> Pipe:
    """The pipe that adds and multiplies values of a dtype."""
    if dtype is DType.F64:
        return Pipe.FMA64
    return Pipe.FMA32 if dtype is DType.F32 else Pipe.INTEGER
