"""Reuse distances are those of a walk through the generated loops."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import cpu, find
from cost_model.work import Access, Reuse, Work
from tests.tuner.kernel.builder import Builder, add_layer_norm, softmax
from tuner.kernel.count import work
from tuner.kernel.index import Index
from tuner.kernel.lower import lower
from tuner.kernel.mapping import map_groups
from tuner.kernel.nest import Group, Kind, Load
from tuner.kernel.reuse import PAGE_BYTES
from tuner.plan import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tuner.ir.graph import Graph
    from tuner.kernel.mapping import Mapping

MIB = 1 << 20
KIB = 1 << 10
LINE = 64
CAPACITIES = (8 * KIB, 16 * KIB, 48 * KIB)

CROWDING = 32
"""Rows of 512 floats lie 2 KiB apart: they fall in 2 of 64 sets."""


def turned(rows: int, columns: int) -> Graph:
    """A transposed copy."""
    b = Builder()
    return b.graph(b.op("neg", b.op("transpose", b.input(rows, columns), perm=(1, 0))))


def counted(graph: Graph, target: str, **knobs: int) -> Work:
    """Work of a graph under a schedule."""
    return work(lower(graph), Schedule.of(**knobs), find(target))


def read(found: Work) -> Access:
    """Traffic of the only tensor that is read."""
    (access,) = [a for a in found.accesses if not a.is_write]
    return access


def test_rows_of_a_block_share_the_lines_of_a_transposed_read() -> None:
    """Sixteen rows use a line up; between two of them lie a step's lines alone."""
    found = counted(turned(512, 512), "cpu", threads=64, vector=1, items=1, repeat=16)
    access = read(found)
    assert access.requested_bytes == 16 * MIB
    (again,) = access.reuse
    step = 16 * LINE * CROWDING + LINE
    assert again == Reuse(distance_bytes=step, requested_bytes=15 * MIB)


def test_blocks_that_a_core_takes_in_turn_share_lines_too() -> None:
    """With a row a block, all lines of a column pass until a line is used again."""
    found = counted(turned(512, 512), "cpu", threads=64, vector=1, items=1, repeat=1)
    (again,) = read(found).reuse
    row = 512 * LINE * CROWDING + 512 * 4
    assert again == Reuse(distance_bytes=row, requested_bytes=15 * MIB)


def test_neighbouring_blocks_of_a_gpu_run_elsewhere() -> None:
    """What they read again of a transposed tensor hits no cache of their own."""
    found = counted(turned(512, 512), "sm_80", threads=256, vector=1, items=1, repeat=1)
    access = read(found)
    assert access.requested_bytes == 8 * access.sector_bytes
    assert access.reuse == ()


def test_teams_of_a_gpu_share_the_sectors_of_their_step() -> None:
    """Rows side by side in a block ask for the same sectors at the same time."""
    knobs = {"threads": 256, "vector": 1, "items": 1, "repeat": 1}
    access = read(counted(turned(32, 4096), "sm_80", **knobs))
    (again,) = access.reuse
    assert again.requested_bytes == 7 * access.sector_bytes
    assert again.distance_bytes == 0


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_passes_over_a_row_are_a_row_apart(target: str) -> None:
    """A softmax that keeps nothing reads its row twice more."""
    knobs = {"threads": 16, "lanes": 16, "vector": 1, "repeat": 1, "unroll": 1}
    found = counted(softmax(64, 1024), target, persistent=0, **knobs)
    access = read(found)
    row = 4 * 1024
    assert access.requested_bytes == 3 * 64 * row
    (again,) = access.reuse
    assert again.requested_bytes == 2 * 64 * row
    assert again.distance_bytes == 2 * row
    kept = counted(softmax(64, 1024), target, persistent=1, **knobs)
    assert read(kept).reuse == ()


def test_lanes_that_meet_at_a_barrier_pass_over_all_rows_together() -> None:
    """Four teams are four rows apart from their next pass."""
    knobs = {"vector": 1, "repeat": 1, "unroll": 1, "persistent": 0}
    alone = counted(softmax(64, 1024), "cpu", threads=64, lanes=16, **knobs)
    together = counted(softmax(64, 1024), "cpu", threads=256, lanes=64, **knobs)
    near, far = read(alone).reuse[-1], read(together).reuse[-1]
    assert far.distance_bytes == 4 * near.distance_bytes
    assert far.requested_bytes == near.requested_bytes


