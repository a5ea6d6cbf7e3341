"""What a processor's text does beside its arithmetic is counted as it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_model.catalog import find
from cost_model.roofline import predict
from cost_model.work import Pipe, Work
from tests.tuner.kernel.builder import Builder, softmax
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.count import work
from tuner.kernel.hops import TURN_HOPS
from tuner.kernel.lower import lower
from tuner.plan import Schedule

CPU = find("cpu")
LINE = CPU.sector_bytes


def counted(graph: Graph, target: str = "cpu", **knobs: int) -> Work:
    """Work of a graph under a schedule."""
    return work(lower(graph), Schedule.of(**knobs), find(target))


def points(threads: int, items: int, repeat: int = 1) -> dict[str, int]:
    """A schedule of a pointwise kernel."""
    return {"threads": threads, "items": items, "repeat": repeat, "vector": 1}


def columns(lanes: int, vector: int, teams: int = 1) -> dict[str, int]:
    """A schedule of sums down columns."""
    knobs = {"vector": vector, "repeat": 1, "unroll": 1}
    return {"threads": lanes * teams, "lanes": lanes, **knobs}


def rows(repeat: int = 1) -> dict[str, int]:
    """A schedule of rows that are read again in each pass."""
    knobs = {"vector": 1, "repeat": repeat, "unroll": 1, "persistent": 0}
    return {"threads": 16, "lanes": 16, **knobs}


def heads(batch: int, length: int, count: int, width: int) -> Graph:
    """The heads of an attention, each with its rows side by side."""
    b = Builder()
    x = b.input(batch, length, count, width)
    return b.graph(b.op("neg", b.op("transpose", x, perm=(0, 2, 1, 3))))


def sums(shape: tuple[int, int], tensors: int) -> Graph:
    """Products of some tensors, summed down."""
    b = Builder()
    value = b.input(*shape)
    for _ in range(1, tensors):
        value = b.op("mul", value, b.input(*shape))
    return b.graph(b.op("reduce_sum", value, axes=(0,), keepdims=1))


def turned(rows: int, columns: int) -> Graph:
    """A transposed tensor."""
    b = Builder()
    return b.graph(b.op("tanh", b.op("transpose", b.input(rows, columns), perm=(1, 0))))


def test_rows_of_a_page_that_take_turns_are_waited_for() -> None:
    """Hardware follows one walk in a page, and finds none in the lines of many rows."""
    graph = heads(4, 512, 12, 64)
    assert counted(graph, **points(16, 4, 16)).hops == 0
    assert counted(graph, **points(1024, 1)).hops == 0
    four, sixteen = (counted(graph, **points(64, 1, n)).hops for n in (4, 16))
    nbytes = 4 * 512 * 12 * 64 * 4
    beyond = 1 - CPU.l1_bytes * CPU.multiprocessors / (2 * nbytes)
    lines = nbytes / LINE
    read = 4096 / (12 * 64 * 4)
    assert four == pytest.approx(beyond * lines * TURN_HOPS * (read + 4))
    assert sixteen == pytest.approx(beyond * lines * TURN_HOPS * (read + 16))


@pytest.mark.parametrize(("width", "is_crowded"), [(1024, True), (1040, False)])
def test_rows_a_page_apart_crowd_the_first_cache(width: int, is_crowded: bool) -> None:
    """More of them in turn than it has ways fall to the same places."""
    b = Builder()
    graph = b.graph(b.op("exp", b.op("mul", b.input(2048, 1), b.input(1, width))))
    assert counted(graph, **points(64, 1, 4)).hops == 0
    assert (counted(graph, **points(64, 1, 16)).hops > 0) == is_crowded


def test_turns_alone_decide() -> None:
    """Two walks over the same lines, as many at once."""
    found = counted(heads(4, 512, 12, 64), **points(64, 1, 16))
    assert (
        predict(found, CPU).seconds
        > 1.5 * predict(replace(found, hops=0.0), CPU).seconds
    )


def test_columns_in_vectors_of_two_tensors_are_walked_lane_by_lane() -> None:
    """Teams that meet at a barrier keep their lanes together, and so does one read."""
    two, one = sums((2048, 1024), 2), sums((2048, 1024), 1)
    alone = counted(two, **columns(64, 4)).hops
    assert alone == pytest.approx(16 * counted(two, **columns(64, 4, 4)).hops, rel=0.2)
    packed = counted(one, **columns(64, 4)).hops
    assert packed < counted(one, **columns(64, 1)).hops


def test_lanes_beyond_the_last_column_work_too_where_teams_meet() -> None:
    """They do the last column again; where nobody meets they are idle."""
    graph = sums((200, 64), 2)
    assert counted(graph, **columns(256, 1)).compute_share == 1.0
    assert counted(graph, **columns(256, 1, 4)).compute_share == 64 / 256
    busy, idle = (
        counted(graph, **columns(n, 1, 4)).operations[Pipe.INTEGER] for n in (64, 256)
    )
    assert idle == pytest.approx(4 * busy)
    assert counted(graph, "sm_80", **columns(256, 1, 4)).compute_share == 1.0


def biased(*widths: int) -> Graph:
    """Rows of some widths, each with a row added and a costly function of it."""
    b = Builder()
    made = [
        b.op("tanh", b.op("add", b.input(500, width), b.input(width)))
        for width in widths
    ]
    return b.graph(*made)


@pytest.mark.parametrize(
    ("width", "threads", "share"),
    [(96, 128, 0.75), (200, 256, 200 / 256), (40, 64, 0.625), (128, 128, 1.0)],
)
def test_lanes_beyond_the_last_point_take_as_long(
    width: int, threads: int, share: float
) -> None:
    """A map takes longer by what its lanes have no points for, and alone by that."""
    whole = counted(biased(width), **points(threads, 1))
    assert whole.compute_share == pytest.approx(share)
    busy = replace(whole, compute_share=1.0)
    assert predict(whole, CPU).compute_seconds * share == pytest.approx(
        predict(busy, CPU).compute_seconds,
        rel=0.3,  # indices are counted as they are
    )
    assert (predict(whole, CPU).seconds > predict(busy, CPU).seconds) is (share < 1.0)


def test_a_last_block_that_begins_earlier_leaves_no_lane_idle() -> None:
    """Blocks narrower than a row have no condition; nor is a GPU's time shared so."""
    graph = biased(96)
    assert counted(graph, **points(64, 1)).compute_share == 1.0
    assert counted(graph, **points(16, 6)).compute_share == 1.0
    assert counted(graph, "sm_90", **points(128, 1)).compute_share == 1.0


