"""Terms of a processor's kernels, each where it alone decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import find
from cost_model.roofline import predict
from cost_model.work import Pipe, Work
from tests.tuner.kernel.builder import Builder, conv, softmax
from tuner.kernel.count import work
from tuner.kernel.hops import FAR_HOPS
from tuner.kernel.lower import lower
from tuner.plan import Schedule

if TYPE_CHECKING:
    from tuner.ir.graph import Graph

CPU = find("cpu")


def counted(graph: Graph, target: str = "cpu", **knobs: int) -> Work:
    """Work of a graph under a schedule."""
    return work(lower(graph), Schedule.of(**knobs), find(target))


def gated(rows: int, columns: int) -> Graph:
    """Two large tensors multiplied."""
    b = Builder()
    return b.graph(b.op("mul", b.input(rows, columns), b.input(rows, columns)))


def points(
    threads: int, items: int, repeat: int = 1, vector: int = 1
) -> dict[str, int]:
    """A schedule of a pointwise kernel."""
    return {"threads": threads, "items": items, "repeat": repeat, "vector": vector}


def columns(lanes: int, vector: int, teams: int = 1) -> dict[str, int]:
    """A schedule of sums down columns."""
    return {
        "threads": lanes * teams,
        "lanes": lanes,
        "vector": vector,
        "repeat": 1,
        "unroll": 1,
    }


def rows(lanes: int) -> dict[str, int]:
    """A schedule of rows that are read again in each pass."""
    knobs = {"vector": 1, "repeat": 1, "unroll": 1, "persistent": 0}
    return {"threads": lanes, "lanes": lanes, **knobs}


@pytest.mark.parametrize(
    ("knobs", "hops"),
    [
        (points(16, 64), 0),  # a vector's next step is at the next line
        (points(1024, 1), 0),  # the next vector is
        (points(1024, 4), 0),  # four places in each of three tensors are followed
        (points(64, 64), 3 << 18),  # a line in each of 64 places, on few pages
        (points(1024, 64), 9 << 18),  # the same, on as many pages
    ],
)
def test_lines_out_of_order_are_waited_for(knobs: dict[str, int], hops: int) -> None:
    """Steps that lie further apart than a vector is long leave lines for later."""
    found = counted(gated(1024, 4096), **knobs)
    held = CPU.l1_bytes * CPU.multiprocessors / (3 * 1024 * 4096 * 4)
    assert found.hops == pytest.approx(hops * (1 - held))


def test_small_tensors_lie_near_and_a_gpu_walks_side_by_side() -> None:
    """The nearest cache keeps small ones; lanes of a GPU are threads of their own."""
    assert counted(gated(16, 512), **points(64, 64)).hops == 0
    assert counted(gated(1024, 4096), "sm_80", **points(64, 64)).hops == 0


@pytest.mark.parametrize("vector", [2, 4])
def test_wide_columns_are_fetched_in_fewer_pieces(vector: int) -> None:
    """A row of as many columns as a vector has, on a page of its own each time."""
    one = counted(softmax(512, 1024, axis=0), **columns(16, 1))
    wide = counted(softmax(512, 1024, axis=0), **columns(16, vector))
    assert one.hops == 4 * FAR_HOPS * (512 * 1024 // 16)
    assert wide.hops == one.hops / vector


def test_hops_alone_decide() -> None:
    """Two walks over the same lines, as many of them at once."""
    found = counted(gated(1024, 4096), **points(64, 64))
    near = predict(replace(found, hops=0.0), CPU)
    far = predict(found, CPU)
    lines = CPU.prefetched_bytes_per_multiprocessor // CPU.sector_bytes
    waited = found.hops * CPU.l2_latency_seconds / lines / CPU.multiprocessors
    assert far.latency_seconds - near.latency_seconds == pytest.approx(waited)
    assert far.seconds > 1.1 * near.seconds


@pytest.mark.parametrize("vector", [2, 4])
def test_vectors_of_a_lane_are_taken_apart_on_a_processor(vector: int) -> None:
    """A compiler that packs lanes gathers what is a vector already: not so a GPU's."""
    graph = gated(1024, 4096)
    plain, wide = (
        counted(graph, **points(64, 1, vector=width)).operations[Pipe.INTEGER]
        for width in (1, vector)
    )
    assert wide == 8 * 16 / vector * plain
    plain, wide = (
        counted(graph, "sm_80", **points(64, 1, vector=width)).operations[Pipe.INTEGER]
        for width in (1, vector)
    )
    assert wide == plain / vector


