"""What a node needs of its operands is looked up once, and counts the same."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.tuner.fusion.random_graphs import Builder
from tuner.fusion.candidates import Space
from tuner.fusion.columns import Book
from tuner.fusion.legality import Limits, Rules
from tuner.fusion.traffic import Known, traffic
from tuner.fusion.view import View
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
    known = Known()
    counted = 0
    for size in (1, 2, 3, len(graph.nodes)):
        for nodes in combinations(graph.nodes, size):
            made = [name for node in nodes for name in node.outputs]
            read = {name for node in nodes for name in node.inputs}
            outputs = [name for name in made if name not in read] or made
            region = make_region(graph, [node.name for node in nodes], outputs)
            assert traffic(graph, region, known) == traffic(graph, region)
            counted += 1
    assert len(known)
    assert counted > 50


def _of_layers(layers: int) -> Graph:
    """Halves of the hidden states of many layers, and in each a pad of the whole."""
    b = Builder()
    outputs = []
    for layer in range(layers):
        x = b.given(f"x{layer}", (6, 8))
        outputs.append(b.node("slice", x, starts=(0, 4), sizes=(6, 4), steps=(1, 1)))
        outputs.append(b.node("pad", x, before=(0, 1), after=(0, 1), value=0.0))
    return b.build(outputs)


@pytest.mark.parametrize("limit_bytes", [6, 5])
def test_equal_layers_are_remembered_once_at_a_bit_for_an_element(
    limit_bytes: int,
) -> None:
    """Marks of 48 elements take 6 bytes for all layers; a whole operand takes none.

    Where the marks do not fit, the same bytes are counted without them.
    """
    graph = _of_layers(5)
    known = Known(limit_bytes)
    for _ in range(2):
        for node in graph.nodes:
            region = make_region(graph, [node.name], node.outputs)
            assert traffic(graph, region, known) == traffic(graph, region)
    fits = limit_bytes == 6
    assert known.bytes == (6 if fits else 0)
    assert len(known) == (10 if fits else 5)


def test_bytes_of_kernels_are_counted_with_what_the_rules_remember() -> None:
    """All who count bytes for a plan work out what a node needs once, not each."""
    rules = Rules(View(_rotated(is_narrow=False)), "full", Limits.none())
    space = Space(rules, out_of_time=lambda: False)
    book = Book(rules)
    for zone in space.zones(()):
        for kernel in space.candidates(zone).kernels:
            book.moved_bytes(kernel)
    assert len(rules.known) == 2
