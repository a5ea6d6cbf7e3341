"""What waits for many reductions takes more launches, and reads more."""

from __future__ import annotations

import pytest

from cost_model.catalog import find
from tests.conftest import SOAK
from tests.tuner.fusion.enumerator import least_cost
from tests.tuner.fusion.random_graphs import Builder
from tuner.fusion.gates import best_gate, read_again
from tuner.fusion.least import least_seconds
from tuner.fusion.legality import Limits, Rules, check
from tuner.fusion.view import View
from tuner.ir.graph import Graph, Region
from tuner.plan import Family, Options
from tuner.pricing import Pricer, floor_of

Shape = tuple[int, ...]
OPEN = Limits.none()
WALLS = Limits(max_nodes=4, max_arguments=6, max_reductions=1)


def scaled(shapes: list[Shape]) -> Graph:
    """Tensors that are scaled by the sum of all of their elements."""
    b = Builder()
    given = [b.given(f"x{k}", shape) for k, shape in enumerate(shapes)]
    total = ""
    for name, shape in zip(given, shapes, strict=True):
        part = b.node("reduce_sum", name, axes=tuple(range(len(shape))), keepdims=0)
        total = b.node("add", total, part) if total else part
    return b.build([b.node("mul", name, total) for name in given])


FEW: dict[str, list[Shape]] = {
    "alike": [(2048, 512)] * 2,
    "two kinds": [(2048, 512), (1024, 2048)],
    "small and large": [(96,), (2048, 1024)],
    "short rows": [(16,), (2048, 1024)],
    **({"three": [(2048, 512), (1024, 2048), (2048, 512)]} if SOAK else {}),
}
"""Small enough to try every partition."""
CASES: dict[str, list[Shape]] = {
    "alike": [(2048, 512)] * 3,
    "two kinds": [(2048, 512), (1024, 2048), (2048, 512)],
    "all different": [(96,), (300, 256), (2048, 1024)],
    "short rows": [(16,), (12,), (2048, 1024)],
}


def _least(graph: Graph, target: str, limits: Limits) -> float:
    device, options = find(target), Options()
    floor = floor_of(device, options, Pricer(graph, device, options))
    least = least_seconds(Rules(View(graph), "full", limits), floor)
    assert least is not None
    return least


def _cost(graph: Graph, target: str, limits: Limits) -> float:
    """Of the cheapest of all legal partitions."""
    pricer = Pricer(graph, find(target), Options())

    def price(region: Region) -> float:
        family = check(graph, region, profile="full", limits=limits)
        assert isinstance(family, Family)
        return pricer.seconds(region, family)

    return least_cost(graph, price, "full", limits)


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
@pytest.mark.parametrize("limits", [OPEN, WALLS], ids=["open", "walls"])
@pytest.mark.parametrize("name", FEW)
def test_no_partition_costs_less(name: str, limits: Limits, target: str) -> None:
    """Not even one that reduces again what it needs, however kernels are joined."""
    graph = scaled(FEW[name])
    cost = _cost(graph, target, limits)
    assert 0 < _least(graph, target, limits) <= cost * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "walls", "kernels"),
    [
        ("alike", False, 0),
        ("two kinds", False, 2),
        ("all different", False, 2),
        ("short rows", False, 0),
        ("alike", True, 3),
        ("two kinds", True, 3),
    ],
)
def test_reductions_over_other_rows_take_launches_of_their_own(
    name: str, kernels: int, *, walls: bool
) -> None:
    """Nothing is said where one kernel may hold all, or where rows are short."""
    rules = Rules(View(scaled(CASES[name])), "full", WALLS if walls else OPEN)
    gate = best_gate(rules, rules.view.everything)
    assert (gate.kernels if gate else 0) == kernels


def test_what_is_scaled_is_read_again() -> None:
    """But for what the first kernel behind the gate may have reduced itself."""
    view = View(scaled(CASES["two kinds"]))
    gate = best_gate(Rules(view, "full", OPEN), view.everything)
    assert gate is not None
    again = read_again(view, gate, range(len(view.nodes)))
    sizes = [sorted(kind.bytes for kind in kinds) for kinds in again]
    assert sorted(sizes) == [[4 << 20, 4 << 20], [8 << 20]]


def test_a_tensor_that_two_reductions_need_is_not_said_to_be_read_again() -> None:
    """Whichever of them the first kernel behind the gate holds, it may read it once."""
    b = Builder()
    x = b.given("x", (64, 128))
    rows = b.node("reduce_sum", x, axes=(0, 1), keepdims=0)
    other = b.node("reshape", x, shape=(64 * 128, 1))
    last = b.node(
        "reduce_max",
        b.node("mul", other, b.given("y", (1, 32))),
        axes=(0, 1),
        keepdims=0,
    )
    view = View(b.build([b.node("mul", x, b.node("add", rows, last))]))
    gate = best_gate(Rules(view, "full", OPEN), view.everything)
    assert gate is not None
    assert all(not kinds for kinds in read_again(view, gate, range(len(view.nodes))))


def test_the_bound_of_scaled_tensors_is_near() -> None:
    """With the second launch and what is read again it is within a third."""
    graph = scaled(FEW["small and large"])
    cost = _cost(graph, "sm_90", OPEN)
    assert 2 / 3 * cost < _least(graph, "sm_90", OPEN) <= cost * (1 + 1e-9)
