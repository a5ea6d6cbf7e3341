"""A bound is always there, and no kernels cost less than it says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cost_model.catalog import find
from cost_model.device import LaunchMode
from tests.conftest import SOAK
from tests.tuner.fusion.enumerator import least_cost
from tests.tuner.fusion.random_graphs import Builder, random_graph
from tests.tuner.fusion.zoo_pieces import static_graphs
from tuner.fusion.candidates import Space
from tuner.fusion.effort import STEPS as STEPS_OF_A_PLAN
from tuner.fusion.least import OWN_LAWS, least_of_any, least_seconds
from tuner.fusion.legality import Limits, Rules, check
from tuner.fusion.partition import LEFT_OUT, STOPPED, Partitioner
from tuner.fusion.view import View
from tuner.ir.graph import Graph, Region
from tuner.ir.types import DType
from tuner.plan import Family, Options, Partition
from tuner.pricing import Pricer, floor_of


def scan(steps: int, batch: int = 4, width: int = 64, states: int = 16) -> Graph:
    """A selective scan, step by step, as exporters unroll it.

    Source: A. Gu, T. Dao, "Mamba: linear-time sequence modeling with selective state
    spaces", arXiv 2312.00752, algorithm 2.
    """
    b = Builder()
    rates = b.node("neg", b.node("exp", b.given("a", (width, states), weight=True)))
    skip = b.given("d", (width,), weight=True)
    state = b.given("h", (batch, width, states))
    results = []
    for t in range(steps):
        x, raw = (b.given(f"{name}{t}", (batch, width)) for name in ("x", "dt"))
        into, out = (b.given(f"{n}{t}", (batch, 1, states)) for n in ("b", "c"))
        step = b.node("log", b.node("exp", raw))
        column = b.node("reshape", step, shape=(batch, width, 1))
        kept = b.node("mul", b.node("exp", b.node("mul", column, rates)), state)
        scaled = b.node("mul", step, x)
        scaled = b.node("reshape", scaled, shape=(batch, width, 1))
        state = b.node("add", kept, b.node("mul", scaled, into))
        seen = b.node("mul", state, out)
        seen = b.node("reduce_sum", seen, axes=(2,), keepdims=0)
        results.append(b.node("add", seen, b.node("mul", x, skip)))
    return b.build([*results, state])


STEPS = STEPS_OF_A_PLAN if SOAK else 700_000
"""Work of plans that no clock ends."""


def _planned(graph: Graph, target: str, *, looks: float | None = None) -> Partition:
    """The plan on a device, perhaps with a clock that is over after so many looks."""
    device, options = find(target), Options()
    pricer = Pricer(graph, device, options)
    ticks = itertools.count()
    solver = Partitioner(
        graph, limits=Limits.of(device), clock=lambda: float(next(ticks))
    )
    return solver.solve(
        pricer.seconds,
        time_limit_seconds=looks,
        steps=STEPS if looks is None else None,
        floor=floor_of(device, options, pricer),
    ).partition


@pytest.mark.parametrize(
    ("target", "most"), [("sm_90", 0.2), *([("cpu", 0.6)] if SOAK else [])]
)
def test_a_selective_scan_has_a_bound(target: str, most: float) -> None:
    """More kernels than can be looked at, and yet something is known of them all."""
    found = _planned(scan(11), target)
    assert 0 < found.gap <= most
    assert LEFT_OUT in found.candidate_space.rules or found.candidate_space.complete


@pytest.mark.parametrize("looks", [1, 30, 1000])
def test_a_plan_that_was_cut_short_has_a_bound(looks: int) -> None:
    """Whenever time runs out: the launches and the bytes of the graph remain."""
    found = _planned(scan(4), "sm_90", looks=looks)
    assert STOPPED in found.candidate_space.rules
    assert 0 < found.bound_seconds <= found.objective_seconds


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_no_plan_beats_the_bound_of_one_that_was_cut_short(target: str) -> None:
    """Wherever the search ends: a bound holds for what a longer search finds, too."""
    graphs = {"sm_90": recurrence(6), "cpu": scan(5)}
    for graph in (scan(5), recurrence(6)) if SOAK else (graphs[target],):
        best = _planned(graph, target).objective_seconds
        for looks in (1, 10, 60, 150, 400):
            found = _planned(graph, target, looks=looks)
            assert found.bound_seconds <= best * (1 + 1e-9)


def recurrence(steps: int, batch: int = 4, width: int = 32) -> Graph:
    """A recurrent network of one layer, step by step.

    Source: J. L. Elman, "Finding structure in time", Cognitive Science 14(2), 1990.
    """
    b = Builder()
    into, on = (b.given(name, (width, width), weight=True) for name in ("u", "w"))
    shift = b.given("b", (1, width), weight=True)
    state = b.given("h", (batch, width))
    results = []
    for t in range(steps):
        fed = b.node("matmul", b.given(f"x{t}", (batch, width)), into)
        total = b.node("add", fed, b.node("matmul", state, on))
        state = b.node("tanh", b.node("add", total, shift))
        results.append(b.node("reduce_sum", state, axes=(1,), keepdims=1))
    return b.build([*results, state])


def test_each_product_costs_a_launch() -> None:
    """Products of different tensors share no kernel, whatever was looked at."""
    graph, device = recurrence(10), find("sm_90")
    pricer = Pricer(graph, device, Options())
    floor = floor_of(device, Options(), pricer)
    rules = Rules(View(graph), "full", Limits.of(device))
    least = least_of_any(rules, floor, rules.view.everything)
    assert least >= 20 * floor.any_launch_seconds()
    assert least <= _planned(graph, "sm_90").objective_seconds * (1 + 1e-9)


def _cheapest(rules: Rules, pricer: Pricer) -> Callable[[Region], float]:
    """Prices kernels as whoever is the cheaper runs them, the library or we."""
    view = rules.view

    def price(region: Region) -> float:
        mask = view.node_mask(region.nodes)
        outputs = view.tensor_mask(view.home[name] for name in region.outputs)
        family = rules.judge(mask, outputs)
        assert isinstance(family, Family)
        families = {family, rules.own_family(mask, outputs) or family}
        return min(pricer.seconds(region, each) for each in families)

    return price


def _with_anchors(seed: int) -> Graph:
    """A random graph; the first one has three products of one tensor instead."""
    if seed:
        return random_graph(seed, 7 if SOAK else 6)
    b = Builder()
    x = b.given("x", (8, 16))
    names = ("q", "k", "v")
    made = [b.node("matmul", x, b.given(n, (16, 16), weight=True)) for n in names]
    joined = b.node("add", made[0], made[1])
    return b.build(
        [b.node("exp", joined), b.node("reduce_sum", made[2], axes=(1,), keepdims=1)]
    )


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_no_partition_with_anchors_costs_less(target: str) -> None:
    """Contractions, merged or not, opaque nodes and reductions beside them."""
    judged = 0
    device, options = find(target), Options()
    for seed in range(600 if SOAK else 32):
        graph = _with_anchors(seed)
        limits = Limits.of(device)
        rules = Rules(View(graph), "full", limits)
        view = rules.view
        if not any(view.has(view.everything, each) for each in OWN_LAWS):
            continue
        pricer = Pricer(graph, device, options)
        price = _cheapest(rules, pricer)
        least = least_of_any(rules, floor_of(device, options, pricer), view.everything)
        cost = least_cost(graph, price, "full", limits)
        assert 0 < least <= cost * (1 + 1e-9), seed
        judged += 1
    assert judged > 10


@pytest.fixture(scope="module")
def graphs(zoo_dir: Path) -> Mapping[str, Graph]:
    """Canonical graphs of the static models."""
    return static_graphs(zoo_dir)


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
@pytest.mark.parametrize("name", ["bert_mini_torchscript", "llama_small", "resnet18"])
def test_no_kernels_of_a_zone_cost_less(
    name: str, target: str, graphs: Mapping[str, Graph]
) -> None:
    """With contractions, windows and libraries too, zone by zone."""
    graph, device = graphs[name], find(target)
    limits, options = Limits.of(device), Options()
    pricer = Pricer(graph, device, options)
    floor = floor_of(device, options, pricer)
    found = Partitioner(graph, limits=limits).solve(pricer.seconds, floor=floor)
    rules = Rules(View(graph), "full", limits)
    space = Space(rules, out_of_time=lambda: False)
    masks = [rules.view.node_mask(c.region.nodes) for c in found.partition.choices]
    for zone in space.zones(masks):
        nodes = space.units.nodes(zone.units)
        kernels = zip(masks, found.partition.choices, strict=True)
        cost = math.fsum(kernel.seconds for mask, kernel in kernels if mask & nodes)
        assert 0 < least_of_any(rules, floor, nodes) <= cost * (1 + 1e-9)


SMALL = Limits(max_nodes=3, max_arguments=5, max_reductions=1)
"""Walls that small graphs meet."""


def momentum(shapes: list[tuple[int, ...]], dtype: DType = DType.F32) -> Graph:
    """Gradient descent with momentum: tensors side by side, and one scalar for all."""
    b = Builder()
    rate = b.node("neg", b.given("rate", ()))
    outputs = []
    for k, shape in enumerate(shapes):
        p, g, v = (b.given(f"{n}{k}", shape, dtype) for n in ("p", "g", "v"))
        g, v, p = (_wide(b, name) for name in (g, v, p))
        after = b.node("add", v, g)
        outputs += [after, b.node("add", p, b.node("mul", after, rate))]
    return b.build(outputs)


def _wide(b: Builder, name: str) -> str:
    is_narrow = b.types[name].dtype is not DType.F32
    return b.node("cast", name, to="f32") if is_narrow else name


def clipped(shapes: list[tuple[int, ...]]) -> Graph:
    """Steps that are as long as the sum of all gradients lets them be."""
    b = Builder()
    given = [(b.given(f"p{k}", s), b.given(f"g{k}", s)) for k, s in enumerate(shapes)]
    total = ""
    for (_, g), shape in zip(given, shapes, strict=True):
        part = b.node("reduce_sum", g, axes=tuple(range(len(shape))), keepdims=0)
        total = b.node("add", total, part) if total else part
    steps = [b.node("sub", p, b.node("mul", g, total)) for p, g in given]
    return b.build(steps)


def _least_and_cost(
    graph: Graph, target: str, mode: LaunchMode, limits: Limits | None
) -> tuple[float, float]:
    """What the bound says, and the cheapest of all legal partitions."""
    device, options = find(target), Options(launch_mode=mode)
    pricer = Pricer(graph, device, options)
    walls = limits or Limits.none()

    def price(region: Region) -> float:
        family = check(graph, region, profile="full", limits=walls)
        assert isinstance(family, Family)
        return pricer.seconds(region, family)

    floor = floor_of(device, options, pricer)
    least = least_seconds(Rules(View(graph), "full", walls), floor)
    assert least is not None
    return least, least_cost(graph, price, "full", limits)


CASES = {
    "small": momentum([(64,), (16, 4)]),
    "mixed": momentum([(33,), (512, 300)]),
    "large": momentum([(2048, 1024), (1024, 1024)]),
    "narrow": momentum([(300, 256)], DType.BF16),
    "clipped": clipped([(96,), (300, 256)]),
    "clipped_large": clipped([(2048, 512), (1024, 512)]),
}


@pytest.mark.parametrize("limits", [None, SMALL], ids=["open", "walls"])
@pytest.mark.parametrize("target", ["sm_90", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_no_partition_of_an_optimiser_costs_less(
    name: str, target: str, limits: Limits | None
) -> None:
    """Of all partitions into legal kernels, joined or not, none is below the bound.

    By turns in a stream and in a recorded graph, at full length in both.
    """
    modes: tuple[LaunchMode, ...] = ("stream", "graph")
    turn = (list(CASES).index(name) + (target == "cpu") + (limits is None)) % 2
    for mode in modes if SOAK else modes[turn:][:1]:
        least, cost = _least_and_cost(CASES[name], target, mode, limits)
        assert 0 < least <= cost * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "most"), [("small", 0.01), ("mixed", 0.01), ("large", 0.01)]
)
def test_the_bound_is_near_the_cheapest_partition(name: str, most: float) -> None:
    """Where tensors are stepped side by side, little is between the two."""
    least, cost = _least_and_cost(CASES[name], "sm_90", "stream", None)
    assert cost - least <= most * cost


@pytest.mark.parametrize("target", ["sm_90", "cpu", "ideal"])
def test_no_partition_of_a_random_graph_costs_less(target: str) -> None:
    """With fan-out, reductions, narrow types and reshapes, within walls or not."""
    judged = 0
    for seed in range(600 if SOAK else 24):
        graph = random_graph(seed, 7 if SOAK else 6)
        view = View(graph)
        if any(view.has(view.everything, each) for each in OWN_LAWS):
            continue
        limits = SMALL if seed % 2 else None
        least, cost = _least_and_cost(graph, target, "stream", limits)
        assert least <= cost * (1 + 1e-9), seed
        judged += 1
    assert judged > 5
