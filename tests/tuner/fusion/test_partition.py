"""Promises of a solve beside its cost."""

from __future__ import annotations

import math
import random

import pytest

from tests.tuner.fusion.random_graphs import COLUMNS, ROWS, Builder, random_graph
from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.explain import why
from tuner.fusion.legality import Limits
from tuner.fusion.partition import Partitioner, solve
from tuner.ir.graph import Graph, Region, region_inputs
from tuner.plan import Family, Partition, Pin


def _price(graph: Graph):
    def price(region: Region, family: Family) -> float:
        reads = region_inputs(graph, region.nodes)
        names = (*reads, *region.outputs)
        return 1e-6 + 1e-9 * sum(graph.types[name].bytes for name in names)

    return price


def _solve(graph: Graph, **options) -> Partition:
    return solve(graph, _price(graph), **options).partition


def _chain() -> Graph:
    builder = Builder()
    at = builder.given("x", (ROWS, COLUMNS))
    for op in ("exp", "neg", "tanh", "exp"):
        at = builder.node(op, at)
    return builder.build([at])


def _long(layers: int) -> Graph:
    """Equal layers: a product, a norm of its rows, a residual."""
    builder = Builder()
    at = builder.given("x", (64, 64))
    builder.given("w", (64, 64), weight=True)
    for _ in range(layers):
        product = builder.node("matmul", at, "w")
        joined = builder.node("add", product, at)
        total = builder.node("reduce_sum", joined, axes=(1,), keepdims=1)
        centred = builder.node("sub", joined, total)
        square = builder.node("mul", centred, centred)
        spread = builder.node("reduce_sum", square, axes=(1,), keepdims=1)
        root = builder.node("sqrt", spread)
        at = builder.node("div", centred, root)
    return builder.build([at])


@pytest.mark.parametrize("seed", range(40))
def test_launch_order_lets_every_kernel_run(seed: int) -> None:
    """What a kernel reads was given or written by an earlier one; all is delivered."""
    graph = random_graph(seed, most_nodes=13)
    ready = {*graph.inputs, *graph.weights, *graph.constants}
    home = {name: name for name in graph.types}
    for node in graph.nodes:
        if node.op == "reshape":
            home[node.outputs[0]] = home[node.inputs[0]]
    solution = solve(graph, _price(graph))
    for choice in solution.partition.choices:
        assert ready.issuperset(region_inputs(graph, choice.region.nodes))
        assert all(home[name] == name for name in choice.region.outputs)
        ready.update(choice.region.outputs)
    assert ready.issuperset(home[name] for name in graph.outputs)


@pytest.mark.parametrize("seed", range(40))
def test_never_dearer_than_a_baseline(seed: int) -> None:
    """No baseline on the same graph, families and prices is cheaper."""
    graph = random_graph(1000 + seed, most_nodes=13)
    solution = solve(graph, _price(graph))
    for baseline in solution.baselines.values():
        allowed = baseline.objective_seconds * (1 + 1e-9)
        assert solution.partition.objective_seconds <= allowed


@pytest.mark.parametrize("seed", range(20))
def test_names_and_order_do_not_matter(seed: int) -> None:
    """A graph whose nodes are listed in another order costs the same."""
    graph = random_graph(seed, most_nodes=14)
    rng = random.Random(seed)
    ready = {*graph.inputs, *graph.weights}
    rest, nodes = list(graph.nodes), []
    while rest:
        free = [node for node in rest if ready.issuperset(node.inputs)]
        node = rng.choice(free)
        nodes.append(node)
        rest.remove(node)
        ready.update(node.outputs)
    other = Graph(
        nodes=tuple(nodes),
        inputs=graph.inputs,
        weights=graph.weights,
        outputs=graph.outputs,
        types=graph.types,
    )
    cost = _solve(graph).objective_seconds
    assert _solve(other).objective_seconds == pytest.approx(cost, rel=1e-9)


def test_equal_layers_are_priced_once() -> None:
    """Ten layers ask for hardly more prices than five."""
    asked = []
    for layers in (5, 10):
        graph = _long(layers)
        seen: list[Region] = []

        def price(region: Region, family: Family, graph: Graph = graph) -> float:
            seen.append(region)  # noqa: B023 - used before the loop goes on
            return _price(graph)(region, family)

        partition = solve(graph, price).partition
        assert partition.gap <= 1e-6
        assert partition.candidate_space.complete
        asked.append(len(seen))
    assert asked[1] <= asked[0] + 5


def test_same_input_same_plan() -> None:
    """Two solves of one graph choose the same kernels in the same order."""
    graph = _long(6)
    assert _solve(graph).choices == _solve(graph).choices


def test_a_pin_keeps_nodes_apart() -> None:
    """A never-fuse pin is kept, at the least extra cost."""
    graph = _chain()
    free = _solve(graph)
    assert len(free.choices) == 1
    names = (graph.nodes[1].name, graph.nodes[2].name)
    pinned = _solve(graph, pins=(Pin(fuse=False, nodes=names),))
    assert not any(set(names) <= set(c.region.nodes) for c in pinned.choices)
    assert len(pinned.choices) == 2


def test_a_pin_joins_nodes() -> None:
    """A must-fuse pin is kept even where it costs more."""
    builder = Builder()
    builder.given("x", (ROWS, COLUMNS))
    builder.given("w", (COLUMNS, COLUMNS), weight=True)
    first = builder.node("exp", "x")
    second = builder.node("tanh", builder.node("matmul", first, "w"))
    graph = builder.build([second])
    names = (graph.nodes[1].name, graph.nodes[2].name)
    limits = Limits(library="session", max_library_anchors=4)
    found = _solve(graph, pins=(Pin(fuse=True, nodes=names),), limits=limits)
    assert any(set(names) <= set(c.region.nodes) for c in found.choices)


