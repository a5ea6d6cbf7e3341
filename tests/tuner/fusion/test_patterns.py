"""The planner on the pattern graphs: every golden fact about traffic."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.tuner.fusion.pattern_plans import bytes_price, checker, goldens, judge, load
from tuner.frontend.onnx import read_onnx
from tuner.fusion.legality import Limits, Refusal, Rules
from tuner.fusion.partition import solve
from tuner.fusion.traffic import traffic
from tuner.fusion.view import View
from tuner.ir.graph import Graph

SLOW = {"chain_120_params"}
KERNELS_EACH = 12


def test_every_golden_is_reached(patterns_dir: Path) -> None:
    """Every plan is legal for the judge, moves the golden's bytes, and says so."""
    verdicts = [
        judge(path)
        for path in sorted(patterns_dir.glob("*.onnx"))
        if path.stem not in SLOW
    ]
    assert verdicts
    assert [v.name for v in verdicts if not v.reached] == []
    assert [v.name for v in verdicts if v.kernels != v.golden_kernels] == []
    assert [v.name for v in verdicts if v.gap > 1e-6] == []


@pytest.mark.parametrize("name", ["ten_row_sums_ring"])
def test_a_resource_wall_gives_the_golden_under_it(
    patterns_dir: Path, name: str
) -> None:
    """With at most 8 reductions a kernel the ring takes two kernels."""
    golden = goldens(patterns_dir)[name]["limits"]
    graph = load(patterns_dir / f"{name}.onnx")
    limits = Limits(max_reductions=golden["value"])
    price = bytes_price(graph)
    found = solve(graph, price, profile="reference", limits=limits).partition
    moved = sum(traffic(graph, c.region).total_bytes for c in found.choices)
    assert moved == golden["traffic_bytes"]
    assert len(found.choices) == golden["kernels"]


def _masks(view: View, graph: Graph) -> dict[str, int]:
    found: dict[str, int] = {}
    for i, node in enumerate(view.nodes):
        for origin in node.origins:
            found[origin] = found.get(origin, 0) | 1 << i
    return found


def test_legality_and_traffic_are_the_judges(patterns_dir: Path) -> None:
    """On random sets of nodes we refuse and count as the judge does."""
    module = checker(patterns_dir)
    rng = random.Random(0)
    refused = counted = 0
    for path in sorted(patterns_dir.glob("*.onnx")):
        judged = module.Graph.load(path)
        graph = read_onnx(path.read_bytes()).graph
        rules = Rules(View(graph), "reference", Limits.none())
        view, masks = rules.view, _masks(rules.view, graph)
        names = [name for name in judged.ops if name in masks and name in judged.live]
        for _ in range(KERNELS_EACH):
            start, size = rng.randrange(len(names)), rng.randint(1, 6)
            nodes = names[start : start + size]
            mask = sum({masks[name] for name in nodes})
            outputs = view.wanted(mask)
            faults = module.kernel_faults(judged, nodes)
            answer = rules.judge(mask, outputs)
            assert bool(faults) == isinstance(answer, Refusal), (path.stem, nodes)
            refused += bool(faults)
            region = view.region(view.trimmed(mask, outputs), outputs)
            if all(name in judged.tensors for name in region.outputs):
                reads = module.kernel_reads(judged, nodes, region.outputs)
                assert sum(reads.values()) == sum(traffic(graph, region).reads.values())
                counted += 1
    assert refused > 20
    assert counted > 100
