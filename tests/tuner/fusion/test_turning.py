"""Transposes that stand alone in large graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tuner.fusion.candidates import ONE_ZONE_UNITS
from tuner.fusion.legality import Limits
from tuner.fusion.partition import TURNED, solve
from tuner.ir.graph import Graph
from tuner.plan import Options, Partition, Pin
from tuner.pricing import Pricer

DEVICE = find("sm_90")


def layers(count: int) -> Graph:
    """Products, one after the other; each reads what the one before made turned."""
    b = Builder()
    value = b.op("matmul", b.input(8, 32, 64), b.input(64, 64))
    for _ in range(count):
        turned = b.op("transpose", value, perm=(1, 0, 2))
        value = b.op("matmul", turned, b.input(64, 64))
    return b.graph(value)


def planned(graph: Graph, *pins: Pin) -> Partition:
    """The best partition on one GPU."""
    pricer = Pricer(graph, DEVICE, Options())
    limits = Limits.of(DEVICE)
    return solve(graph, pricer.seconds, limits=limits, pins=pins).partition


def alone(graph: Graph, found: Partition) -> list[str]:
    """Transposes in kernels of their own."""
    return [
        choice.region.nodes[0]
        for choice in found.choices
        if {graph.by_name[name].op for name in choice.region.nodes} == {"transpose"}
    ]


def test_a_large_graph_is_cut_like_each_of_its_parts() -> None:
    """What is left apart to keep zones apart is joined when these are solved."""
    count = 1 + ONE_ZONE_UNITS // 2
    small, large = layers(1), layers(count)
    one, all_of_them = planned(small), planned(large)
    assert len(large.nodes) > ONE_ZONE_UNITS
    assert alone(small, one) == alone(large, all_of_them) == []
    first = min(choice.seconds for choice in one.choices)
    rest = one.objective_seconds - first
    assert all_of_them.objective_seconds == pytest.approx(first + count * rest)
    assert TURNED in all_of_them.candidate_space.rules
    assert TURNED not in one.candidate_space.rules
    assert all_of_them.gap == 0.0


def test_a_wish_about_a_transpose_is_kept() -> None:
    """Who keeps it apart from the product has it in another kernel."""
    graph = layers(1 + ONE_ZONE_UNITS // 2)
    pair = (graph.nodes[1].name, graph.nodes[2].name)
    assert [graph.by_name[name].op for name in pair] == ["transpose", "matmul"]
    free, kept = planned(graph), planned(graph, Pin(fuse=False, nodes=pair))
    assert any(set(pair) <= set(choice.region.nodes) for choice in free.choices)
    assert not any(set(pair) <= set(choice.region.nodes) for choice in kept.choices)
    assert kept.objective_seconds > free.objective_seconds


def test_a_delivered_transpose_stays() -> None:
    """Others read it, so its kernel is needed."""
    graph = layers(1 + ONE_ZONE_UNITS // 2)
    turned = graph.nodes[-2].outputs[0]
    graph = replace(graph, outputs=(*graph.outputs, turned))
    found = planned(graph)
    assert turned in {name for c in found.choices for name in c.region.outputs}
    assert len(alone(graph, found)) == 1
