"""A bound is always there, and no kernels cost less than it says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from cost_model.catalog import find
from tests.conftest import SOAK
from tests.tuner.fusion.random_graphs import Builder
from tests.tuner.fusion.zoo_pieces import static_graphs
from tuner.fusion.candidates import Space
from tuner.fusion.least import least_of_any
from tuner.fusion.legality import Limits, Rules
from tuner.fusion.partition import LEFT_OUT, STOPPED, Partitioner
from tuner.fusion.view import View
from tuner.ir.graph import Graph
from tuner.plan import Options, Partition
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


def _planned(graph: Graph, target: str, *, looks: float = math.inf) -> Partition:
    """The plan on a device, with a clock that is over after so many looks."""
    device, options = find(target), Options()
    pricer = Pricer(graph, device, options)
    ticks = itertools.count()
    solver = Partitioner(
        graph,
        limits=Limits.of(device),
        clock=lambda: next(ticks) if looks < math.inf else 0.0,
    )
    return solver.solve(
        pricer.seconds,
        time_limit_seconds=20.0 if looks == math.inf else looks,
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
