"""The whole graph as one library call, with nodes that we do not know."""

from __future__ import annotations

import numpy as np
from onnx import defs, parser

from cost_model.catalog import find
from tests.tuner.fusion.random_graphs import Builder as RandomBuilder
from tests.tuner.kernel.builder import Builder
from tuner.fusion.legality import Limits, Refusal, check
from tuner.fusion.library import KEPT_SINCE
from tuner.fusion.partition import solve
from tuner.ir.graph import Graph, make_region
from tuner.ir.interpreter import evaluate
from tuner.model import load
from tuner.plan import Family
from tuner.runtime.library import open_graph, run_opaque
from tuner.runtime.onnx_writer import OPSET

CPU, GPU = (Limits.of(find(name)) for name in ("cpu", "sm_90"))


def _graph(opset: int = 18) -> Graph:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    kernel (float[4, 8] x, float[8, 8] w) => (float[4, 8] o)
    <int64 axis = {{1}}>
    {{ y = MatMul(x, w) z = Exp(y) p = CumSum(z, axis) o = Neg(p) }}"""
    return load(parser.parse_model(text).SerializeToString()).graph


def _judged(graph: Graph, limits: Limits) -> Family | Refusal:
    region = make_region(graph, [n.name for n in graph.nodes], graph.outputs)
    return check(graph, region, profile="full", limits=limits)


def test_operators_of_the_list_have_not_changed() -> None:
    """In the opset that calls are written in they mean what they meant since."""
    for name, since in KEPT_SINCE.items():
        assert defs.get_schema(name, OPSET).since_version == since


def test_a_whole_graph_with_a_known_stranger_is_one_call() -> None:
    """The library runs it in one session, and the result is right."""
    graph = _graph()
    assert any(node.op == "opaque" for node in graph.nodes)
    assert _judged(graph, CPU) is Family.LIBRARY
    random = np.random.default_rng(3)
    feeds = {
        name: random.normal(size=kind.static_shape).astype(kind.dtype.numpy)
        for name, kind in graph.types.items()
        if name in (*graph.inputs, *graph.weights)
    }
    exact = evaluate(
        graph,
        feeds,
        precision="float64",
        opaque=lambda node, arrays: run_opaque(node, graph, arrays),
    )
    found = open_graph(graph).run(feeds)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], exact[name], rtol=1e-5)


def test_strangers_that_changed_stay_alone() -> None:
    """Another opset, a GPU's libraries, or a part of a graph leave it alone."""
    assert isinstance(_judged(_graph(), GPU), Refusal)
    assert isinstance(_judged(_graph(opset=13), CPU), Refusal)
    graph = _graph()
    part = make_region(graph, [n.name for n in graph.nodes[1:]], graph.outputs)
    found = check(graph, part, profile="full", limits=CPU)
    assert isinstance(found, Refusal)
    assert "must be alone" in found.reason


def test_a_whole_call_is_tried_even_when_time_is_over() -> None:
    """It takes one price, so that no plan is worse than the library by choice."""
    b = Builder()
    x = b.op("matmul", b.input(8, 8), b.input(8, 8))
    graph = b.graph(b.op("exp", b.op("matmul", b.op("tanh", x), b.input(8, 8))))

    def price(region: object, family: Family) -> float:
        return 1.0

    found = solve(graph, price, profile="full", limits=CPU, time_limit_seconds=0.0)
    assert len(found.partition.choices) == 1
    assert found.partition.choices[0].family is Family.LIBRARY


def test_a_stranger_of_whom_nothing_is_said_stays_alone() -> None:
    """Opaque nodes may lack a type, a domain or an opset: they are in no other call."""
    for known in ({}, {"op_type": "TopK"}, {"op_type": "TopK", "domain": ""}):
        builder = RandomBuilder()
        data = builder.node("opaque", builder.given("x", (4, 4)), **known)
        graph = builder.build([builder.node("exp", data)])
        limits = Limits.of(find("cpu"))
        found = solve(graph, lambda *_: 1.0, limits=limits)
        assert len(found.partition.choices) == 2