def test_teams_that_meet_at_a_barrier_pass_over_all_columns_together() -> None:
    """Alone, lanes come back once their own columns are done; teams, once all are."""
    knobs = {"vector": 1, "repeat": 1, "unroll": 1}
    graph = softmax(512, 512, axis=0)
    alone = counted(graph, "cpu", threads=64, lanes=64, **knobs)
    together = counted(graph, "cpu", threads=256, lanes=64, **knobs)
    near, far = read(alone).reuse[-1], read(together).reuse[-1]
    assert near.distance_bytes == 2 * 512 * LINE * CROWDING
    assert far.distance_bytes == 2 * 512 * 4 * LINE * CROWDING // 4
    assert far.requested_bytes == near.requested_bytes == 2 * MIB


def test_a_bias_is_read_again_row_after_row() -> None:
    """The distance is what a row touches; the bias itself is small."""
    b = Builder()
    graph = b.graph(b.op("add", b.input(256, 128), b.input(128)))
    found = counted(graph, "cpu", threads=16, vector=1, items=8, repeat=4)
    bias = min(found.accesses, key=lambda a: a.unique_bytes)
    assert sum(each.requested_bytes for each in bias.reuse) == 254 * 512
    assert max(each.distance_bytes for each in bias.reuse) == 4 * 1024 + 512


def test_a_window_reads_what_its_neighbours_have_read() -> None:
    """Nine elements a point, of which a row of windows brings six from before."""
    b = Builder()
    pooled = b.op(
        "max_pool",
        b.input(1, 8, 64, 64),
        kernel=(3, 3),
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        ceil=0,
    )
    found = counted(b.graph(pooled), "cpu", threads=16, vector=1, items=4, repeat=1)
    access = read(found)
    known = sum(each.requested_bytes for each in access.reuse)
    assert known == pytest.approx(
        access.requested_bytes - access.sector_bytes, rel=0.25
    )
    assert max(each.distance_bytes for each in access.reuse) < 4 * 64 * 5


# The rest compares with a walk through the loops, element by element.

Line = tuple[str, int]
"""Of a tensor: its name, and where in it."""


