"""Products that read the same operand: when they are one kernel, and when not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tuner.fusion.explain import why
from tuner.fusion.legality import Limits, Refusal, check
from tuner.fusion.partition import solve
from tuner.ir.graph import Graph, make_region
from tuner.library_work import library_work
from tuner.plan import Family, Options, Pin
from tuner.pricing import Pricer

GPU = Limits.of(find("sm_90"))


def judged(graph: Graph, limits: Limits | None = None) -> Family | str:
    """The family of the whole graph as one kernel, or why there is none."""
    region = make_region(graph, [n.name for n in graph.nodes], graph.outputs)
    found = check(graph, region, profile="full", limits=limits)
    return found.reason if isinstance(found, Refusal) else found


def with_weights(b: Builder, graph: Graph, weights: Sequence[str]) -> Graph:
    """The same graph, some of its inputs declared as weights."""
    inputs = tuple(name for name in b.inputs if name not in weights)
    return replace(graph, inputs=inputs, weights=tuple(weights))


def attention_inputs(
    ending: Callable[[Builder, str, int], str] | None = None,
    widths: Sequence[int] = (64, 64, 64),
    rows: int = 32,
) -> Graph:
    """Q, K and V of one tensor, with a bias or some other epilogue."""
    b = Builder()
    x = b.input(rows, 48)
    weights, outputs = [], []
    for number, width in enumerate(widths):
        weights.append(b.input(48, width))
        y = b.op("matmul", x, weights[-1])
        if ending is None:
            weights.append(b.input(width))
            y = b.op("add", y, weights[-1])
        else:
            y = ending(b, y, number)
        outputs.append(y)
    return with_weights(b, b.graph(*outputs), weights)


def test_products_with_equal_epilogues_are_one_library_call() -> None:
    """A batch of equal shapes with a bias each; without any, shapes may differ."""
    assert judged(attention_inputs()) is Family.LIBRARY
    plain = attention_inputs(lambda _b, y, _n: y, widths=(64, 16, 16))
    assert judged(plain) is Family.LIBRARY


def test_products_with_unequal_epilogues_are_a_kernel_of_ours() -> None:
    """One batched call has one epilogue; tiles of ours have one for each product."""
    unequal = attention_inputs(lambda b, y, n: b.op("relu", y) if n else y)
    assert judged(unequal) is Family.CONTRACTION
    assert judged(attention_inputs(widths=(64, 32))) is Family.CONTRACTION
    none = Limits(contractions=False)
    assert "the same epilogue" in str(judged(unequal, none))


def test_only_products_of_one_tensor_are_merged() -> None:
    """Otherwise nothing is saved but a launch, and tiles would be unequal."""
    b = Builder()
    x, y = b.input(32, 48), b.input(32, 48)
    graph = b.graph(*(b.op("matmul", z, b.input(48, 16)) for z in (x, y)))
    assert "of different tensors" in str(judged(graph))


def test_a_product_does_not_wait_for_another() -> None:
    """Tiles of one grid run at the same time."""
    b = Builder()
    x = b.input(16, 16)
    first = b.op("matmul", x, b.input(16, 16))
    graph = b.graph(first, b.op("matmul", x, first))
    assert "multiplies by weights" in str(judged(graph))


def test_an_epilogue_belongs_to_one_product() -> None:
    """A tile holds no element of another product's result."""
    b = Builder()
    x = b.input(32, 48)
    gate, up = (b.op("matmul", x, b.input(48, 64)) for _ in range(2))
    graph = b.graph(b.op("mul", b.op("sigmoid", gate), up))
    assert "one epilogue cannot take two products" in str(judged(graph))


def test_what_is_shared_is_read_from_memory() -> None:
    """Computed in front of the tiles of every product, it would be no longer shared."""
    b = Builder()
    x = b.op("exp", b.input(32, 48))
    graph = b.graph(*(b.op("matmul", x, b.input(48, 16)) for _ in range(2)))
    assert "must be in memory" in str(judged(graph))


def test_other_contractions_stay_alone() -> None:
    """Windows and convolutions are not merged; the reason names them."""
    b = Builder()
    x = b.input(32, 48)
    y = b.op("matmul", x, b.input(48, 16))
    other = b.op("matmul", b.op("relu", y), b.input(16, 16))
    assert "n0, n2" in str(judged(b.graph(y, other)))


def test_a_batch_is_one_operator_that_reads_the_shared_operand_once() -> None:
    """One launch; the bytes are those of all distinct operands and results."""
    graph = attention_inputs()
    (operator,) = library_work(graph, find("sm_90")).operators
    names = (*graph.inputs, *graph.weights, *graph.outputs)
    assert operator.operand_bytes == sum(graph.types[name].bytes for name in names)
    assert operator.internal_bytes == 0


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_plan_merges_what_is_cheaper_together_and_says_so(target: str) -> None:
    """One kernel for Q, K and V; apart costs more, by what the answer says."""
    graph = attention_inputs(rows=64)
    device = find(target)
    pricer = Pricer(graph, device, Options())
    limits = Limits.of(device)
    partition = solve(graph, pricer.seconds, limits=limits).partition
    assert len(partition.choices) == 1
    assert partition.gap <= 1e-6
    products = [node.name for node in graph.nodes if node.op == "matmul"]
    pair = (products[0], products[1])
    told = why(graph, pricer.seconds, partition, pair, limits=limits)
    assert told.together
    assert told.reason.startswith("merged: ")
    assert told.opposite_seconds is not None
    assert told.opposite_seconds > told.seconds
    apart = solve(
        graph, pricer.seconds, limits=limits, pins=(Pin(fuse=False, nodes=pair),)
    ).partition
    assert apart.objective_seconds == pytest.approx(told.opposite_seconds)


def test_products_stay_apart_where_that_is_cheaper() -> None:
    """The choice is made by price: dear together, they are not merged."""
    graph = attention_inputs()

    def price(region: object, family: Family) -> float:
        del family
        names = getattr(region, "nodes", ())
        count = sum(graph.by_name[name].op == "matmul" for name in names)
        return 1.0 + 2.0 * max(0, count - 1)

    partition = solve(graph, price, limits=GPU).partition
    pair = tuple(node.name for node in graph.nodes if node.op == "matmul")[:2]
    assert len(partition.choices) == len(graph.outputs)
    told = why(graph, price, partition, (pair[0], pair[1]), limits=GPU)
    assert not told.together
    assert told.opposite_seconds is not None
    assert told.opposite_seconds > told.seconds
