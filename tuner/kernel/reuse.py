"""How much else is touched before a kernel asks for the same sector again.

A group walks through its points level by level: the threads of a sub-group, the steps
of a thread, the rows of a block, on a processor also the blocks that a core takes one
after the other. Each level covers a *box*: so many points of each list of loops. What
an operand needs in a box is known from its index alone; what it needs in the next
larger box, and how often the smaller one is walked for it, tells how many sectors are
asked for again there. In between, the smaller box of every operand has passed through
the cache: that is the distance. Lines a power of two apart compete for few sets
of a processor's caches and count for as much more (`_crowding`).

Sources: M. E. Wolf, M. S. Lam, "A data locality optimizing algorithm", PLDI 1991, for
reuse by loop level; H. Stengel, J. Treibig, G. Hager, G. Wellein, "Quantifying
performance bottlenecks of stencil computations using the execution-cache-memory model",
ICS 2015, for the condition under which a level fits ("layer condition"); M. D. Hill,
A. J. Smith, "Evaluating associativity in CPU caches", IEEE Transactions on Computers
38(12), 1989, for sets.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from cost_model.work import Reuse
from tuner.kernel.index import AtomKind, Index, runs
from tuner.kernel.nest import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost_model.device import Device
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import Group


PAGE_BYTES: Final = 4096
"""Also the size of a way of the first cache in cores of all makes."""


class Span(NamedTuple):
    """So many points of a list of loops, `stride` apart."""

    points: int
    stride: int = 1


ONE = Span(1)


class Box(NamedTuple):
    """Points that are walked together, by list of loops."""

    outer: Span = ONE
    rows: Span = ONE
    inner: Span = ONE
    serial: Span = ONE

    @property
    def points(self) -> int:
        """How many points it has."""
        return math.prod(span.points for span in self)


class Level(NamedTuple):
    """A box, and whether all passes over a row have been made once it is walked."""

    box: Box
    is_whole: bool


Terms = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Operand:
    """A tensor under indices that differ by constants, such as those of a window.

    Attributes:
        slot: number of the tensor.
        terms: of the indices.
        width: bytes of an element.
        sector_bytes: of the distinct sectors that one of the indices reaches.
        requested_bytes: sector bytes that all threads ask for, in all passes.
        passes: constant of an index -> walks over the points in which it is used.
    """

    slot: int
    terms: Terms
    width: int
    sector_bytes: float = 0.0
    requested_bytes: float = 0.0
    passes: dict[int, int] = field(default_factory=dict)

    def add(self, constant: int, requested_bytes: float) -> None:
        """One walk over the points under one of the indices."""
        self.requested_bytes += requested_bytes
        self.passes[constant] = self.passes.get(constant, 0) + 1


def levels(group: Group, mapping: Mapping, device: Device) -> tuple[Level, ...]:
    """The boxes of a walk, from the inside out.

    A GPU's block walks its threads side by side, and neighbouring blocks run on other
    multiprocessors. A CPU's core takes a vector of threads through all of their steps,
    then the next vector, and one block after the other: neighbours along the inner
    loops first.
    """
    rule = _RULES[group.kind, device.kind == "cpu"]
    found: list[Level] = []
    for level in rule(group, mapping, device):
        if not found or found[-1] != level:
            found.append(level)
    return tuple(found)


def reuses(
    group: Group,
    walk: Sequence[Level],
    operands: Sequence[Operand],
    device: Device,
) -> tuple[tuple[Reuse, ...], ...]:
    """Requests of each operand for sectors that its block has asked for before."""
    needed = [_footprints(group, walk, each, device) for each in operands]
    passing = [
        sum(one.crowded_bytes for one in each) for each in zip(*needed, strict=True)
    ]
    points = _points(group)
    return tuple(
        _reuse(operand, walk, mine, (passing, points))
        if is_plain(group, operand.terms)
        else ()
        for operand, mine in zip(operands, needed, strict=True)
    )


def _points(group: Group) -> int:
    lists = (group.outer, group.rows, group.inner, group.serial)
    return math.prod(group.extent(loops) for loops in lists)


def is_plain(group: Group, terms: Terms) -> bool:
    """Whether an index is a sum of loop counters: others are not followed."""
    return all(group.atoms[atom].kind is AtomKind.LOOP for atom, _ in terms)


def _reuse(
    operand: Operand,
    walk: Sequence[Level],
    needed: Sequence[Footprint],
    around: tuple[Sequence[float], int],
) -> tuple[Reuse, ...]:
    """What each level asks for again, at the distance of the level inside it."""
    passing, points = around
    found: list[Reuse] = []
    left = operand.requested_bytes
    distance = 0.0
    for place, level in enumerate(walk):
        times = points / level.box.points
        passes = 1 if level.is_whole else max(operand.passes.values())
        distinct = min(left, needed[place].sector_bytes * times * passes)
        if left - distinct >= 1.0:
            found.append(
                Reuse(
                    distance_bytes=int(distance), requested_bytes=int(left - distinct)
                )
            )
        left, distance = distinct, passing[place]
    return tuple(found)


def _footprints(
    group: Group, walk: Sequence[Level], operand: Operand, device: Device
) -> list[Footprint]:
    """The distinct sectors that an operand reaches in each box."""
    width, index = operand.width, Index(0, operand.terms)
    lists = (group.outer, group.rows, group.inner, group.serial)
    found = [runs(group.atoms, index, loops) for loops in lists]
    plane = [
        [(run.below, run.extent, abs(run.coefficient) * width) for run in each]
        for each in found
    ]
    apart = [(step * width, n) for step, n in _window(sorted(operand.passes))]
    return [_reached(_steps(plane, level.box) + apart, width, device) for level in walk]


class Footprint(NamedTuple):
    """Distinct sectors of an operand in a box.

    Attributes:
        sector_bytes: of them.
        crowded_bytes: of a cache that is so large that they fit in it, although they
            fall in some of its sets more often than in others.
    """

    sector_bytes: float
    crowded_bytes: float


Steps = list[tuple[int, int]]
"""Bytes between neighbours, and how many of them, of what moves an index."""


def _steps(
    plane: Sequence[Sequence[tuple[int, int, int]]], box: Sequence[Span]
) -> Steps:
    """Loops inside a box that move an index."""
    found: Steps = []
    for along, (count, stride) in zip(plane, box, strict=True):
        if count == 1:
            continue
        reach = (count - 1) * stride + 1
        for below, extent, size in along:
            each = max(1, stride // below)
            most = min(-(-reach // below), extent)
            number = min(-(-most // each), count)
            if number > 1:
                found.append((size * each, number))
    return found


def steps_of(group: Group, operand: Operand, loops: Sequence[int], span: Span) -> Steps:
    """Bytes between the elements of an operand along some loops, and how many."""
    along = runs(group.atoms, Index(0, operand.terms), loops)
    plane = [
        (run.below, run.extent, abs(run.coefficient) * operand.width) for run in along
    ]
    return _steps([plane], [span])


def _window(offsets: Sequence[int]) -> Steps:
    """Loops that would make the same offsets: 3 x 3 neighbours are two of them."""
    if len(offsets) == 1:
        return []
    known = set(offsets)
    step = min(b - a for a, b in itertools.pairwise(offsets))
    count = 1
    while offsets[0] + count * step in known:
        count += 1
    rest = offsets[::count]
    if count > 1 and {a + n * step for a in rest for n in range(count)} == known:
        return [(step, count), *_window(rest)]
    return [((offsets[-1] - offsets[0]) // (len(offsets) - 1), len(offsets))]


def _reached(steps: Steps, width: int, device: Device) -> Footprint:
    """What so many steps reach."""
    sector = device.sector_bytes
    steps.sort(reverse=True)
    length = width
    while steps and steps[-1][0] <= max(length, sector):
        step, count = steps.pop()
        length += step * (count - 1)
    pieces, common = 1, 0
    while steps:
        step, count = steps.pop()
        # Loops whose steps overlap reach a longer run of pieces, not more runs.
        while steps and steps[-1][0] % step == 0 and steps[-1][0] <= step * count:
            further, more = steps.pop()
            count += further // step * (more - 1)
        pieces *= count
        common = math.gcd(common, step)
    reached = float(pieces * max(length, sector))
    crowding = _crowding(common, length, sector) if device.kind == "cpu" else 1.0
    return Footprint(reached, reached * crowding)


def _crowding(step: int, length: int, sector: int) -> float:
    """Sets of a cache over those that pieces of some length, a step apart, fall in.

    Bits of an address beyond the page are another thing in memory than in the program;
    the first cache of a core uses none of them.
    """
    if not step:
        return 1.0
    sets = PAGE_BYTES // sector
    places = PAGE_BYTES // math.gcd(step, PAGE_BYTES)
    return max(1.0, sets / (places * max(1.0, length / sector)))


def _whole(number: int, by: int) -> int:
    return max(1, -(-number // by))


def _cpu_pointwise(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    inner, outer = group.inner_points, group.outer_points
    lanes = min(m.lanes, device.subgroup_threads) * m.vector
    step, block = min(lanes * m.items, inner), min(m.tile, inner)
    rows = min(m.repeat * m.teams, outer)
    taken = Span(min(m.repeat, outer), m.teams)
    return (
        Level(Box(inner=Span(min(lanes, inner))), True),
        Level(Box(inner=Span(step)), True),
        Level(Box(outer=taken, inner=Span(step)), True),
        Level(Box(outer=taken, inner=Span(block)), True),
        Level(Box(outer=Span(rows), inner=Span(block)), True),
        Level(Box(outer=Span(rows), inner=Span(inner)), True),
        Level(Box(outer=Span(_share(outer, rows, device)), inner=Span(inner)), True),
    )


def _share(outer: int, rows: int, device: Device) -> int:
    """Outer points of one core, whole blocks of `rows` of them."""
    return min(outer, max(rows, _whole(outer, device.multiprocessors)))


def _cpu_row(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    inner, outer = Span(group.inner_points), group.outer_points
    serial = Span(group.serial_points)
    width = min(m.lanes, device.subgroup_threads) * m.vector
    first = Box(inner=Span(min(width, inner.points)))
    taken = Span(min(m.repeat, outer), m.teams)
    rows = min(m.repeat * m.teams, outer)
    # Lanes that meet at a barrier pass over the rows of all teams of a turn together.
    alone = m.lanes <= device.subgroup_threads
    turn = Box(
        outer=ONE if alone else Span(min(m.teams, outer)), inner=inner, serial=serial
    )
    inside = turn._replace(outer=taken) if alone else turn
    return (
        Level(first, False),
        Level(Box(inner=inner), False),
        Level(turn, False),
        Level(turn, True),
        Level(inside, True),
        Level(turn._replace(outer=Span(rows)), True),
        Level(turn._replace(outer=Span(_share(outer, rows, device))), True),
    )


def _cpu_column(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    inner, outer = group.inner_points, group.outer_points
    serial = Span(group.serial_points)
    first = Span(min(min(m.lanes, device.subgroup_threads) * m.vector, inner))
    block = Span(min(m.tile, inner))
    mine = Span(_whole(group.serial_points, m.teams), m.teams)
    # Teams meet at a barrier after each pass: all of their lanes make it together.
    turn = Box(inner=first if m.teams == 1 else block, serial=serial)
    return (
        Level(Box(inner=first), False),
        Level(Box(inner=first, serial=mine), False),
        Level(Box(inner=turn.inner, serial=mine), False),
        Level(turn, False),
        Level(turn, True),
        Level(Box(inner=block, serial=serial), True),
        Level(Box(inner=Span(inner), serial=serial), True),
        Level(
            Box(
                outer=Span(_share(outer, 1, device)),
                inner=Span(inner),
                serial=serial,
            ),
            True,
        ),
    )


def _gpu_pointwise(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    del device
    inner, outer = group.inner_points, group.outer_points
    step = Span(min(m.lanes * m.vector, inner))
    block = Span(min(m.tile, inner))
    return (
        Level(Box(outer=Span(min(m.teams, outer)), inner=step), True),
        Level(Box(outer=Span(min(m.teams, outer)), inner=block), True),
        Level(Box(outer=Span(min(m.teams * m.repeat, outer)), inner=block), True),
    )


def _gpu_row(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    del device
    inner, outer = group.inner_points, group.outer_points
    teams = Span(min(m.teams, outer))
    serial = Span(group.serial_points)
    step = Span(min(m.lanes * m.vector, inner))
    turn = Box(outer=teams, inner=Span(inner), serial=serial)
    return (
        Level(Box(outer=teams, inner=step), False),
        Level(turn, False),
        Level(turn, True),
        Level(turn._replace(outer=Span(min(m.teams * m.repeat, outer))), True),
    )


def _gpu_column(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    del device
    inner = Span(min(m.lanes * m.vector, group.inner_points))
    serial = group.serial_points
    return (
        Level(Box(inner=inner, serial=Span(min(m.teams, serial))), False),
        Level(Box(inner=inner, serial=Span(serial)), False),
        Level(Box(inner=inner, serial=Span(serial)), True),
    )


def _tile(group: Group, m: Mapping) -> tuple[Level, Level]:
    """A slab of both factors, and the whole of what a block reads."""
    serial = group.serial_points
    slab = Box(
        rows=Span(min(m.height, group.row_points)),
        inner=Span(min(m.tile, group.inner_points)),
        serial=Span(min(m.depth, serial)),
    )
    return Level(slab, True), Level(slab._replace(serial=Span(serial)), True)


def _gpu_tile(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    del device
    return _tile(group, m)


def _cpu_tile(group: Group, m: Mapping, device: Device) -> Sequence[Level]:
    slab, block = _tile(group, m)
    band = block.box._replace(inner=Span(group.inner_points))
    whole = band._replace(rows=Span(group.row_points))
    mine = whole._replace(outer=Span(_share(group.outer_points, 1, device)))
    return slab, block, Level(band, True), Level(whole, True), Level(mine, True)


_RULES = {
    (Kind.POINTWISE, False): _gpu_pointwise,
    (Kind.POINTWISE, True): _cpu_pointwise,
    (Kind.ROW, False): _gpu_row,
    (Kind.ROW, True): _cpu_row,
    (Kind.COLUMN, False): _gpu_column,
    (Kind.COLUMN, True): _cpu_column,
    (Kind.TILE, False): _gpu_tile,
    (Kind.TILE, True): _cpu_tile,
}
"""Levels by kind of nest, and whether a processor walks it."""
