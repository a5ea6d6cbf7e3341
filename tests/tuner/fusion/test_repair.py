"""Strategies that know no pins, made to keep them."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from tests.tuner.fusion.random_graphs import COLUMNS, ROWS, Builder, random_graph
from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.bans import FitsIn
from tuner.fusion.legality import Limits, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.partition import solve
from tuner.fusion.pins import Pins
from tuner.fusion.repair import repaired
from tuner.fusion.traffic import traffic
from tuner.fusion.view import View
from tuner.ir.graph import Graph, Region
from tuner.plan import Family, Pin

SEEDS = 24


def chain(length: int) -> tuple[Graph, list[str]]:
    """Element-wise nodes one behind the other."""
    builder = Builder()
    builder.given("x", (ROWS, COLUMNS))
    tensor = "x"
    for _ in range(length):
        tensor = builder.node("exp", tensor)
    graph = builder.build([tensor])
    return graph, [node.name for node in graph.nodes]


def pins_of(rules: Rules, *pins: Pin) -> Pins:
    """Pins without bans."""
    return Pins(rules, pins)


def test_a_kernel_that_breaks_a_pin_is_cut_once() -> None:
    """Into the longest runs that keep it, not into single operators."""
    graph, names = chain(6)
    rules = Rules(View(graph), "full", Limits.none())
    pins = pins_of(rules, Pin(fuse=False, nodes=(names[1], names[4])))
    base = [1 << i for i in range(6)]
    whole = (rules.view.everything, rules.view.delivered)
    found = repaired(rules, pins, base, [whole])
    assert found == ((0b001111, 0b001000), (0b110000, 0b100000))


def test_nodes_that_must_be_together_get_a_kernel() -> None:
    """Two kernels become one; what they wrote for each other stays inside."""
    graph, names = chain(4)
    rules = Rules(View(graph), "full", Limits.none())
    pins = pins_of(rules, Pin(fuse=True, nodes=(names[1], names[2])))
    apart = [(1 << i, 1 << i) for i in range(4)]
    found = repaired(rules, pins, [1 << i for i in range(4)], apart)
    assert found is not None
    assert (0b0110, 0b0100) in found
    assert len(found) == 3


def test_what_cannot_be_repaired_is_said_so() -> None:
    """Nodes that no kernel can hold together."""
    builder = Builder()
    builder.given("x", (ROWS, COLUMNS))
    first, second = builder.node("exp", "x"), builder.node("neg", "x")
    graph = builder.build([first, second])
    names = (graph.nodes[0].name, graph.nodes[1].name)
    rules = Rules(View(graph), "full", Limits.none())
    both = [Pin(fuse=fuse, nodes=names) for fuse in (True, False)]
    apart = [(1, 1), (2, 2)]
    assert repaired(rules, pins_of(rules, *both), [1, 2], apart) is None


def bytes_price(graph: Graph, launch: int) -> object:
    """Bytes and a launch."""

    def price(region: Region, _family: Family) -> float:
        return 1e-9 * (traffic(graph, region).total_bytes + launch)

    return price


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_baseline_is_better_under_constraints(seed: int) -> None:
    """Baselines keep pins and bans where they can; none is cheaper than the plan."""
    random = Random(seed)
    graph = random_graph(seed)
    names = [node.name for node in graph.nodes if node.op != "reshape"]
    pairs = list(combinations(names, 2))
    view = View(graph)
    pairs = [pair for pair in pairs if all(name in view.index for name in pair)]
    if not pairs:
        return
    pins: list[Pin | FitsIn] = [
        Pin(fuse=bool(random.getrandbits(1)), nodes=random.choice(pairs))
        for _ in range(1 + seed % 2)
    ]
    if seed % 3 == 0:
        pins.append(FitsIn(2 * max(view.bytes)))
    price = bytes_price(graph, 400)
    try:
        found = solve(graph, price, pins=pins)  # type: ignore[arg-type]
    except ConstraintsUnsatisfiable:
        return
    rules = Rules(view, "full", Limits.none())
    kept = Pins(
        rules,
        [p for p in pins if isinstance(p, Pin)],
        [p.on(view) for p in pins if not isinstance(p, Pin)],
    )
    keys = [
        (view.node_mask(c.region.nodes), view.tensor_mask(c.region.outputs))
        for c in found.partition.choices
    ]
    assert kept.keep(keys)
    _, stuck = runnable_order([view.needs(m) for m, _ in keys], [o for _, o in keys])
    assert not stuck
    wishes = [pin for pin in pins if isinstance(pin, Pin) and pin.fuse]
    for name, baseline in found.baselines.items():
        if not wishes:
            least = baseline.objective_seconds * (1 + 1e-9)
            assert found.partition.objective_seconds <= least, name
