"""The order that nodes of a badly ordered model are taken in."""

from __future__ import annotations

import random
from collections.abc import Sequence

import onnx
import pytest
from onnx import helper

from tests.conftest import SOAK
from tests.counting import lines_run
from tuner.errors import InvalidModel
from tuner.frontend import order
from tuner.frontend.order import sort_nodes

GRAPHS = 2000 if SOAK else 100
LONG = 300


def _by_walks(needs: Sequence[set[int]]) -> list[int]:
    """Walk over all nodes again and again, and take what is ready."""
    found: list[int] = []
    while len(found) < len(needs):
        for index, sources in enumerate(needs):
            if index not in found and sources <= set(found):
                found.append(index)
    return found


def _nodes(needs: Sequence[set[int]]) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Sum", ["x", *(f"t{s}" for s in sorted(sources))], [f"t{i}"])
        for i, sources in enumerate(needs)
    ]


def _sorted(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    names = [str(index) for index in range(len(nodes))]
    return sort_nodes(nodes, names, {"x"})


def test_the_given_order_stays_as_far_as_it_can() -> None:
    """On random graphs the order is that of walks that take what is ready."""
    for seed in range(GRAPHS):
        rng = random.Random(seed)
        place = list(range(rng.randrange(1, 12)))
        rng.shuffle(place)
        needs: list[set[int]] = [set() for _ in place]
        for n, index in enumerate(place):
            needs[index] = set(rng.sample(place[:n], min(n, rng.randrange(3))))
        assert _sorted(_nodes(needs)) == _by_walks(needs)


def test_a_reversed_chain_takes_twice_as_long_when_it_is_twice_as_long() -> None:
    """A chain that is written last node first is turned round in a few steps a node."""

    def steps(length: int) -> int:
        needs = [{index + 1} for index in range(length - 1)] + [set()]
        nodes = _nodes(needs)
        assert _sorted(nodes) == list(reversed(range(length)))
        return lines_run(order, lambda: _sorted(nodes))

    assert steps(2 * LONG) <= 2.1 * steps(LONG)


def test_a_long_ring_is_named() -> None:
    """Nodes that wait for each other are refused with the first of them."""
    needs = [{(index + 1) % LONG} for index in range(LONG)]
    with pytest.raises(InvalidModel, match="waits for its own result"):
        _sorted(_nodes(needs))
