"""What a library call is charged for."""

from __future__ import annotations

import math

import pytest

from tests.tuner.kernel.builder import Builder, conv
from tuner.ir.graph import Graph, Region
from tuner.library_work import library_work
from tuner.pipeline import resolve_target
from tuner.plan import Family, Options
from tuner.pricing import Pricer, price


def gelu_by_tanh(slope: float = 0.797) -> Graph:
    """A product with bias and the GELU of GPT-2, which reads the sum twice."""
    b = Builder()

    x = b.op("add", b.op("matmul", b.input(64, 96), b.input(96, 128)), b.input(128))
    cube = b.op("mul", b.op("mul", x, x), x)
    inner = b.op("add", x, b.op("mul", cube, b.constant(0.044715)))
    gate = b.op(
        "add", b.op("tanh", b.op("mul", inner, b.constant(slope))), b.constant(1.0)
    )
    return b.graph(b.op("mul", b.op("mul", x, b.constant(0.5)), gate))


def residual_behind_a_view(*, shape: tuple[int, ...] = (4, 16, 128)) -> Graph:
    """A product whose residual is added under another shape."""
    b = Builder()
    product = b.op("matmul", b.input(64, 96), b.input(96, 128))
    return b.graph(b.op("add", b.op("reshape", product, shape=shape), b.input(*shape)))


def launches(graph: Graph, target: str) -> float:
    """How many operators of its own the call is charged the launch of."""
    device = resolve_target(target)
    found = price(graph, Family.LIBRARY, device, Options())
    assert found is not None
    rest = found.estimate.launch_seconds - device.library_launch_seconds
    return rest / device.library_operator_seconds


@pytest.mark.parametrize("graph", [gelu_by_tanh(), residual_behind_a_view()])
def test_an_epilogue_costs_a_gpu_no_launch_and_no_traffic(graph: Graph) -> None:
    """Bias, residual and activation run inside the call of their product."""
    assert launches(graph, "sm_90") == pytest.approx(1)
    found = price(graph, Family.LIBRARY, resolve_target("sm_90"), Options())
    assert found is not None
    moved = found.estimate.dram_bytes + found.estimate.cache_bytes
    (work,) = found.launches
    assert moved == work.read_bytes + work.written_bytes


def test_onnx_runtime_runs_an_activation_as_operators_of_their_own() -> None:
    """A session fuses a bias into its product, and no gate of its own behind that."""
    assert launches(gelu_by_tanh(), "cpu") == pytest.approx(10)


def test_what_onnx_runtime_has_an_operator_for_is_one() -> None:
    """The nodes of a true GELU launch once, and pass nothing through memory."""
    gelu = gelu_by_tanh(math.sqrt(2 / math.pi))
    assert launches(gelu, "cpu") == pytest.approx(2)
    product, gate = library_work(gelu, resolve_target("cpu")).operators
    assert gate.internal_bytes == product.internal_bytes == 64 * 128 * 4


@pytest.mark.parametrize(
    ("perm", "operators"), [((0, 2, 1), 1), ((1, 0, 2), 2), ((2, 0, 1), 2)]
)
def test_onnx_runtime_reads_transposed_matrices_in_place(
    perm: tuple[int, ...], operators: int
) -> None:
    """A transposed operand costs no pass of its own where matrices stay apart."""
    b = Builder()
    turned = b.op("transpose", b.input(8, 8, 8), perm=perm)
    graph = b.graph(b.op("matmul", turned, b.input(8, 8, 8)))
    assert launches(graph, "cpu") == pytest.approx(operators)


def test_onnx_runtime_scales_a_product_by_one_number() -> None:
    """One number for all is a part of the product; one a column is a pass."""

    def scaled(*shape: int) -> Graph:
        b = Builder()
        product = b.op("matmul", b.input(64, 96), b.input(96, 64))
        factor = b.input(*shape) if shape else b.constant(0.125)
        return b.graph(b.op("mul", product, factor))

    assert launches(scaled(), "cpu") == pytest.approx(1)
    assert launches(scaled(64), "cpu") == pytest.approx(2)


