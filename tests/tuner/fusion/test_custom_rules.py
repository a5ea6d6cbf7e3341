"""Fusion rules of a user's own: what the best partition does with and without them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.tuner.fusion.enumerator import least_cost
from tests.tuner.fusion.random_graphs import Builder, random_graph
from tuner.errors import ConstraintsUnsatisfiable
from tuner.frontend.rulefile import read_rules
from tuner.fusion.custom import wishes
from tuner.fusion.partition import solve
from tuner.ir.custom import FusionRule, RuleSet
from tuner.ir.graph import Graph, Node, Region, region_inputs
from tuner.ir.ops import OPS
from tuner.model import load
from tuner.pipeline import make_plan, rule_targets
from tuner.plan import Family, Options, Partition, Pin

SOFTMAX_SUM = b"""{
  "schema": "fuseplan.graph/1", "opset": {"": 17},
  "inputs": [{"name": "x", "dtype": "f32", "shape": [512, 256]}],
  "weights": [], "constants": [],
  "nodes": [
    {"name": "soft", "op": "Softmax", "domain": "", "inputs": ["x"],
     "outputs": ["p"], "attributes": {}},
    {"name": "bent", "op": "Relu", "domain": "", "inputs": ["p"],
     "outputs": ["q"], "attributes": {}},
    {"name": "peak", "op": "ReduceMax", "domain": "", "inputs": ["q"],
     "outputs": ["y"], "attributes": {"keepdims": 1, "axes": [1]}}],
  "outputs": ["y", "q"]
}"""


def _groups(target: str, *rules: FusionRule) -> list[set[str]]:
    """The user's nodes in each kernel of the plan."""
    model = load(SOFTMAX_SUM, "json")
    plan = make_plan(model, target, Options(rules=RuleSet(fusion=rules)))
    return [
        {name for i in kernel.region.nodes for name in model.names[i]}
        for kernel in plan.kernels
    ]


@pytest.mark.parametrize("targets", [("sm_75",), ("t4",), ()])
def test_a_rule_keeps_kinds_apart_on_its_targets(targets: tuple[str, ...]) -> None:
    """A softmax and another reduction share a kernel, but not where a rule forbids it.

    The reductions inside the softmax are parts of one node, and stay together.
    """
    rule = FusionRule(
        name="r", action="forbid", kinds=("Softmax", "reduction"), targets=targets
    )
    assert any({"soft", "peak"} <= group for group in _groups("sm_75"))
    for target, holds in (("sm_75", True), ("sm_90", not targets)):
        shared = any({"soft", "peak"} <= group for group in _groups(target, rule))
        assert shared != holds


def test_an_operator_alone_shares_its_kernel_with_nothing() -> None:
    """Its own parts may share one; whatever else is there runs in other kernels."""
    rule = FusionRule(name="r", action="alone", kinds=("Softmax",))
    groups = _groups("sm_90", rule)
    assert all(group == {"soft"} for group in groups if "soft" in group)
    rule = FusionRule(name="r", action="alone", kinds=("Relu",))
    assert {"bent"} in _groups("sm_90", rule)


def _kinds(node: Node) -> Collection[str]:
    return {node.op, OPS[node.op].pattern.name.lower()}


def _cost(graph: Graph, allowed: Callable[[Region], bool]) -> Callable[[Region], float]:
    def cost(region: Region) -> float:
        if not allowed(region):
            return float("inf")
        reads = region_inputs(graph, region.nodes)
        moved = [graph.types[name].bytes for name in (*reads, *region.outputs)]
        return 1e-9 * (sum(moved) + 300)

    return cost


def _solved(graph: Graph, rule: FusionRule) -> Partition:
    cost = _cost(graph, lambda region: True)

    def price(region: Region, family: Family) -> float:
        return cost(region)

    return solve(graph, price, pins=wishes(graph, [rule], _kinds)).partition


@pytest.mark.parametrize(
    "rule",
    [
        FusionRule(name="r", action="forbid", kinds=("exp", "reduction")),
        FusionRule(name="r", action="forbid", kinds=("reduce_sum", "reduce_sum")),
        FusionRule(name="r", action="alone", kinds=("tanh",)),
    ],
    ids=lambda rule: "-".join((rule.action, *rule.kinds)),
)
def test_no_plan_that_keeps_a_rule_is_cheaper(rule: FusionRule) -> None:
    """On random graphs the cost is the least of all plans without banned kernels."""
    for seed in range(30):
        graph = random_graph(seed, most_nodes=8)
        kinds = {node.name: _kinds(node) for node in graph.nodes}

        def allowed(region: Region, kinds: dict[str, Collection[str]] = kinds) -> bool:
            inside = [kinds[n] for n in region.nodes if "reshape" not in kinds[n]]
            if rule.action == "alone":
                return len(inside) == 1 or all("tanh" not in k for k in inside)
            first, second = rule.kinds
            return not any(
                first in a and second in b
                for i, a in enumerate(inside)
                for k, b in enumerate(inside)
                if i != k
            )

        found = _solved(graph, rule)
        best = least_cost(graph, _cost(graph, allowed), "full")
        assert all(allowed(choice.region) for choice in found.choices), seed
        assert found.objective_seconds == pytest.approx(best, rel=1e-9), seed
        assert found.gap <= 1e-6, seed


def test_a_required_pair_shares_a_kernel_or_the_rule_is_named() -> None:
    """Where the second kind reads the first, some kernel holds both; else an error."""
    groups = _groups("sm_90", FusionRule(name="r", action="alone", kinds=("Relu",)))
    assert not any({"soft", "bent"} <= group for group in groups)
    rule = FusionRule(name="both", action="require", kinds=("Relu", "ReduceMax"))
    assert any({"bent", "peak"} <= group for group in _groups("sm_90", rule))
    against = FusionRule(name="r", action="alone", kinds=("Relu",))
    with pytest.raises(ConstraintsUnsatisfiable, match="rules both"):
        _groups("sm_90", rule, against)


def test_equal_parts_without_a_pin_keep_their_best_kernels() -> None:
    """A pin on one layer changes nothing in a layer that is equal but for its names."""
    b = Builder()
    value = b.given("x", (8, 16))
    for _ in range(2):
        value = b.node("opaque", b.node("exp", b.node("tanh", value)))
    graph = b.build([value])
    cost = _cost(graph, lambda region: True)
    first, second = (n.name for n in graph.nodes[:2])
    pin = Pin(fuse=False, nodes=(first, second))
    found = solve(graph, lambda r, f: cost(r), pins=(pin,)).partition
    sizes = sorted(len(choice.region.nodes) for choice in found.choices)
    assert sizes == [1, 1, 1, 1, 2]


def test_the_example_file_is_read() -> None:
    """What docs/rules.md shows is in the examples, and holds no mistake."""
    root = Path(__file__).parents[3]
    text = (root / "examples" / "rules" / "acme.toml").read_text()
    assert read_rules(text, "acme.toml", targets=rule_targets()).operators
    assert text in (root / "docs" / "rules.md").read_text()
