"""Graphs, regions, and the kernel language."""

from __future__ import annotations

import pytest

from tests.tuner.ir.graphs import kind, softmax
from tuner.ir.expr import ExpressionError, parse
from tuner.ir.graph import extract, make_region, region_inputs
from tuner.ir.inference import broadcast
from tuner.ir.types import DType, TensorType
from tuner.ir.verify import verify


def test_a_region_orders_its_nodes_and_writes_what_others_need() -> None:
    """Whatever the order in which the nodes are given."""
    graph = softmax()
    region = make_region(graph, ["n2", "n0", "n1"])
    assert region.nodes == ("n0", "n1", "n2")
    assert region.outputs == ("e",)
    assert region_inputs(graph, region.nodes) == ("x",)
    assert make_region(graph, ["n5"]).outputs == ("y",)


def test_an_extracted_region_is_a_graph_of_its_own() -> None:
    """Scalar constants stay literals; everything else read becomes an input."""
    graph = softmax()
    small = verify(extract(graph, make_region(graph, ["n4", "n5"])))
    assert small.inputs == ("e", "s")
    assert set(small.constants) == {"c"}
    assert small.outputs == ("y",)
    assert set(small.types) == {"e", "s", "p", "c", "y"}


def test_consumers_and_producers() -> None:
    """Each reader once, in graph order."""
    graph = softmax()
    assert [n.name for n in graph.consumers["x"]] == ["n0", "n1"]
    assert graph.producer("x") is None
    producer = graph.producer("e")
    assert producer is not None
    assert producer.name == "n2"


def test_static_types_know_their_size_and_symbolic_ones_do_not() -> None:
    """Bytes need numbers."""
    assert kind(3, 4, dtype=DType.BF16).bytes == 24
    symbolic = TensorType(dtype=DType.F32, shape=("n", 4, "n", "m"))
    assert symbolic.symbols == ("n", "m")
    with pytest.raises(ValueError, match="symbolic"):
        _ = symbolic.elements


def test_broadcasting() -> None:
    """Ones stretch, missing axes are ones, symbols meet themselves only."""
    assert broadcast([(3, 1), (4,)]) == (3, 4)
    assert broadcast([("n", 1), (1, 5), ("n", 5)]) == ("n", 5)
    assert broadcast([(0,), (1,)]) == (0,)
    for shapes in ([(2,), (3,)], [("n",), ("m",)], [("n",), (3,)]):
        with pytest.raises(ValueError, match="broadcast"):
            broadcast(shapes)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a0.real",
        "a0[0]",
        "a0 if a1 else a2",
        "exp(a0, a1)",
        "exp",
        "b0",
        "a0 < a1 < a2",
        "a0 ** 2",
        "'a0'",
        "",
        "a0 +",
    ],
)
def test_the_kernel_language_is_closed(text: str) -> None:
    """Only operands, numbers, operators and known functions get in."""
    with pytest.raises(ExpressionError):
        parse(text)
