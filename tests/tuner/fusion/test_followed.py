"""What a node needs of its operands is looked up once, and counts the same."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.tuner.fusion.random_graphs import Builder
from tuner.fusion.traffic import Known, traffic
from tuner.ir.graph import Graph, make_region


def _rotated(*, is_narrow: bool) -> Graph:
    """Halves that change places, as in a rotary embedding; perhaps a part of them."""
    b = Builder()
    x = b.node("exp", b.given("x", (6, 8)))
    low, high = (
        b.node("slice", x, starts=(0, at), sizes=(6, 4), steps=(1, 1)) for at in (0, 4)
    )
    turned = b.node("concat", b.node("neg", high), low, axis=1)
    found = b.node("add", b.node("mul", x, b.given("c", (6, 8))), turned)
    if is_narrow:
        found = b.node("slice", found, starts=(1, 2), sizes=(2, 3), steps=(2, 1))
    return b.build([b.node("tanh", found)])


@pytest.mark.parametrize("is_narrow", [False, True])
def test_kernels_move_the_same_bytes_whatever_was_counted_before(
    is_narrow: bool,
) -> None:
    """Whether all of a node is needed in a kernel or a part decides what it reads."""
    graph = _rotated(is_narrow=is_narrow)
    known: Known = {}
    counted = 0
    for size in (1, 2, 3, len(graph.nodes)):
        for nodes in combinations(graph.nodes, size):
            made = [name for node in nodes for name in node.outputs]
            read = {name for node in nodes for name in node.inputs}
            outputs = [name for name in made if name not in read] or made
            region = make_region(graph, [node.name for node in nodes], outputs)
            assert traffic(graph, region, known) == traffic(graph, region)
            counted += 1
    assert known
    assert counted > 50
