"""What is said of a plan's groups and of a graph as a whole."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.tuner.fusion.pattern_plans import bytes_price
from tests.tuner.kernel.builder import Builder
from tuner.fusion.baselines import unfused
from tuner.fusion.boundaries import boundaries, ops_in_words
from tuner.fusion.legality import Limits
from tuner.fusion.partition import solve
from tuner.fusion.profile import chains
from tuner.ir.graph import Graph, Region, make_region
from tuner.plan import Choice, Family


def reasons(graph: Graph, choices: tuple[Choice, ...]) -> Mapping[str, str]:
    """Why each tensor leaves its group, by tensor and reader."""
    found = boundaries(
        graph, choices, bytes_price(graph), profile="full", limits=Limits.none()
    )
    return {f"{b.tensor} to {b.reader}": b.reason for b in found}


def test_a_rule_of_legality_ends_a_group() -> None:
    """Rows that were summed do not meet the columns of the same matrix."""
    b = Builder()
    rows = b.op("reduce_sum", b.op("exp", b.input(64, 32)), axes=(1,), keepdims=1)
    y = b.op("reduce_sum", b.op("add", rows, b.input(64, 32)), axes=(0,), keepdims=1)
    graph = b.graph(y)
    choices = solve(graph, bytes_price(graph)).partition.choices
    told = reasons(graph, choices)
    assert told["t1 to 1"] == "reductions over different rows: n1, n3"
    assert told["t3 to None"] == "the graph delivers it"


def test_a_price_ends_a_group() -> None:
    """Where joining is legal, what it would cost or what stands against it is said."""
    b = Builder()
    y = b.op("relu", b.op("exp", b.input(64, 32)))
    graph = b.graph(y)
    apart = unfused(graph, bytes_price(graph), profile="full", limits=Limits.none())
    assert "joining saves" in reasons(graph, apart)["t0 to 1"]

    def dear(region: Region, family: Family) -> float:
        return 5e-6 if len(region.nodes) > 1 else 1e-6

    apart = unfused(graph, dear, profile="full", limits=Limits.none())
    found = boundaries(graph, apart, dear, profile="full", limits=Limits.none())
    assert found[0].reason == "one kernel of both takes 3.00 µs more"


def test_another_group_between_two_ends_a_group() -> None:
    """A group that an opaque reader must come out of cannot hold what follows it."""
    b = Builder()
    x = b.op("exp", b.input(16, 16))
    total = b.op("reduce_sum", b.op("matmul", x, x), axes=(1,), keepdims=1)
    graph = b.graph(b.op("add", x, total))
    parts = [(("n0",), "t0"), (("n1",), "t1"), (("n2",), "t2"), (("n3",), "t3")]
    families = (Family.POINTWISE, Family.LIBRARY, Family.REDUCTION, Family.POINTWISE)
    choices = tuple(
        Choice(region=make_region(graph, nodes, (out,)), family=family, seconds=1e-6)
        for (nodes, out), family in zip(parts, families, strict=True)
    )
    told = reasons(graph, choices)
    assert told["t0 to 3"] == "another group lies between them"
    assert "a reduction cannot join an anchor" in told["t1 to 2"]


def test_operators_of_a_group_in_words() -> None:
    """Equal neighbours are counted, long groups are cut."""
    b = Builder()
    x = b.input(8)
    for op in ("exp", "exp", "relu", "neg"):
        x = b.op(op, x)
    graph = b.graph(x)
    region = make_region(graph, [n.name for n in graph.nodes], (x,))
    choice = Choice(region=region, family=Family.POINTWISE, seconds=0.0)
    assert ops_in_words(graph, choice) == "exp x2 relu neg"
    assert ops_in_words(graph, choice, most=2) == "exp x2 relu +1"


@pytest.mark.parametrize(
    ("length", "expected"),
    [(2, (0, 0, 0, 0)), (3, (1, 3, 3, 2 * 2 * 256)), (5, (1, 5, 5, 4 * 2 * 256))],
)
def test_chains_are_counted(length: int, expected: tuple[int, int, int, int]) -> None:
    """Three or more element-wise nodes, each read by the next alone."""
    b = Builder()
    x = b.input(64)
    for _ in range(length):
        x = b.op("exp", x)
    found = chains(b.graph(x))
    assert (found.count, found.nodes, found.longest, found.inner_bytes) == expected


def test_a_second_reader_ends_a_chain() -> None:
    """What two nodes read, or the caller gets, is the end of its run."""
    b = Builder()
    x = b.op("exp", b.op("exp", b.op("exp", b.input(64))))
    y = b.op("exp", b.op("exp", b.op("exp", x)))
    graph = b.graph(x, y)
    found = chains(graph)
    assert (found.count, found.nodes, found.longest) == (2, 6, 3)
