"""Random graphs, run for real, against the interpreter."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder, group_norm_silu, softmax
from tests.tuner.kernel.random_graphs import random_graph
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.schedule import default, space

if TYPE_CHECKING:
    from tuner.plan import Schedule
    from tuner.runtime.opencl import OpenCLBackend

PER_DTYPE = {DType.F32: 40, DType.F16: 8, DType.BF16: 8, DType.F64: 6, DType.I32: 6}
LONG_RUN = 50
SQUARES = 12


def checked(backend: OpenCLBackend, graph: Graph, schedule: Schedule) -> str:
    """What is wrong with a kernel under a schedule."""
    feeds = random_feeds(graph, 5)
    return complaint(graph, feeds, run(backend, graph, schedule, feeds))


@pytest.mark.parametrize(("dtype", "first"), list(PER_DTYPE.items()), ids=str)
def test_random_kernels_compute_what_the_graph_says(
    opencl: OpenCLBackend, dtype: DType, first: int, soak: bool
) -> None:
    """Any graph that can be lowered is right under a random schedule of any device.

    Schedules made for a GPU run on the CPU too, which tests teams, vectors and
    shared memory without one.
    """
    count = first * (LONG_RUN if soak else 1)
    lowered = 0
    for seed in range(count):
        graph = random_graph(seed, dtype=dtype)
        try:
            nest = lower(graph)
        except CannotLower:
            continue
        lowered += 1
        device = find("cpu" if seed % 2 else "a100-80")
        schedule = Random(seed).choice(space(nest, device))
        assert not checked(opencl, graph, schedule), (seed, schedule)
    assert lowered > count // 2


@pytest.mark.parametrize("step", [-1, -2, -3])
def test_repeated_rows_are_read_backwards(opencl: OpenCLBackend, step: int) -> None:
    """Nearest-neighbour enlargement, then a slice with a negative step."""
    b = Builder()
    apart = b.op("reshape", b.input(5, 7), shape=(5, 1, 7))
    rows = b.op("reshape", b.op("expand", apart, shape=(5, 3, 7)), shape=(15, 7))
    size = 14 // -step + 1
    back = {"starts": (14, 0), "steps": (step, 1), "sizes": (size, 7)}
    graph = b.graph(b.op("exp", b.op("slice", rows, **back)))
    assert not checked(opencl, graph, default(lower(graph), find("cpu")))


def test_squares_compute_what_the_graph_says(opencl: OpenCLBackend, soak: bool) -> None:
    """Where extents are equal, what belongs to one axis fits another and is not right.

    By the schedule that a plan has without a measurement.
    """
    count = SQUARES * (LONG_RUN if soak else 1)
    lowered = 0
    for seed in range(count):
        graph = random_graph(seed, extents=(1, 17, 17, 20))
        try:
            nest = lower(graph)
        except CannotLower:
            continue
        lowered += 1
        assert not checked(opencl, graph, default(nest, find("cpu"))), seed
    assert lowered > count // 2


def test_every_schedule_of_a_row_kernel_is_right(opencl: OpenCLBackend) -> None:
    """Tails of teams, lanes and vectors, kept values and unrolled loops."""
    graph = softmax(37, 200)
    for schedule in space(lower(graph), find("a100-80"))[::9]:
        assert not checked(opencl, graph, schedule), schedule


def test_every_schedule_of_a_column_kernel_is_right(opencl: OpenCLBackend) -> None:
    """Tails of lanes and teams, and teams that share a long sum."""
    graph = softmax(300, 36, axis=0)
    for schedule in space(lower(graph), find("a100-80"))[::9]:
        assert not checked(opencl, graph, schedule), schedule


def test_rows_in_runs_are_right(opencl: OpenCLBackend) -> None:
    """A row that is walked channel by channel, with kept values and without."""
    graph = group_norm_silu(2, 6, 17, 2)
    for schedule in space(lower(graph), find("cpu"))[::5]:
        assert not checked(opencl, graph, schedule), schedule


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("columns", [0, 1, 2, 31])
def test_small_and_empty_shapes_are_right(
    opencl: OpenCLBackend, rows: int, columns: int
) -> None:
    """Extents of zero and one, in outputs and in what is reduced."""
    b = Builder()
    x = b.input(rows, columns)
    total = b.op("reduce_sum", x, axes=(1,), keepdims=1)
    least = b.op("reduce_min", x, axes=(0,), keepdims=0)
    for outputs in ((total, b.op("add", x, total)), (least,), (b.op("exp", x),)):
        graph = b.graph(*outputs)
        part = extracted(graph)
        nest = lower(part)
        assert not checked(opencl, part, space(nest, find("cpu"))[0])


def extracted(graph: Graph) -> Graph:
    """Only the nodes that the outputs need."""
    needed = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if needed & set(node.outputs):
            needed |= set(node.inputs)
            nodes.append(node)
    return Graph(
        nodes=tuple(reversed(nodes)),
        inputs=tuple(name for name in graph.inputs if name in needed),
        constants=graph.constants,
        outputs=graph.outputs,
        types=graph.types,
    )
