"""What may join a contraction in one kernel of ours, and why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tuner.kernel.builder import Builder
from tuner.fusion.contraction import parallel_contractions
from tuner.fusion.legality import Limits, Refusal, check
from tuner.ir.graph import Graph, make_region
from tuner.plan import Family


def _judged(graph: Graph, *outputs: str, limits: Limits | None = None) -> Family | str:
    region = make_region(graph, [n.name for n in graph.nodes], outputs)
    found = check(graph, region, profile="full", limits=limits)
    return found.reason if isinstance(found, Refusal) else found


def test_a_product_takes_in_a_prologue_an_epilogue_and_second_outputs() -> None:
    """One operand is computed in front, the rest behind and beside."""
    b = Builder()
    left = b.op("transpose", b.op("relu", b.input(32, 16)), perm=(1, 0))
    product = b.op("matmul", left, b.input(32, 24))
    other = b.op("exp", b.input(16, 24))
    total = b.op("add", product, other)
    graph = b.graph(product, total)
    assert _judged(graph, product, total) is Family.CONTRACTION
    assert "not to be written" in str(_judged(graph, total, other))
    nothing = Limits(contractions=False)
    assert isinstance(_judged(graph, product, total, limits=nothing), str)


def test_only_one_operand_has_a_prologue() -> None:
    """Both would be computed again for every tile of the other."""
    b = Builder()
    left, right = (b.op("exp", b.input(16, 16)) for _ in range(2))
    graph = b.graph(b.op("matmul", left, right))
    assert "a prologue on 2 operands" in str(_judged(graph, *graph.outputs))


@pytest.mark.parametrize("place", ["before", "behind"])
def test_reductions_stay_outside(place: str) -> None:
    """A row of a tile is not a row of the reduction."""
    b = Builder()
    x = b.input(16, 16)
    if place == "before":
        total = b.op("reduce_sum", x, axes=(1,), keepdims=1)
        y = b.op("matmul", b.op("sub", x, total), b.input(16, 16))
    else:
        product = b.op("matmul", x, b.input(16, 16))
        y = b.op("reduce_sum", product, axes=(1,), keepdims=1)
    assert isinstance(_judged(b.graph(y), y), str)


def test_products_that_read_the_same_tensor_are_found() -> None:
    """Q, K and V: weights of equal height on one operand; other products are not."""
    b = Builder()
    x = b.input(64, 32)
    weights = [b.input(32, n) for n in (32, 32, 48)]
    products = [b.op("matmul", x, w) for w in weights]
    scores = b.op("matmul", products[0], b.op("transpose", products[1], perm=(1, 0)))
    graph = b.graph(scores, products[2])
    assert parallel_contractions(graph) == ()
    fixed = replace(graph, inputs=(x,), weights=tuple(weights))
    assert parallel_contractions(fixed) == (("n0", "n1", "n2"),)


def test_what_follows_keeps_the_number_of_elements() -> None:
    """A result that is repeated has no single place in a tile."""
    b = Builder()
    product = b.op("matmul", b.input(16, 16), b.input(16, 16))
    y = b.op("add", product, b.input(3, 16, 16))
    assert "does not keep the shape" in str(_judged(b.graph(y), y))


def test_a_session_takes_more_tensors_than_a_kernel() -> None:
    """The wall on arguments is one of launches; a session of the library has none."""
    b = Builder()
    value = b.input(16, 16)
    for _ in range(20):
        value = b.op("matmul", value, b.input(16, 16))
    graph = b.graph(value)
    for library, found in (("session", Family.LIBRARY), ("epilogue", None)):
        limits = Limits(library=library, max_arguments=8, contractions=False)
        judged = _judged(graph, value, limits=limits)
        assert (judged if isinstance(judged, Family) else None) is found
