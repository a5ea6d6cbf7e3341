"""Texts change only on purpose, and never with the names of a graph."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.golden import (
    FOLDER,
    GRAPHS,
    PRICES,
    digest,
    history,
    prices,
    texts,
)
from tuner.ir.graph import Graph, Node
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.plan import CODEGEN_REVISION, PRICE_REVISION

CURE = "raise tuner.plan.CODEGEN_REVISION, then: python -m tests.tuner.kernel.golden"
PRICE_CURE = CURE.replace("CODEGEN", "PRICE")


def test_texts_are_those_of_the_golden_files() -> None:
    """Every file is generated as it lies there, in both languages."""
    files = texts()
    stored = {path.name: path.read_text() for path in FOLDER.glob("*.c[lu]")}
    assert sorted(stored) == sorted(files), CURE
    changed = [name for name in files if stored[name] != files[name]]
    assert not changed, f"{changed}: {CURE}"


def test_other_texts_have_another_revision() -> None:
    """The revision that kernels are kept under belongs to exactly these texts."""
    known = history()
    assert known.get(str(CODEGEN_REVISION)) == digest(texts()), CURE
    assert len(set(known.values())) == len(known)


def test_other_prices_have_another_revision() -> None:
    """Plans are kept under the revision of the prices that chose them."""
    known = history(PRICES)
    assert known.get(str(PRICE_REVISION)) == digest(prices()), PRICE_CURE
    assert len(set(known.values())) == len(known)


def renamed(graph: Graph) -> Graph:
    """The same graph under other names."""
    new = {name: f"{name}; system(); /*" for name in graph.types}
    nodes = tuple(
        Node(
            name=f"other {node.name}",
            op=node.op,
            inputs=tuple(new[name] for name in node.inputs),
            outputs=tuple(new[name] for name in node.outputs),
            attributes=node.attributes,
        )
        for node in graph.nodes
    )
    return Graph(
        nodes=nodes,
        inputs=tuple(new[name] for name in graph.inputs),
        constants=MappingProxyType({new[k]: v for k, v in graph.constants.items()}),
        outputs=tuple(new[name] for name in graph.outputs),
        types=MappingProxyType({new[k]: v for k, v in graph.types.items()}),
    )


@pytest.mark.parametrize("name", list(GRAPHS))
def test_no_name_of_a_graph_reaches_the_text(name: str) -> None:
    """Renaming tensors and nodes changes the arguments' names, not a character."""
    graph = GRAPHS[name]()
    gpu = find("h100-sxm")
    for dialect in (OPENCL, CUDA):
        first, second = lower(graph), lower(renamed(graph))
        schedule = default(first, gpu)
        assert schedule == default(second, gpu)
        one, two = (render(nest, schedule, dialect) for nest in (first, second))
        assert one.text == two.text
        assert one == replace(two, arguments=one.arguments)
