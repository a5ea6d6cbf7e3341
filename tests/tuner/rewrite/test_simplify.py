"""What simplifying promises of whole graphs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.counting import lines_run
from tests.tuner.rewrite.graphs import (
    Builder,
    feeds,
    outputs,
    random_graph,
    run,
    shuffled,
)
from tests.tuner.rewrite.test_rules import conv, simplified
from tuner.ir.fingerprint import canonicalize
from tuner.ir.graph import Graph
from tuner.rewrite import draft, simplify

CHAIN = 200


@pytest.mark.parametrize("training", [False, True])
def test_random_graphs_keep_their_meaning(training: bool, soak: bool) -> None:
    """Outputs of rewritten random graphs are those of the graphs, in float64."""
    for seed in range(3000 if soak else 150):
        graph = random_graph(seed)
        values = feeds(graph, seed)
        result = simplify(graph, training=training)
        assert result.graph.outputs == graph.outputs
        both = zip(run(result, values), outputs(graph, values), strict=True)
        for found, wanted in both:
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_names_and_order_do_not_matter(soak: bool) -> None:
    """Renamed and reordered graphs are rewritten to one canonical graph."""
    for seed in range(1000 if soak else 60):
        graph = random_graph(seed)
        wanted = _identity(graph)
        for turn in range(2):
            assert _identity(shuffled(graph, turn)) == wanted


def test_a_second_pass_changes_nothing() -> None:
    """Rewriting ends in a fixed point."""
    for seed in range(40):
        once = simplify(random_graph(seed), training=False).graph
        again = simplify(once, training=False)
        assert not again.prepare.nodes
        assert canonicalize(again.graph).fingerprint == canonicalize(once).fingerprint


def _identity(graph: Graph) -> str:
    result = simplify(graph, training=False)
    return canonicalize(result.graph, result.prepare).fingerprint


def _batch_norm(b: Builder, data: str) -> str:
    """Batch norm with fixed statistics, as scale and shift per channel."""
    scale, shift, mean, variance = (b.weight(8) for _ in range(4))
    positive = b.add("mul", variance, variance)
    factor = b.add(
        "div", scale, b.add("sqrt", positive, composite="bn"), composite="bn"
    )
    offset = b.add("sub", shift, b.add("mul", mean, factor))
    column = b.add("reshape", factor, shape=(8, 1, 1))
    scaled = b.add("mul", data, column, composite="bn")
    return b.add(
        "add", scaled, b.add("reshape", offset, shape=(8, 1, 1)), composite="bn"
    )


def test_batch_norm_goes_into_the_convolution() -> None:
    """At run time nothing is left of it; its arithmetic is done in `prepare`."""
    builder = Builder()
    data = conv(builder, builder.given(1, 4, 6, 6), builder.weight(8, 4, 3, 3))
    normed = _batch_norm(builder, data)
    result = simplified(builder.graph(builder.add("relu", normed)))
    first, second = result.graph.nodes
    assert (first.op, second.op) == ("conv", "relu")
    assert {"conv0", normed.removesuffix("_out")} <= set(first.origins)
    assert first.composite == ""
    assert set(result.prepare.outputs) == set(first.inputs[1:])


def test_live_statistics_are_not_folded() -> None:
    """In training nothing moves into weights and no weight is computed ahead."""
    builder = Builder()
    data = conv(builder, builder.given(1, 4, 6, 6), builder.weight(8, 4, 3, 3))
    graph = builder.graph(_batch_norm(builder, data))
    result = simplified(graph, training=True)
    assert not result.prepare.nodes
    assert len(result.graph.nodes) == len(graph.nodes)


def test_cancelled_nodes_are_listed_where_their_value_is_made() -> None:
    """Origins of folded, merged and cancelled nodes go to the maker of the value."""
    builder = Builder()
    x = builder.add("exp", builder.given(2, 3))
    there = builder.add("transpose", x, perm=(1, 0))
    back = builder.add("transpose", there, perm=(1, 0))
    copy = builder.add("exp", "input0")
    result = simplified(builder.graph(builder.add("add", back, copy)))
    first = result.graph.nodes[0]
    assert set(first.origins) == {"exp0", "transpose1", "transpose2", "exp3"}


@pytest.mark.parametrize("leaf", ["exp", ""])
def test_a_long_chain_that_cancels_takes_time_by_its_length(leaf: str) -> None:
    """Twice as many cancelled nodes take twice as many steps; all are listed at last.

    With a node in front of them that makes the value, and with none.
    """

    def chain(length: int) -> Graph:
        builder = Builder()
        data = builder.given(2, 3)
        data = builder.add(leaf, data) if leaf else data
        for _ in range(length):
            data = builder.add("neg", builder.add("neg", data))
        return builder.graph(builder.add("tanh", data))

    def steps(length: int) -> int:
        graph = chain(length)
        nodes = simplified(graph).graph.nodes
        listed = {name for node in nodes for name in node.origins}
        assert nodes[-1].op == "tanh"
        assert listed == {node.name for node in graph.nodes}
        return lines_run(draft, lambda: simplified(graph))

    assert steps(2 * CHAIN) <= 2.2 * steps(CHAIN)


def test_views_and_expansions_of_weights_stay_in_the_main_graph() -> None:
    """A weight is not copied only to have another shape."""
    builder = Builder()
    weight = builder.add("exp", builder.weight(3))
    column = builder.add("reshape", weight, shape=(3, 1))
    wide = builder.add("expand", column, shape=(3, 50))
    total = builder.add("concat", builder.given(3, 2), wide, axis=1)
    result = simplified(builder.graph(total))
    assert [node.op for node in result.prepare.nodes] == ["exp"]
    assert [node.op for node in result.graph.nodes] == ["reshape", "expand", "concat"]


def test_an_output_that_needs_no_input_is_still_delivered() -> None:
    """Weight-only and untouched outputs keep their names and places."""
    builder = Builder()
    x = builder.given(3)
    known = builder.add("exp", builder.weight(3))
    same = builder.add("neg", builder.add("neg", x))
    result = simplified(builder.graph(known, same, known))
    assert all(name in result.graph.producers for name in result.graph.outputs)


def test_equal_outputs_are_delivered_apart() -> None:
    """Two outputs of equal value stay two outputs."""
    builder = Builder()
    x = builder.given(3)
    one, two = builder.add("exp", x), builder.add("exp", x)
    result = simplified(builder.graph(one, two))
    assert [node.op for node in result.graph.nodes] == ["exp", "reshape"]


def test_random_numbers_are_not_hoisted() -> None:
    """An operator that gives another result each time runs each time."""
    builder = Builder()
    noise = builder.opaque("RandomNormal", shape=(3,))
    fixed = builder.opaque("Hardmax", builder.weight(3), shape=(3,))
    total = builder.add("add", builder.add("add", builder.given(3), noise), fixed)
    result = simplify(builder.graph(total), training=False)
    kept = [n.attributes.get("op_type", n.op) for n in result.graph.nodes]
    assert kept == ["RandomNormal", "add", "add"]


def test_nodes_that_nothing_needs_are_gone() -> None:
    """Dead code leaves with its weights; inputs stay in the signature."""
    builder = Builder()
    x, unused = builder.given(3), builder.given(4)
    builder.add("mul", unused, builder.weight(4))
    result = simplify(builder.graph(builder.add("exp", x)), training=False)
    assert [node.op for node in result.graph.nodes] == ["exp"]
    assert result.graph.inputs == (x, unused)
    assert result.graph.weights == ()


def test_symbolic_shapes_are_left_alone() -> None:
    """Rules that need a number do nothing where the extent is a symbol."""
    builder = Builder()
    x = builder.given("batch", 3)
    one = builder.add("reshape", builder.add("exp", x), shape=("batch", 1, 3))
    two = builder.add("transpose", one, perm=(1, 0, 2))
    result = simplify(builder.graph(builder.add("neg", two)), training=False)
    assert [node.op for node in result.graph.nodes] == ["exp", "reshape", "neg"]
