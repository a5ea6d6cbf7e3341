"""Graphs are known by what they compute, never by names or order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from tests.tuner.rewrite.graphs import Builder, random_graph, shuffled
from tuner.ir.fingerprint import Canonical, canonicalize, fingerprint, local_form, text
from tuner.ir.graph import Graph, extract, make_region
from tuner.ir.types import DType, TensorType
from tuner.ir.verify import verify
from tuner.rewrite import simplify


def canonical(graph: Graph) -> Canonical:
    """The canonical form; it is a well-formed graph."""
    result = canonicalize(graph)
    verify(result.graph)
    return result


def test_renamed_and_reordered_graphs_are_one(soak: bool) -> None:
    """Fingerprint and canonical text are equal for every name and order."""
    for seed in range(500 if soak else 60):
        graph = random_graph(seed)
        wanted = canonical(graph)
        for turn in range(3):
            found = canonical(shuffled(graph, turn))
            assert found.fingerprint == wanted.fingerprint
            assert text(found.graph) == text(wanted.graph)


def test_canonical_ids_lead_back_to_names() -> None:
    """Every id has the names that the graph handed in gives to the same thing."""
    builder = Builder()
    x, w = builder.given(3), builder.weight(3)
    graph = builder.graph(builder.add("mul", builder.add("exp", x), w))
    found = canonical(graph)
    assert found.graph.inputs == ("t0",)
    assert found.graph.weights == ("t1",)
    assert found.graph.outputs == ("t3",)
    assert dict(found.names) == {
        "n0": ("exp0",),
        "n1": ("mul1",),
        "t0": (x,),
        "t1": (w,),
        "t2": ("exp0_out",),
        "t3": ("mul1_out",),
    }


def test_main_and_prepare_share_ids() -> None:
    """What `prepare` delivers has one id in both graphs."""
    builder = Builder()
    x = builder.given(3, 4)
    product = builder.add("matmul", x, builder.weight(4, 5))
    split = simplify(
        builder.graph(builder.add("mul", product, builder.weight(5))), training=False
    )
    found = canonicalize(split.graph, split.prepare)
    verify(found.graph)
    verify(found.prepare)
    assert found.prepare.outputs == found.graph.weights
    both = {n.name for n in (*found.graph.nodes, *found.prepare.nodes)}
    assert len(both) == len(found.graph.nodes) + len(found.prepare.nodes)
    assert found.names[found.prepare.outputs[0]] == ("prepare/0",)


def _base(b: Builder) -> Graph:
    x, y = b.given(4, 4), b.given(4, 4)
    turned = b.add("transpose", b.add("sub", x, y), perm=(1, 0))
    return b.graph(b.add("mul", turned, b.constant(0.5)), b.add("exp", x))


def _operand_order(graph: Graph) -> Graph:
    first, *rest = graph.nodes
    return replace(graph, nodes=(replace(first, inputs=first.inputs[::-1]), *rest))


def _attribute(graph: Graph) -> Graph:
    changed = [
        replace(node, attributes=MappingProxyType({"perm": (0, 1)}))
        if node.op == "transpose"
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(changed))


def _edge(graph: Graph) -> Graph:
    *rest, last = graph.nodes
    return replace(graph, nodes=(*rest, replace(last, inputs=(graph.inputs[1],))))


def _operator(graph: Graph) -> Graph:
    *rest, last = graph.nodes
    return replace(graph, nodes=(*rest, replace(last, op="tanh")))


def _constant(graph: Graph) -> Graph:
    changed = {name: np.float32(2.0) * v for name, v in graph.constants.items()}
    return replace(graph, constants=MappingProxyType(changed))


def _outputs(graph: Graph) -> Graph:
    return replace(graph, outputs=graph.outputs[::-1])


def _types(graph: Graph, make: Callable[[TensorType], TensorType]) -> Graph:
    types = {name: make(given) for name, given in graph.types.items()}
    return replace(graph, types=MappingProxyType(types))


def _dtype(graph: Graph) -> Graph:
    return _types(graph, lambda given: replace(given, dtype=DType.F64))


def _shape(graph: Graph) -> Graph:
    return _types(graph, lambda given: replace(given, shape=(5,) * len(given.shape)))


def _composite(graph: Graph) -> Graph:
    first, *rest = graph.nodes
    return replace(graph, nodes=(replace(first, composite="c"), *rest))


def _weight(graph: Graph) -> Graph:
    return replace(graph, inputs=graph.inputs[:1], weights=graph.inputs[1:])


@pytest.mark.parametrize(
    "change",
    [
        _operand_order,
        _attribute,
        _edge,
        _operator,
        _constant,
        _outputs,
        _dtype,
        _shape,
        _composite,
        _weight,
    ],
)
def test_a_change_of_meaning_changes_the_fingerprint(
    change: Callable[[Graph], Graph],
) -> None:
    """Operators, attributes, edges, types, constants and outputs are all known."""
    graph = _base(Builder())
    assert canonicalize(change(graph)).fingerprint != canonicalize(graph).fingerprint


def test_symbols_are_known_by_place() -> None:
    """Names of symbolic dimensions leave no trace, which are equal does."""

    def graph(*symbols: str) -> Graph:
        b = Builder()
        pair = b.given(symbols[0], 3), b.given(symbols[1], 3)
        flat = b.add("reshape", pair[1], shape=(symbols[1], 1, 3))
        return b.graph(b.add("exp", pair[0]), flat)

    one, two = canonicalize(graph("batch", "seq")), canonicalize(graph("n", "s"))
    assert one.fingerprint == two.fingerprint
    assert dict(one.dims) == {"d0": "batch", "d1": "seq"}
    assert one.graph.nodes[1].attributes["shape"] == ("d1", 1, 3)
    assert canonicalize(graph("n", "n")).fingerprint != one.fingerprint


def test_unused_inputs_belong_to_the_signature() -> None:
    """They are ordered by type, behind those that are used."""

    def graph(*extents: int) -> Graph:
        b = Builder()
        names = [b.given(extent) for extent in extents]
        return b.graph(b.add("exp", names[extents.index(3)]))

    assert canonicalize(graph(5, 3, 4)).fingerprint == (
        canonicalize(graph(4, 5, 3)).fingerprint
    )
    assert canonicalize(graph(3)).fingerprint != canonicalize(graph(3, 4)).fingerprint


def _layers(count: int) -> Graph:
    b = Builder()
    x = b.given(2, 8)
    for _ in range(count):
        largest = b.add("reduce_max", x, axes=(1,), keepdims=1)
        power = b.add("exp", b.add("sub", x, largest))
        total = b.add("reduce_sum", power, axes=(1,), keepdims=1)
        x = b.add("div", power, total, composite=f"softmax{len(b.nodes)}")
    return b.graph(x)


def test_equal_kernels_of_different_layers_are_one() -> None:
    """A kernel's identity holds nothing of the place it was cut from."""
    graph = _layers(3)
    names = [node.name for node in graph.nodes]
    forms = [
        local_form(extract(graph, make_region(graph, names[5 * k : 5 * k + 5])))
        for k in range(3)
    ]
    assert len({form.fingerprint for form in forms}) == 1
    assert len({text(form.graph) for form in forms}) == 1
    assert forms[1].names["t0"] == "div4_out"
    assert forms[1].names["n0"] == "reduce_max5"


def test_the_order_of_a_kernels_outputs_does_not_matter() -> None:
    """Neither does the side of a symmetric kernel that comes first."""

    def graph(*order: int) -> Graph:
        b = Builder()
        x, y = b.given(4, 2), b.given(4, 3)
        found = [b.add("exp", x), b.add("neg", x), b.add("neg", y), b.add("add", x, x)]
        return b.graph(*(found[place] for place in order))

    assert fingerprint(graph(0, 1, 2, 3)) == fingerprint(graph(2, 3, 1, 0))
    assert fingerprint(graph(0, 1)) != fingerprint(graph(0, 2))


def test_independent_equal_updates_are_interchangeable() -> None:
    """Horizontal kernels with equal parts have one identity for every order."""

    def graph(seed: int) -> Graph:
        b = Builder()
        rate = b.given(1)
        parts = [(b.given(4), b.given(4)) for _ in range(6)]
        found = [b.add("sub", w, b.add("mul", g, rate)) for w, g in parts]
        order = np.random.default_rng(seed).permutation(6)
        return b.graph(*(found[place] for place in order))

    assert len({fingerprint(graph(seed)) for seed in range(6)}) == 1
