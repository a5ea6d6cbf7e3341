"""Counts are those of the generated loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import find
from cost_model.work import Access, Pipe, Work
from tests.tuner.kernel.builder import Builder, add_layer_norm, bias_gelu, softmax
from tuner.ir.graph import extract, make_region
from tuner.ir.types import DType
from tuner.kernel.count import work
from tuner.kernel.least import computing_operations, varying_axes
from tuner.kernel.lower import lower
from tuner.kernel.schedule import default, space
from tuner.plan import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuner.ir.graph import Graph, Node

GPU = find("a100-80")
ROWS = {"threads": 128, "lanes": 128, "vector": 1, "repeat": 1, "unroll": 1}


def counted(graph: Graph, **knobs: int) -> Work:
    """Work of a graph, by default under the default schedule."""
    nest = lower(graph)
    return work(nest, Schedule.of(**knobs) if knobs else default(nest, GPU), GPU)


def copy_of(*shape: int, perm: tuple[int, ...] = ()) -> Graph:
    """A copy, transposed or not."""
    b = Builder()
    x = b.input(*shape)
    return b.graph(b.op("neg", b.op("transpose", x, perm=perm) if perm else x))


def read(found: Work) -> Access:
    """Traffic of the only tensor that is read."""
    (access,) = [a for a in found.accesses if not a.is_write]
    return access


def test_a_copy_moves_every_byte_once() -> None:
    """Unique, sector and requested bytes agree when accesses coalesce."""
    found = counted(copy_of(64, 1024))
    for access in found.accesses:
        assert access.unique_bytes == access.sector_bytes == 64 * 1024 * 4
        assert access.requested_bytes == access.unique_bytes
    assert found.blocks * found.block_threads * 4 >= 64 * 1024


def test_a_transposed_read_asks_for_whole_sectors() -> None:
    """Neighbouring threads in different sectors ask for eight times the bytes."""
    access = read(counted(copy_of(512, 512, perm=(1, 0))))
    assert access.unique_bytes == 512 * 512 * 4
    assert access.sector_bytes == access.unique_bytes
    assert access.requested_bytes == 8 * access.unique_bytes


def test_a_strided_slice_fetches_what_lies_between() -> None:
    """Every other element needs every sector."""
    b = Builder()
    x = b.input(1 << 16)
    half = b.op("slice", x, starts=(0,), steps=(2,), sizes=(1 << 15,))
    access = read(counted(b.graph(b.op("neg", half))))
    assert access.unique_bytes == 4 << 15
    assert access.sector_bytes == 2 * access.unique_bytes


def test_a_broadcast_is_read_again_from_the_cache() -> None:
    """A bias is unique once, and requested for every row."""
    found = counted(bias_gelu(128, 1024))
    bias = min(found.accesses, key=lambda a: a.unique_bytes)
    assert bias.unique_bytes == 4096
    assert bias.requested_bytes == 128 * 4096


@pytest.mark.parametrize(("persistent", "reads"), [(1, 1), (0, 3)])
def test_passes_read_again_unless_values_are_kept(persistent: int, reads: int) -> None:
    """A softmax that keeps nothing reads its row three times."""
    found = counted(softmax(64, 1024), persistent=persistent, **ROWS)
    access = read(found)
    assert access.unique_bytes == 64 * 1024 * 4
    assert access.requested_bytes == reads * access.unique_bytes


def test_recomputation_is_counted() -> None:
    """Without kept values the exponential is computed twice per element."""
    kept = counted(softmax(64, 1024), persistent=1, **ROWS)
    again = counted(softmax(64, 1024), persistent=0, **ROWS)
    difference = again.operations[Pipe.SPECIAL] - kept.operations[Pipe.SPECIAL]
    assert difference == 64 * 1024


def test_a_gather_reads_as_much_as_it_produces_but_never_more_than_the_table() -> None:
    """Rows by run-time index: what is asked for, or all there is."""
    b = Builder()
    few = b.op("gather", b.input(1000, 32), b.input(8, dtype=DType.I64), axis=0)
    found = counted(b.graph(few))
    assert found.accesses[0].unique_bytes == 8 * 32 * 4
    b = Builder()
    many = b.op("gather", b.input(10, 32), b.input(800, dtype=DType.I64), axis=0)
    assert counted(b.graph(many)).accesses[0].unique_bytes == 10 * 32 * 4


def test_doubles_run_on_their_own_pipe() -> None:
    """f64 arithmetic is not counted as f32, and takes two registers a value."""
    single, double = (
        counted(add_layer_norm(64, 512, dtype)) for dtype in (DType.F32, DType.F64)
    )
    assert Pipe.FMA64 in double.operations
    assert Pipe.FMA64 not in single.operations
    assert double.read_bytes == 2 * single.read_bytes


@pytest.mark.parametrize("target", ["cpu", "a100-80", "l4", "b200"])
def test_spaces_are_small_legal_and_without_repetition(target: str) -> None:
    """At most 200 schedules, the default first, all within the device's limits."""
    device = find(target)
    for graph in (
        bias_gelu(64, 3072),
        softmax(100, 130),
        softmax(300, 40, axis=0),
        softmax(2, 100_000),
        copy_of(7, 11, 13),
    ):
        nest = lower(graph)
        schedules = space(nest, device)
        assert 1 <= len(schedules) <= 200
        assert schedules[0] == default(nest, device)
        assert len(set(schedules)) == len(schedules)
        for schedule in schedules:
            found = work(nest, schedule, device)
            assert found.block_threads <= device.max_block_threads
            assert found.shared_bytes_per_block <= device.max_shared_bytes_per_block
            for access in found.accesses:
                assert access.requested_bytes >= access.sector_bytes
                assert access.sector_bytes >= access.unique_bytes