def test_a_tensor_that_all_lanes_share_is_not_taken_apart() -> None:
    """A number for a whole row has one address, and no neighbours."""
    b = Builder()
    graph = b.graph(b.op("mul", b.input(1024, 4096), b.input(1024, 1)))
    wide = counted(graph, **points(64, 1, vector=4)).operations[Pipe.INTEGER]
    alone = counted(gated(1024, 4096), **points(64, 1, vector=4))
    assert wide < 0.7 * alone.operations[Pipe.INTEGER]


@pytest.mark.parametrize(
    ("extent", "lanes", "share"),
    [
        (1024, 64, 1.0),
        (1000, 64, 1 / (1 + 5 * 40 / 1000)),
        (1000, 16, 1.0),
        (784, 64, 1 / (1 + 5 * 16 / 784)),
    ],
)
def test_the_rest_of_a_row_is_taken_lane_by_lane(
    extent: int, lanes: int, share: float
) -> None:
    """Where lanes meet at a barrier, the last step cannot begin earlier."""
    found = counted(softmax(64, extent), **rows(lanes))
    assert found.compute_share == pytest.approx(share)
    assert counted(softmax(64, extent), "sm_80", **rows(lanes)).compute_share == 1.0


def tiles(lanes: int, rows: int, columns: int, threads: int = 128) -> dict[str, int]:
    """A schedule of a product."""
    return {
        "threads": threads,
        "lanes": lanes,
        "rows": rows,
        "columns": columns,
        "depth": 32,
    }


def product(extent: int) -> Graph:
    """Two square matrices."""
    b = Builder()
    return b.graph(b.op("matmul", b.input(extent, extent), b.input(extent, extent)))


def test_sums_beyond_the_vector_registers_cost_a_share() -> None:
    """Thirty-two sums leave none of 32 registers for factors; sixteen do."""
    graph = product(256)
    wide, narrow = (counted(graph, **tiles(16, 8, n)).compute_share for n in (4, 2))
    assert wide == pytest.approx(narrow / 1.2)
    few, same = (
        counted(graph, "sm_80", **tiles(16, 8, n)).compute_share for n in (4, 2)
    )
    assert few > same


def test_rows_of_a_tile_that_are_shorter_than_a_vector_are_gathered() -> None:
    """Eight lanes fill half of a vector; its other half is of another row."""
    graph = product(256)
    short = counted(graph, **tiles(8, 4, 2)).compute_share
    full = counted(graph, **tiles(16, 4, 2)).compute_share
    assert short == pytest.approx(full / 6)


def test_images_are_staged_element_by_element() -> None:
    """What lies behind guards costs a processor twenty times what a matrix does."""
    b = Builder()
    x, w = b.input(1, 32, 28, 28), b.input(32, 32, 3, 3)
    window = b.graph(conv(b, x, w, pads=1))
    b = Builder()
    x, w = b.input(1, 288, 28, 28), b.input(32, 288, 1, 1)
    matrix = b.graph(conv(b, x, w))
    knobs = tiles(16, 4, 4)
    behind, plain = (counted(g, **knobs) for g in (window, matrix))
    assert behind.operations[Pipe.FMA32] == plain.operations[Pipe.FMA32]
    assert behind.operations[Pipe.INTEGER] > 10 * plain.operations[Pipe.INTEGER]
    assert predict(behind, CPU).seconds > 2 * predict(plain, CPU).seconds