def test_a_clip_behind_a_convolution_leaves_channels_in_blocks() -> None:
    """Convolution, clip, convolution: two operators, and a reorder at each end."""
    b = Builder()
    first = conv(b, b.input(1, 64, 28, 28), b.input(64, 64, 3, 3), pads=1)
    clipped = b.op("minimum", b.op("relu", first), b.constant(6.0))
    graph = b.graph(conv(b, clipped, b.input(64, 64, 3, 3), pads=1))
    assert len(library_work(graph, resolve_target("cpu")).operators) == 2 + 2


def test_onnx_runtime_adds_nothing_to_a_product_behind_a_view() -> None:
    """Its fusions compare neighbours; a reshape between them is in the way."""
    assert launches(residual_behind_a_view(), "cpu") == pytest.approx(2)


def test_a_call_that_is_the_whole_plan_takes_turns_with_nobody() -> None:
    """Its threads stay awake; beside kernels of ours they are waited for."""
    b = Builder()
    graph = b.graph(b.op("matmul", b.input(512, 512), b.input(512, 512)))
    device = resolve_target("cpu")
    pricer = Pricer(graph, device, Options())
    whole = Region(nodes=tuple(n.name for n in graph.nodes), outputs=graph.outputs)
    alone = pricer.seconds(whole, Family.LIBRARY)
    among = price(graph, Family.LIBRARY, device, Options())
    assert among is not None
    assert among.estimate.seconds - alone == pytest.approx(device.library_wake_seconds)


@pytest.mark.parametrize(
    ("perm", "times"), [((1, 0, 2), 1), ((0, 2, 1), 2), ((2, 0, 1), 2)]
)
def test_a_transpose_moves_single_elements_where_the_last_axis_moves(
    perm: tuple[int, ...], times: int
) -> None:
    """ONNX Runtime copies runs where it stays; a matrix product reads it turned."""
    b = Builder()
    graph = b.graph(b.op("transpose", b.input(64, 32, 48), perm=perm))
    (turned,) = library_work(graph, resolve_target("cpu")).operators
    moved = turned.operand_bytes + turned.internal_bytes
    assert moved == times * 2 * 64 * 32 * 48 * 4
    b = Builder()
    swapped = b.op("transpose", b.input(64, 32, 48), perm=(0, 2, 1))
    graph = b.graph(b.op("matmul", b.input(64, 8, 48), swapped))
    (product,) = library_work(graph, resolve_target("cpu")).operators
    assert product.internal_bytes == 0


def test_convolutions_in_one_call_need_no_copies_between_them() -> None:
    """ONNX Runtime keeps channels in blocks inside a call, and reorders at its ends."""
    cpu = resolve_target("cpu")

    def convolutions(count: int) -> Graph:
        b = Builder()
        value = b.input(1, 64, 28, 28)
        for _ in range(count):
            value = conv(b, value, b.input(64, 64, 3, 3), pads=1)
        return b.graph(value)

    one, three = (library_work(convolutions(n), cpu).operators for n in (1, 3))
    assert (len(one), len(three)) == (1 + 2, 3 + 2)
    copied = 2 * 64 * 28 * 28 * 4
    assert [operator.internal_bytes for operator in one[1:]] == [copied, copied]
    assert len(library_work(convolutions(1), resolve_target("sm_90")).operators) == 1


def test_a_light_loop_beside_a_slow_one_does_not_make_it_faster() -> None:
    """The launch ends with the slowest loop, however many blocks light ones have."""
    device = resolve_target("sm_90")

    def seconds(*, beside: bool) -> float:
        b = Builder()
        total = b.op("reduce_sum", b.input(65536, 32), axes=(0,), keepdims=0)
        outputs = [total, b.op("exp", b.input(1 << 14))] if beside else [total]
        found = price(b.graph(*outputs), Family.REDUCTION, device, Options())
        assert found is not None
        return found.estimate.seconds

    assert seconds(beside=True) >= seconds(beside=False)