@pytest.mark.parametrize("shape", [(4, 0), (0, 4)])
def test_rows_without_elements_read_nothing(shape: tuple[int, int]) -> None:
    """Their results are written all the same."""
    b = Builder()
    x = b.input(*shape)
    found = counted(b.graph(b.op("reduce_sum", x, axes=(1,), keepdims=0)))
    assert sum(a.unique_bytes for a in found.accesses if not a.is_write) == 0
    assert sum(a.unique_bytes for a in found.accesses if a.is_write) == 4 * shape[0]


def _joined(*shape: int) -> Graph:
    b = Builder()
    x, y = b.input(*shape), b.input(*shape)
    return b.graph(b.op("exp", b.op("concat", x, y, axis=0)))


def _reduced(axis: int) -> Callable[..., Graph]:
    def make(*shape: int) -> Graph:
        b = Builder()
        x = b.input(*shape)
        return b.graph(b.op("reduce_sum", x, axes=(axis,), keepdims=0))

    return make


NOTHING: Mapping[str, Callable[..., Graph]] = {
    "bias and gelu": bias_gelu,
    "softmax": softmax,
    "softmax of columns": lambda *shape: softmax(*shape, axis=0),
    "norm": add_layer_norm,
    "copy": copy_of,
    "transposed copy": lambda *shape: copy_of(*shape, perm=(1, 0)),
    "join": _joined,
    "sum of rows": _reduced(1),
    "sum of columns": _reduced(0),
}


@pytest.mark.parametrize("target", ["cpu", "h100-sxm", "l4"])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
@pytest.mark.parametrize("name", NOTHING)
def test_nothing_has_a_schedule(name: str, shape: tuple[int, int], target: str) -> None:
    """Kernels of every kind take tensors without elements, on every target."""
    device = find(target)
    nest = lower(NOTHING[name](*shape))
    for schedule in (default(nest, device), *space(nest, device)):
        found = work(nest, schedule, device)
        assert sum(a.unique_bytes for a in found.accesses if not a.is_write) <= 3 * 16


def _powers() -> Graph:
    b = Builder()
    x = b.op("exp", b.input(64, 96))
    total = b.op("reduce_sum", x, axes=(1,), keepdims=1)
    return b.graph(b.op("tanh", b.op("div", x, total)))


def _lengths(axis: int = 1) -> Graph:
    b = Builder()
    x = b.input(64, 96)
    total = b.op("reduce_sum", b.op("mul", x, x), axes=(axis,), keepdims=1)
    return b.graph(b.op("div", x, b.op("sqrt", total)))


def _corrected() -> Graph:
    """Rows that are divided by what is left of one, a number for all of them."""
    b = Builder()
    x, rate = b.input(64, 96), b.input()
    moved = b.op("div", x, b.op("sub", b.constant(1.0), rate))
    own = b.op("div", moved, b.op("sqrt", b.op("mul", x, x)))
    return b.graph(b.op("reduce_sum", own, axes=(1,), keepdims=1))


def _repeated(axis: int = 1) -> Graph:
    """Work on each of equal elements, which a kernel does once for all of them."""
    b = Builder()
    x = b.input(*((64, 1) if axis else (1, 96)))
    whole = b.op("expand", x, shape=(64, 96))
    turned = b.op("transpose", b.op("tanh", whole), perm=(1, 0))
    other = b.op("div", b.input(96, 64), b.op("exp", turned))
    return b.graph(b.op("reduce_max", other, axes=(0,), keepdims=0))


def _twice(axis: int = 1) -> Graph:
    """Work on the two equal halves of what is joined, done by one walk over both."""
    b = Builder()
    x = b.input(64, 96)
    whole = b.op("concat", x, x, axis=axis)
    return b.graph(b.op("exp", b.op("tanh", whole)))


SEVERAL: Mapping[str, Callable[[], Graph]] = {
    "powers": _powers,
    "lengths": _lengths,
    "lengths of columns": lambda: _lengths(0),
    "corrected": _corrected,
    "repeated along rows": _repeated,
    "repeated rows": lambda: _repeated(0),
    "joined with itself": _twice,
    "joined rows": lambda: _twice(0),
}


def _alone(graph: Graph, node: Node, target: str) -> Mapping[Pipe, float]:
    """What a node does in a kernel of its own."""
    small = lower(extract(graph, make_region(graph, [node.name], node.outputs)))
    return work(small, default(small, find(target)), find(target)).operations


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("name", SEVERAL)
def test_a_kernel_of_several_nodes_counts_no_less_than_each_alone(
    name: str, target: str
) -> None:
    """Rows that are divided by one number each are multiplied by its reciprocal."""
    graph, device = SEVERAL[name](), find(target)
    nest, axes = lower(graph), varying_axes(graph)
    found = work(nest, default(nest, device), device).operations
    least: dict[Pipe, float] = {}
    for node in graph.nodes:
        alone = _alone(graph, node, target)
        for pipe, count in computing_operations(graph, node, alone, axes).items():
            least[pipe] = least.get(pipe, 0.0) + count
    assert least
    for pipe, count in least.items():
        assert count <= found[pipe]


def test_a_division_by_what_no_reciprocal_is_taken_of_counts_whole() -> None:
    """A difference may be tiny, so no kernel takes its reciprocal; a root is not."""
    wholes = {}
    for name in ("corrected", "lengths"):
        graph = SEVERAL[name]()
        node = next(each for each in graph.nodes if each.op == "div")
        alone = _alone(graph, node, "cpu")
        least = computing_operations(graph, node, alone, varying_axes(graph))
        wholes[name] = least.get(Pipe.SPECIAL) == alone[Pipe.SPECIAL]
    assert wholes == {"corrected": True, "lengths": False}
