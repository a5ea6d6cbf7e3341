"""Schedules: which are worth trying, and which is good unseen.

Knobs of all kernels: ``threads`` of a block, ``vector`` (neighbours that a thread
takes at once), ``repeat`` (outer points that a team takes in turn). POINTWISE has
``items`` (steps along the inner loops). Reductions have ``lanes``; ROW kernels
``persistent`` (0 or 1: values are kept between passes) and ``unroll``; COLUMN
kernels ``unroll``. Where large results may go past the caches of a CPU, ``stream`` (0
or 1) says whether they do. TILE kernels
have ``lanes``, ``rows`` and ``columns`` of a thread
(``repeat`` of the others) and the ``depth`` of a staged tile; for factors of 16 bits
``tensor`` says whether tensor cores multiply them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from tuner.kernel.index import runs
from tuner.kernel.mapping import Mapping, divided, map_groups, power_above
from tuner.kernel.nest import Group, Kind, Load, LoopNest
from tuner.kernel.onchip import onchip_bytes, room_bytes
from tuner.kernel.staged import staged_values
from tuner.kernel.streams import any_streams
from tuner.kernel.tiles import default_tile, is_legal_tiles, slides, tile_candidates
from tuner.plan import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cost_model.device import Device

KEPT_REGISTERS: Final = 64
"""Most values that a GPU thread keeps between passes."""
WORKING_REGISTERS: Final = 32
"""Registers of a GPU thread that are left for everything else."""
KEPT_STACK_BYTES: Final = 1 << 14
"""Most bytes that a CPU work-item keeps between passes: a lane's share of L2."""
_BLOCKS_PER_CORE: Final = 8
_ROW_BLOCKS_PER_CORE: Final = 4
LINE_ELEMENTS: Final = 16
"""Elements of four bytes in a cache line."""
RAGGED_LANES: Final = 64
"""Lanes along inner loops whose points do not fill vectors."""
RAGGED_ITEMS: Final = 64
"""Most steps that these lanes take."""
PACKED_ITEMS: Final = 64
"""Steps of a CPU's lanes along inner loops. Where values cost more than their traffic,
the loop of the text is better than the runtime's own over more lanes (bias and GELU,
64 MiB a tensor on two cores: 23 ms with 16 lanes of 64 unrolled steps, 28 to 32 with
256 or 1024 lanes); plain sums do not care (8 to 10 ms)."""
TILE_ITEMS: Final = 4
"""Lines of results in a row of a block whose lanes do not read neighbours."""
TILE_REPEATS: Final = 64
"""Most rows of such a block: lines are then read whole, and the lines of a block fit
the smallest cache (64 x 64 against 16 x 256: 1021 x 1031 transposed in 0.65 to 1.5 ms
against 1.5 to 1.8; 4096 x 4096 in 61 against 68)."""
STAGED_ITEMS: Final = 16
"""The same where they read what was staged (4096 x 4096 transposed and added: tiles of
256 x 64 in 10.7 ms, 64 x 64 in 12.7)."""
HELD_STEPS: Final = 64
"""Longest rows, in steps of a CPU's lanes, whose values may stay in registers."""
ROW_REPEATS: Final = 32
"""Most rows that a team of a CPU takes by default, one after the other. Blocks of one
team go through memory in order (layer norm of a sum, 64 MiB a tensor: 6.3 ms, 6.8 with
four teams of 8 rows)."""
MANY_TEAMS: Final = 32
"""Teams of a CPU's block that take columns one by one. Sums of 1024 columns take 1.2
times as long with any fewer, columns side by side or not, and 2.4 times by default; a
softmax of columns 1.3 to 1.8 times the least, 1.8 to 2.1 by default (both recordings of
whole spaces). With columns side by side so many teams are slower than few (1.8 against
1.2; 1.6 against 1.0)."""
MANY_TEAMS_LANES: Final = (32, 64, 128)
"""Lanes of these teams. With 16, a team reads one line of a row at a time, and takes
2.2 to 2.7 times as long as with 32 (sums; the softmax: 1.3 to 1.5)."""
LONG_TEAM: Final = 2048
"""Rows that could use more lanes than this get the largest blocks."""
_WIDEST_BYTES: Final = 16


def space(nest: LoopNest, device: Device) -> tuple[Schedule, ...]:
    """Every schedule worth trying, the default first; each is legal for the device.

    Schedules that lead to the same mapping are listed once.
    """
    found: dict[object, Schedule] = {}
    for schedule in (default(nest, device), *_candidates(nest, device)):
        if is_legal(nest, schedule, device):
            found.setdefault(map_groups(nest, schedule), schedule)
    return tuple(found.values())


