"""Kernels that are joined side by side, and the bound that speaks about them."""

from __future__ import annotations

from itertools import count

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tuner.fusion.explain import side_by_side
from tuner.fusion.least import least_seconds
from tuner.fusion.legality import Limits, Rules
from tuner.fusion.partition import (
    JOINED_AFTERWARDS,
    JOINED_IN_BOUND,
    Partitioner,
    solve,
)
from tuner.fusion.view import View
from tuner.ir.graph import Graph
from tuner.plan import Options, Partition
from tuner.pricing import Floor, Pricer, floor_of

DEVICE = find("sm_90")


def updates(number: int, extent: int) -> Graph:
    """Steps of an optimiser: independent, each on tensors of its own."""
    b = Builder()
    outputs = []
    for _ in range(number):
        x, g = b.input(extent, extent), b.input(extent, extent)
        step = b.op("div", g, b.op("sqrt", b.op("mul", g, g)))
        outputs.append(b.op("sub", x, step))
    return b.graph(*outputs)


def _planned(graph: Graph, pricer: Pricer, limits: Limits, floor: Floor) -> Partition:
    partitioner = Partitioner(graph, limits=limits)
    return partitioner.solve(pricer.seconds, floor=floor).partition


@pytest.mark.parametrize(("number", "kernels"), [(12, 1), (20, 2)])
def test_joined_kernels_are_in_the_bound(number: int, kernels: int) -> None:
    """The gap is that to what no joining can beat; walls of a kernel count launches."""
    graph = updates(number, 256)
    limits, floor = Limits.of(DEVICE), floor_of(DEVICE, Options())
    pricer = Pricer(graph, DEVICE, Options())
    found = _planned(graph, pricer, limits, floor)
    assert len(found.choices) == kernels
    assert JOINED_IN_BOUND in found.candidate_space.rules
    least = least_seconds(Rules(View(graph), "full", limits), floor)
    assert least == found.bound_seconds
    assert kernels * floor.launch < least <= found.objective_seconds
    assert found.gap < 0.1


@pytest.mark.parametrize("looks", [3, 20, 75, 100, 150, 300])
def test_late_plans_are_joined_side_by_side(looks: int) -> None:
    """Whenever the time is over, what is quickly found is found: later is no worse."""
    graph = updates(12, 256)
    limits, pricer = Limits.of(DEVICE), Pricer(graph, DEVICE, Options())
    seen = count()
    found = solve(
        graph,
        pricer.seconds,
        limits=limits,
        clock=lambda: 0.0 if next(seen) < looks else 1000.0,
    ).partition
    in_time = solve(graph, pricer.seconds, limits=limits, clock=lambda: 0.0).partition
    assert found.objective_seconds == in_time.objective_seconds


def test_without_a_gain_the_bound_is_that_of_the_proof() -> None:
    """Nothing to join: the old bound, and gap 0."""
    graph = updates(1, 256)
    limits, floor = Limits.of(DEVICE), floor_of(DEVICE, Options())
    pricer = Pricer(graph, DEVICE, Options())
    found = _planned(graph, pricer, limits, floor)
    assert JOINED_AFTERWARDS in found.candidate_space.rules
    assert found.gap <= 1e-6


def test_no_plan_costs_less_than_the_least() -> None:
    """Not even one in which everything is apart, on any device."""
    for target in ("sm_80", "sm_90", "cpu", "ideal"):
        device = find(target)
        graph = updates(3, 64)
        limits, floor = Limits.of(device), floor_of(device, Options())
        least = least_seconds(Rules(View(graph), "full", limits), floor)
        pricer = Pricer(graph, device, Options())
        found = _planned(graph, pricer, limits, floor)
        assert least is not None
        assert least <= found.objective_seconds * (1 + 1e-9)


def test_what_is_read_in_part_is_not_in_the_least() -> None:
    """A slice of a product computes, and reads, no more than the slice."""
    b = Builder()
    x = b.input(1 << 12, 1 << 10)
    y = b.op("exp", b.op("mul", x, x))
    graph = b.graph(b.op("slice", y, starts=(0, 0), sizes=(1, 1 << 10), steps=(1, 1)))
    limits = Limits.of(DEVICE)
    pricer = Pricer(graph, DEVICE, Options())
    floor = floor_of(DEVICE, Options(), pricer)
    least = least_seconds(Rules(View(graph), "full", limits), floor)
    found = _planned(graph, pricer, limits, floor)
    assert least is not None
    whole = floor.launch + floor.moving_seconds(graph.types[x].bytes)
    assert least <= found.objective_seconds < whole


def test_what_nodes_compute_is_in_the_least() -> None:
    """Side by side or not, each node is computed at least once."""
    graph, limits, cpu = updates(3, 512), Limits.of(find("cpu")), find("cpu")
    pricer = Pricer(graph, cpu, Options())
    rules = Rules(View(graph), "full", limits)
    moved = least_seconds(rules, floor_of(cpu, Options()))
    worked = least_seconds(rules, floor_of(cpu, Options(), pricer))
    found = _planned(graph, pricer, limits, floor_of(cpu, Options(), pricer))
    assert moved is not None
    assert worked is not None
    assert 1.2 * moved < worked <= found.objective_seconds


def test_a_group_says_what_its_parts_would_cost_apart() -> None:
    """One line: launches saved, and the price of the other choice."""
    graph = updates(4, 64)
    limits = Limits.of(DEVICE)
    pricer = Pricer(graph, DEVICE, Options())
    found = solve(graph, pricer.seconds, limits=limits).partition
    (told,) = side_by_side(graph, pricer.seconds, found, limits=limits)
    assert told.together
    assert len(told.nodes) == 4
    assert told.reason.startswith("3 launches and 0 bytes fewer; apart costs +")
    assert told.opposite_seconds is not None
    assert told.opposite_seconds > told.seconds