def test_rows_beside_wider_ones_do_not_slow_them() -> None:
    """Lanes are as many as the widest rows of a kernel have use for."""
    assert counted(biased(40, 1024), **points(1024, 1)).compute_share == 1.0


def test_vectors_behind_a_condition_are_taken_apart() -> None:
    """Four columns a lane, which do not fill the last block."""
    assert counted(sums((64, 128), 1), **columns(16, 4)).compute_share == 1.0
    assert counted(sums((64, 132), 1), **columns(16, 4)).compute_share == 0.25
    assert counted(sums((64, 132), 1), **columns(16, 1)).compute_share == 1.0


def test_a_block_wider_than_all_columns_has_a_condition() -> None:
    """Lanes cannot begin earlier; whole vectors of them agree about it."""
    assert counted(sums((64, 100), 1), **columns(64, 1)).compute_share == 1.0
    assert counted(sums((64, 100), 1), **columns(128, 1)).compute_share == 0.5
    assert counted(sums((64, 96), 1), **columns(128, 1)).compute_share == 1.0


@pytest.mark.parametrize(
    ("dtype", "each"), [(DType.F32, 0), (DType.BF16, 0), (DType.F16, 88)]
)
def test_halves_are_converted_one_by_one(dtype: DType, each: int) -> None:
    """Other narrow types are a few operations on whole vectors."""
    b = Builder()
    graph = b.graph(b.op("neg", b.input(64, 256, dtype=dtype)))
    found = counted(graph, **points(64, 1)).operations[Pipe.INTEGER]
    assert found // (64 * 256) == each
    on_gpu = counted(graph, "sm_80", **points(64, 1))
    assert on_gpu.operations[Pipe.INTEGER] == 2 * 64 * 256


def test_lines_of_a_large_result_are_fetched_unless_they_are_streamed() -> None:
    """A small result stays in the caches, and is fetched from there."""
    b = Builder()
    graph = b.graph(b.op("neg", b.input(4096, 1536)))
    read, (plain, streamed) = (
        4096 * 1536 * 4,
        (counted(graph, **points(64, 4), stream=n).accesses for n in (0, 1)),
    )
    assert [each.sector_bytes for each in streamed] == [read, read]
    assert [each.sector_bytes for each in plain] == [read, pytest.approx(1.1 * read)]
    assert [each.unique_bytes for each in plain] == [read, read]


def test_a_staged_tile_is_read_along_the_order_of_memory() -> None:
    """Each line is asked for once, all of it is used, and lanes meet at the tile."""
    found = counted(turned(2048, 1024), **points(16, 4, 64))
    read = next(each for each in found.accesses if not each.is_write)
    assert read.requested_bytes == read.useful_bytes == read.unique_bytes
    assert not read.reuse
    assert found.barriers_per_block == 1
    assert found.shared_bytes_per_block == 64 * 65 * 4
    strided = counted(turned(2048, 1024), **points(16, 4, 4))
    assert strided.barriers_per_block == 0
    assert predict(found, CPU).seconds < 0.5 * predict(strided, CPU).seconds


def test_two_passes_in_one_walk_read_a_row_once() -> None:
    """The second of them finds its block in the first cache; a third walks again."""
    near = CPU.nearest_bytes
    short, long = (counted(softmax(256, n), **rows()) for n in (2048, 8192))
    again = {
        key: sum(
            one.requested_bytes
            for each in found.accesses
            for one in each.reuse
            if not each.is_write and one.distance_bytes <= near
        )
        / (256 * n * 4)
        for key, n, found in (("short", 2048, short), ("long", 8192, long))
    }
    far = sum(
        one.requested_bytes
        for each in long.accesses
        for one in each.reuse
        if one.distance_bytes > near
    )
    assert again["long"] == pytest.approx(1.0, rel=0.01)
    assert far == pytest.approx(256 * 8192 * 4, rel=0.01)


def test_lines_that_are_asked_for_ahead_take_an_instruction_each() -> None:
    """Of tensors of 4 MiB and more; smaller ones are not asked for."""
    small, large = (
        counted(softmax(n, 1024), **rows()).operations[Pipe.INTEGER] / (n * 1024)
        for n in (512, 2048)
    )
    assert large - small == pytest.approx(6 * 4 / LINE)