@pytest.mark.parametrize(
    ("nodes", "word"),
    [(("nobody", "exp0"), "unknown"), (("exp0", "exp0"), "twice")],
)
def test_a_wrong_pin_is_refused(nodes: tuple[str, str], word: str) -> None:
    """A pin on an unknown node, or on one node twice, says so."""
    with pytest.raises(ConstraintsUnsatisfiable, match=word):
        _solve(_chain(), pins=(Pin(fuse=True, nodes=nodes),))


def test_a_pin_that_no_kernel_can_keep_says_why() -> None:
    """Two opaque nodes cannot share a kernel, and the error gives the reason."""
    builder = Builder()
    builder.given("x", (ROWS, COLUMNS))
    graph = builder.build([builder.node("opaque", builder.node("opaque", "x"))])
    names = (graph.nodes[0].name, graph.nodes[1].name)
    with pytest.raises(ConstraintsUnsatisfiable, match="must be alone"):
        _solve(graph, pins=(Pin(fuse=True, nodes=names),))


def test_pins_that_would_wait_for_each_other_are_kept_by_work_done_twice() -> None:
    """Each of two kernels would need what only the other makes: both make it before."""
    builder = Builder()
    x, y = builder.given("x", (ROWS, COLUMNS)), builder.given("y", (ROWS, COLUMNS))
    a, b = builder.node("exp", x), builder.node("tanh", y)
    far_a, far_b = builder.node("opaque", a), builder.node("opaque", b)
    c, d = builder.node("mul", far_a, b), builder.node("sub", far_b, a)
    graph = builder.build([c, d])
    pairs = ((a, d), (b, c))
    found = _solve(graph, pins=[Pin(fuse=True, nodes=pair) for pair in pairs])
    for first, last in pairs:
        held = [c.region.nodes for c in found.choices if first in c.region.nodes]
        assert any(last in nodes for nodes in held)
        assert len(held) == 2
    ready = set(graph.inputs)
    for choice in found.choices:
        assert ready.issuperset(region_inputs(graph, choice.region.nodes))
        ready.update(choice.region.outputs)


def test_pins_that_contradict_each_other_are_both_named() -> None:
    """Together and apart cannot be."""
    graph = _chain()
    names = (graph.nodes[0].name, graph.nodes[1].name)
    pins = [Pin(fuse=fuse, nodes=names) for fuse in (True, False)]
    first, second = names
    said = f"fuse {first} and {second}, keep apart {first} and {second}"
    with pytest.raises(ConstraintsUnsatisfiable, match=said):
        _solve(graph, pins=pins)


def test_a_wall_is_kept() -> None:
    """No generated kernel holds more nodes than the limit."""
    graph = _chain()
    found = _solve(graph, limits=Limits(max_nodes=2))
    assert [len(c.region.nodes) for c in found.choices] == [2, 2]


def test_a_kernel_that_cannot_be_made_is_not_chosen() -> None:
    """Candidates of infinite price take no part."""
    graph = _chain()

    def price(region: Region, family: Family) -> float:
        if len(region.nodes) == 4:
            return math.inf
        return _price(graph)(region, family)

    found = solve(graph, price).partition
    assert len(found.choices) == 2


def test_why_names_the_price_of_the_opposite() -> None:
    """Explaining a fused edge gives what keeping it apart would cost."""
    graph = _chain()
    partition = _solve(graph)
    names = (graph.nodes[0].name, graph.nodes[1].name)
    answer = why(graph, _price(graph), partition, names)
    assert answer.together
    assert answer.opposite_seconds is not None
    assert answer.opposite_seconds > answer.seconds
    assert "launches +1" in answer.reason


def test_an_empty_graph_needs_no_kernel() -> None:
    """A graph that only renames its input is a plan without kernels."""
    builder = Builder()
    builder.given("x", (ROWS, COLUMNS))
    graph = builder.build([builder.node("reshape", "x", shape=(COLUMNS, ROWS))])
    found = _solve(graph)
    assert found.choices == ()
    assert found.gap == 0.0


def test_prices_change_and_nothing_else_is_asked_again() -> None:
    """Solving again under other prices answers like a new solve, and judges nothing."""
    graph = random_graph(7, most_nodes=14)
    judged: list[int] = []
    kept = Partitioner(graph)
    for launch in (1e-6, 1e-9, 1e-5):

        def price(region: Region, family: Family, launch: float = launch) -> float:
            reads = region_inputs(graph, region.nodes)
            names = (*reads, *region.outputs)
            return launch + 1e-9 * sum(graph.types[name].bytes for name in names)

        assert kept.solve(price).partition == solve(graph, price).partition
        judged.append(kept.judged)
    assert judged[0] == judged[1] == judged[2] > 0


def test_a_pin_of_one_solve_is_forgotten_in_the_next() -> None:
    """Candidates are kept between solves, answers under pins are not."""
    graph = _chain()
    kept = Partitioner(graph)
    price = _price(graph)
    names = (graph.nodes[1].name, graph.nodes[2].name)
    free = kept.solve(price).partition
    pinned = kept.solve(price, pins=(Pin(fuse=False, nodes=names),)).partition
    assert len(free.choices) == 1
    assert len(pinned.choices) == 2
    assert kept.solve(price).partition == free