def walked(group: Group, mapping: Mapping, lanes: int) -> Iterator[tuple[int, ...]]:
    """Positions (outer, inner, serial) in the order of one core that does it all."""
    width = min(mapping.lanes, lanes)
    firsts = range(0, mapping.lanes, width)
    parts = range(mapping.blocks // mapping.chunks)
    blocks = itertools.product(parts, range(mapping.chunks))
    if group.kind is Kind.COLUMN:
        teams = range(mapping.teams)
        for (part, chunk), team, first in itertools.product(blocks, teams, firsts):
            rows = range(team, group.serial_points, mapping.teams)
            for r, lane in itertools.product(rows, range(width)):
                yield part, chunk * mapping.tile + first + lane, r
        return
    turns, items = range(mapping.repeat), range(mapping.items)
    for (part, chunk), team, first, turn, item, lane in itertools.product(
        blocks, range(mapping.teams), firsts, turns, items, range(width)
    ):
        q = (part * mapping.repeat + turn) * mapping.teams + team
        p = chunk * mapping.tile + item * mapping.lanes + first + lane
        if q < group.outer_points and p < group.inner_points:
            yield q, p, 0


def place(group: Group, index: Index, point: tuple[int, ...]) -> int:
    """The element that an index names at a point."""
    counters: dict[int, int] = {}
    loops = (group.outer, group.inner, group.serial)
    for position, each in zip(point, loops, strict=True):
        rest = position
        for atom in reversed(each):
            rest, counters[atom] = divmod(rest, group.atoms[atom].extent)
    return index.constant + sum(c * counters[atom] for atom, c in index.terms)


def asked_for(graph: Graph, schedule: Schedule) -> list[Line]:
    """Lines in the order in which a core asks for them.

    Lanes ask one after the other: a line that several of them need is asked for once,
    as long as the cache holds more than a step needs.
    """
    nest = lower(graph)
    (group,) = nest.groups
    (mapping,) = map_groups(nest, schedule)
    loads = [v.what for v in group.values if isinstance(v.what, Load)]
    tensors = [(each.tensor, each.index) for each in (*loads, *group.stores)]
    return [
        (tensor, 4 * place(group, index, point) // LINE)
        for point in walked(group, mapping, cpu().subgroup_threads)
        for tensor, index in tensors
    ]


def missed(asked: Sequence[Line], capacity: int) -> int:
    """Bytes of the lines that a cache which forgets the oldest has to fetch."""
    sets: list[OrderedDict[Line, None]]
    sets = [OrderedDict() for _ in range(PAGE_BYTES // LINE)]
    misses, most = 0, capacity // PAGE_BYTES
    for each in asked:
        held = sets[each[1] % len(sets)]
        misses += each not in held
        held[each] = None
        held.move_to_end(each)
        if len(held) > most:
            held.popitem(last=False)
    return misses * LINE


def predicted(found: Work, capacity: int) -> int:
    """The same, from the counted distances; two cores share the blocks."""
    total = 0
    for access in found.accesses:
        again = access.requested_bytes - access.sector_bytes
        hits = sum(
            each.requested_bytes
            for each in access.reuse
            if each.distance_bytes <= capacity
        )
        total += access.sector_bytes + max(again - hits, 0)
    return total


def kernels() -> Iterator[tuple[str, Graph, Sequence[dict[str, int]]]]:
    """Small kernels of several access patterns, each with schedules of its kind."""
    points = [
        {"threads": threads, "vector": 1, "items": items, "repeat": repeat}
        for threads, items, repeat in ((16, 1, 1), (16, 4, 4), (64, 1, 16), (256, 1, 4))
    ]
    yield "transposed", turned(96, 128), points
    b = Builder()
    x, y = b.input(4, 24, 8, 32), b.input(32)
    heads = b.op("transpose", x, perm=(0, 2, 1, 3))
    yield "heads and a bias", b.graph(b.op("add", heads, y)), points
    b = Builder()
    left, right = b.input(96, 1), b.input(1, 128)
    yield "outer product", b.graph(b.op("mul", left, right)), points
    b = Builder()
    mixed = b.op(
        "add", b.op("transpose", b.input(64, 64), perm=(1, 0)), b.input(64, 64)
    )
    yield "transposed and not", b.graph(mixed), points
    b = Builder()
    total = b.op("reduce_sum", b.input(64, 128), axes=(0,), keepdims=0)
    columns = [
        {"threads": n * m, "lanes": n, "vector": 1, "repeat": 1, "unroll": 1}
        for n, m in ((16, 1), (64, 1), (16, 4), (64, 4))
    ]
    yield "column sums", b.graph(total), columns
    b = Builder()
    total = b.op(
        "reduce_sum",
        b.op("transpose", b.input(96, 64), perm=(1, 0)),
        axes=(0,),
        keepdims=0,
    )
    yield "columns read as rows", b.graph(total), columns


CASES = [
    pytest.param(graph, knobs, id=f"{name} {knobs}")
    for name, graph, schedules in kernels()
    for knobs in schedules
]


@pytest.mark.parametrize(("graph", "knobs"), CASES)
def test_the_lines_that_miss_are_those_of_a_real_walk(
    graph: Graph, knobs: dict[str, int]
) -> None:
    """Caches of some sizes, walked through line by line, miss about as often.

    Distances near the size of the cache fall on either side of it: the walk says what
    smaller and larger caches would miss.
    """
    schedule = Schedule.of(**knobs)
    done, asked = work(lower(graph), schedule, cpu()), asked_for(graph, schedule)
    for capacity in CAPACITIES:
        found = predicted(done, capacity)
        least = missed(asked, 2 * capacity)
        most = missed(asked, capacity // 2)
        assert 0.8 * least <= found <= 1.25 * most, capacity


def test_norms_find_their_rows_again() -> None:
    """Without kept values three passes read two operands; all of it is known."""
    knobs = {"threads": 64, "lanes": 16, "vector": 1, "repeat": 4, "unroll": 1}
    found = counted(add_layer_norm(256, 768), "cpu", persistent=0, **knobs)
    for access in found.accesses:
        again = access.requested_bytes - access.sector_bytes
        known = sum(each.requested_bytes for each in access.reuse)
        assert known == pytest.approx(again, rel=0.02, abs=4096)