def regime(nest: LoopNest) -> str:
    """A word for kernels whose good schedules are alike, whatever their sizes."""
    kind = nest.groups[0].kind if nest.groups else Kind.POINTWISE
    if kind is Kind.TILE:
        return "window" if slides(nest) else "tile"
    if kind is Kind.POINTWISE and any(map(_is_strided, nest.groups)):
        return "strided"
    return str(kind.value)


def is_legal(nest: LoopNest, schedule: Schedule, device: Device) -> bool:
    """Whether a device can run a schedule, and the text stays of bearable size."""
    if schedule["threads"] > device.max_block_threads:
        return False
    mappings = map_groups(nest, schedule)
    if nest.groups and nest.groups[0].kind is Kind.TILE:
        return is_legal_tiles(nest, mappings, device)
    if onchip_bytes(nest, mappings, device) > room_bytes(device):
        return False
    return all(
        not mapping.is_persistent
        or _can_keep(group, _values_kept(group, mapping), device, schedule["threads"])
        for group, mapping in zip(nest.groups, mappings, strict=True)
    )


def _values_kept(group: Group, mapping: Mapping) -> int:
    """How many of each kept value a thread keeps."""
    return group.serial_points * mapping.items * mapping.vector


def default(nest: LoopNest, device: Device) -> Schedule:
    """A schedule that is good without tuning."""
    kind = nest.groups[0].kind if nest.groups else Kind.POINTWISE
    if kind is Kind.TILE:
        return default_tile(nest, device)
    if kind is Kind.COLUMN:
        return _default_column(nest, device)
    by_kind = _default_row if kind is Kind.ROW else _default_pointwise
    found = by_kind(nest, device)
    if _is_cpu(device) and any_streams(nest):
        return Schedule.of(**found.as_dict, stream=1)
    return found


