"""The checks between the stages."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tests.tuner.ir.graphs import kind, softmax
from tuner.errors import InternalError
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.ir.verify import verify


def test_a_good_graph_is_returned() -> None:
    """The very same object."""
    graph = softmax()
    assert verify(graph) is graph


def _node(graph: Graph, index: int, **changes: Any) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def _types(graph: Graph, **changes: Any) -> Graph:
    return replace(graph, types=MappingProxyType({**graph.types, **changes}))


def _without(graph: Graph, name: str) -> Graph:
    types = {k: v for k, v in graph.types.items() if k != name}
    return replace(graph, types=MappingProxyType(types))


GOOD = softmax()
BROKEN = {
    "order": (replace(GOOD, nodes=GOOD.nodes[::-1]), "n5"),
    "name twice": (_node(GOOD, 1, name="n0"), "n0"),
    "unknown operator": (_node(GOOD, 1, op="subtract"), "n1"),
    "arity": (_node(GOOD, 2, inputs=("d", "d")), "n2"),
    "made twice": (_node(GOOD, 2, outputs=("d",)), "n2"),
    "makes an input": (_node(GOOD, 2, outputs=("x",)), "n2"),
    "wrong shape": (_types(GOOD, e=kind(4, 9)), "n2"),
    "wrong dtype": (_types(GOOD, e=kind(4, 8, dtype=DType.F64)), "n2"),
    "no type": (_without(GOOD, "e"), "n2"),
    "no type of an input": (_without(GOOD, "x"), "x"),
    "missing attribute": (_node(GOOD, 0, attributes={}), "n0"),
    "output not made": (replace(GOOD, outputs=("z",)), "z"),
    "listed twice": (replace(GOOD, weights=("x",)), "x"),
    "constant of another type": (
        replace(GOOD, constants={"c": np.zeros(2, np.float32)}),
        "c",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_promise_names_its_place(fault: str) -> None:
    """Each kind of fault is found, and the node or tensor is named."""
    graph, where = BROKEN[fault]
    with pytest.raises(InternalError) as error:
        verify(graph)
    assert error.value.where == where