def _candidates(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    """Every schedule of a kind, with and without streamed results where they may be."""
    plain = _plain_candidates(nest, device)
    if not (_is_cpu(device) and any_streams(nest)):
        yield from plain
        return
    for schedule in plain:
        for stream in (1, 0):
            yield Schedule.of(**schedule.as_dict, stream=stream)


def _plain_candidates(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    kind = nest.groups[0].kind if nest.groups else Kind.POINTWISE
    if kind is Kind.ROW:
        yield from _row_candidates(nest, device)
    elif kind is Kind.COLUMN:
        yield from _column_candidates(nest, device)
    elif kind is Kind.TILE:
        yield from tile_candidates(nest, device)
    else:
        yield from _pointwise_candidates(nest, device)


def _is_cpu(device: Device) -> bool:
    return device.kind == "cpu"


def widths(nbytes: int, device: Device) -> tuple[int, ...]:
    """Vector widths for elements of so many bytes, narrow to wide.

    A CPU's compiler packs neighbouring work-items by itself.
    """
    if _is_cpu(device):
        return (1,)
    return tuple(width for width in (1, 2, 4) if width * nbytes <= _WIDEST_BYTES)


def _vectors(nest: LoopNest, device: Device) -> tuple[int, ...]:
    """Vector widths that some group can be walked with."""
    widest = max((t.dtype.bytes for t in nest.tensors), default=1)
    even = [g.inner_points for g in nest.groups] or [0]
    found = widths(widest, device)
    return tuple(w for w in found if w == 1 or any(n % w == 0 for n in even))


# Pointwise


def _default_pointwise(nest: LoopNest, device: Device) -> Schedule:
    points = sum(g.outer_points * g.inner_points for g in nest.groups)
    if _is_cpu(device):
        if any(_is_strided(group) for group in nest.groups):
            return _tiled_pointwise(nest, device)
        ragged = max((g.inner_points for g in nest.groups if _is_ragged(g)), default=0)
        if ragged:
            items = min(divided(ragged, RAGGED_LANES), RAGGED_ITEMS)
            return Schedule.of(threads=RAGGED_LANES, vector=1, items=items, repeat=1)
        return _packed_pointwise(nest, points // device.multiprocessors)
    vector = _vectors(nest, device)[-1]
    threads = 256
    while vector > 1 and points < vector * threads * device.multiprocessors:
        vector //= 2
    return Schedule.of(threads=threads, vector=vector, items=1, repeat=1)


def _tiled_pointwise(nest: LoopNest, device: Device) -> Schedule:
    """Blocks that are tiles, several times as high as a line is long."""
    for items in (STAGED_ITEMS, STAGED_ITEMS // 2, STAGED_ITEMS // 4):
        staging = Schedule.of(
            threads=LINE_ELEMENTS, vector=1, items=items, repeat=TILE_REPEATS
        )
        if _stages(nest, staging) and is_legal(nest, staging, device):
            return staging
    plain = _plain_tiles(nest, device)
    if is_legal(nest, plain, device):
        return plain
    # With fewer rows than lanes nothing is staged: see `staged_values`.
    return Schedule.of(**{**plain.as_dict, "repeat": plain["threads"] // 2})


def _stages(nest: LoopNest, schedule: Schedule) -> bool:
    """Whether blocks stage what they read under a schedule."""
    mappings = map_groups(nest, schedule)
    pairs = zip(nest.groups, mappings, strict=True)
    return any(staged_values(nest, group, mapping) for group, mapping in pairs)


def _plain_tiles(nest: LoopNest, device: Device) -> Schedule:
    """Tiles of a block that stages nothing, unless it is small.

    The lines of results that do not begin at a line's border are written in one go;
    others as each is full, with no more lines read at a time than there are lanes.
    """
    points = sum(g.outer_points * g.inner_points for g in nest.groups)
    ragged = any(group.inner_points % LINE_ELEMENTS for group in nest.groups)
    inner = max((g.inner_points for g in nest.groups), default=1)
    items = min(TILE_ITEMS, divided(inner, LINE_ELEMENTS)) if ragged else 1
    threads = LINE_ELEMENTS if ragged else LINE_ELEMENTS * TILE_ITEMS
    steps = _block_steps(points // device.multiprocessors)
    repeat = min(steps // TILE_ITEMS, TILE_REPEATS)
    return Schedule.of(
        threads=threads,
        vector=1,
        items=max(items, 1),
        repeat=max(repeat, LINE_ELEMENTS),
    )


def _block_steps(core_points: int) -> int:
    """Steps of a few lanes for which every core has blocks enough."""
    return max(core_points // (_BLOCKS_PER_CORE * LINE_ELEMENTS), 1)


def _packed_pointwise(nest: LoopNest, core_points: int) -> Schedule:
    """Few lanes that take many steps: along the inner loops first, then row by row."""
    steps = min(_block_steps(core_points), PACKED_ITEMS)
    inner = max((g.inner_points for g in nest.groups), default=1)
    items = max(min(steps, divided(inner, LINE_ELEMENTS)), 1)
    repeat = max(steps // items, 1)
    return Schedule.of(threads=LINE_ELEMENTS, vector=1, items=items, repeat=repeat)


def _is_ragged(group: Group) -> bool:
    """Whether wide blocks would have many lanes beyond the end of the inner loops.

    Few lanes then take many steps, of which the last alone is partial.
    """
    points = group.inner_points
    fits = RAGGED_LANES < points <= RAGGED_LANES * RAGGED_ITEMS
    return fits and points % LINE_ELEMENTS != 0


def _is_strided(group: Group) -> bool:
    """Whether neighbouring threads read elements that are not neighbours.

    A team that goes on to the next outer points then finds their elements in the
    cache lines that it has read already.
    """
    for value in group.values:
        if isinstance(value.what, Load):
            along = runs(group.atoms, value.what.index, group.inner)
            if along and along[-1].below == 1 and abs(along[-1].coefficient) > 1:
                return True
    return False


def _pointwise_candidates(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    if _is_cpu(device):
        repeats: tuple[int, ...] = (1, 4, 16)
        if any(_is_strided(group) for group in nest.groups):
            repeats = (*repeats, TILE_REPEATS)
        grid: Iterable[tuple[int, ...]] = itertools.product(
            (16, 64, 256, 1024), (1,), (1, 4, 16, PACKED_ITEMS), repeats
        )
    else:
        grid = itertools.product(
            (64, 128, 256, 512), _vectors(nest, device), (1, 2, 4), (1, 2, 4)
        )
    for threads, vector, items, repeat in grid:
        yield Schedule.of(threads=threads, vector=vector, items=items, repeat=repeat)


# Rows


def _can_keep(group: Group, values: int, device: Device, threads: int) -> bool:
    """Whether a thread can keep so many of each kept value."""
    kept = [
        sum(group.values[number].dtype.bytes for number in each.kept)
        for each in group.plan
    ]
    size = values * max(kept, default=0)
    if not size:
        return False
    if _is_cpu(device):
        return size <= KEPT_STACK_BYTES
    share = device.registers_per_multiprocessor // threads - WORKING_REGISTERS
    return size <= 4 * min(share, KEPT_REGISTERS)


def _keeps_computed(group: Group) -> bool:
    """Whether some value that is kept between passes is more than an element read.

    A processor that keeps many values keeps them in memory: elements are there already
    (log-sum-exp over rows of 32,768: 12.5 ms read again, 20.8 ms copied).
    """
    return any(
        not isinstance(group.values[number].what, Load)
        for each in group.plan
        for number in each.kept
    )


def _default_row(nest: LoopNest, device: Device) -> Schedule:
    group = nest.groups[0]
    if _is_cpu(device):
        lanes = device.subgroup_threads
        values = group.serial_points * divided(group.inner_points, lanes)
        persistent = _can_keep(group, values, device, lanes)
        if divided(group.inner_points, lanes) > HELD_STEPS:
            persistent = persistent and _keeps_computed(group)
        wanted = ROW_REPEATS * _ROW_BLOCKS_PER_CORE * device.multiprocessors
        repeat = ROW_REPEATS
        while repeat > 1 and group.outer_points < wanted:
            repeat, wanted = repeat // 2, wanted // 2
        return Schedule.of(
            threads=lanes,
            lanes=lanes,
            vector=1,
            repeat=repeat,
            persistent=int(persistent),
            unroll=1,
        )
    vector = _vectors(nest, device)[-1]
    if group.inner_points % vector:
        vector = 1
    wanted = power_above(divided(group.inner_points, 4 * vector))
    lanes = min(max(wanted, 32), 512 if wanted <= LONG_TEAM else 1024)
    values = divided(group.inner_points, lanes * vector) * vector
    values *= group.serial_points
    threads = max(lanes, 128)
    return Schedule.of(
        threads=threads,
        lanes=lanes,
        vector=vector,
        repeat=1,
        persistent=int(_can_keep(group, values, device, threads)),
        unroll=1,
    )


def _row_candidates(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    group = nest.groups[0]
    width = device.subgroup_threads
    if _is_cpu(device):
        lanes: tuple[int, ...] = (width, 4 * width)
        teams: tuple[int, ...] = (1, 4, 16)
        repeats: tuple[int, ...] = (1, 4, 16)
    else:
        lanes = tuple(
            n for n in (8, 32, 64, 128, 256, 512, 1024) if n <= 2 * group.inner_points
        )
        teams, repeats = (1, 2, 4, 8), (1,)
    for n, team, vector, repeat in itertools.product(
        lanes, teams, _vectors(nest, device), repeats
    ):
        for persistent, unroll in ((1, 1), (0, 1), (0, 4)):
            yield Schedule.of(
                threads=n * team,
                lanes=n,
                vector=vector,
                repeat=repeat,
                persistent=persistent,
                unroll=unroll,
            )


# Columns


def _default_column(nest: LoopNest, device: Device) -> Schedule:
    group = nest.groups[0]
    if _is_cpu(device):
        lanes = min(64, max(16, power_above(group.inner_points)))
        return Schedule.of(threads=lanes, lanes=lanes, vector=1, repeat=1, unroll=1)
    lanes = 32
    points = group.outer_points * group.inner_points
    wanted = 2048 * device.multiprocessors // max(points, 1)
    teams = min(32, max(1, power_above(wanted)), power_above(group.serial_points))
    return Schedule.of(threads=lanes * teams, lanes=lanes, vector=1, repeat=1, unroll=4)


def _column_candidates(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    if _is_cpu(device):
        # Teams, and columns side by side in a thread, are chains of sums that do not
        # wait for each other. What the compiler makes of them is known by trying alone
        # (softmax of 1024 columns 2.7 times as fast, a norm of 2048 3 times as slow).
        few = itertools.product((16, 64, 256), (1, 4), (1, 4), (1, 4))
        many = itertools.product(MANY_TEAMS_LANES, (MANY_TEAMS,), (1,), (1,))
        grid: Iterable[tuple[int, ...]] = itertools.chain(few, many)
    else:
        grid = itertools.product(
            (32, 64, 128), (1, 2, 4, 8, 16, 32), _vectors(nest, device), (1, 4, 8)
        )
    for n, team, vector, unroll in grid:
        yield Schedule.of(
            threads=n * team, lanes=n, vector=vector, repeat=1, unroll=unroll
        )
