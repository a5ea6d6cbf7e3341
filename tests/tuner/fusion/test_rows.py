"""Rows of many sets of nodes, judged part by part."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.tuner.fusion.random_graphs import random_graph
from tests.tuner.fusion.zoo_pieces import static_graphs
from tests.tuner.kernel.builder import Builder
from tuner.fusion.legality import Refusal, check
from tuner.fusion.rows import ROW_LIMIT, RowFaults, row_fault
from tuner.fusion.view import View, bits
from tuner.ir.graph import Graph, make_region
from tuner.ir.ops import Pattern
from tuner.plan import Family

GRAPHS = 600 if SOAK else 40
SETS = 2000 if SOAK else 40
OTHERS = (Pattern.CONTRACTION, Pattern.WINDOW, Pattern.OPAQUE)


@pytest.fixture(scope="module")
def graphs(zoo_dir: Path) -> Mapping[str, Graph]:
    """Canonical graphs of the static models."""
    return static_graphs(zoo_dir)


def _grown(view: View, rng: random.Random, allowed: int) -> int:
    """Up to 24 allowed nodes that hang together."""
    mask = 1 << rng.choice(list(bits(allowed)))
    for _ in range(rng.randrange(24)):
        near = 0
        for i in bits(mask):
            near |= view.near[i]
        near &= allowed & ~mask
        if near:
            mask |= 1 << rng.choice(list(bits(near)))
    return mask


def _compared(graph: Graph, rng: random.Random, count: int) -> int:
    """Judge random sets both ways; how many of them break a rule."""
    view = View(graph)
    allowed = view.everything
    for pattern in OTHERS:
        allowed &= ~view.masks[pattern]
    faults, broken = RowFaults(view), 0
    for _ in range(count if allowed else 0):
        mask = _grown(view, rng, allowed) | _grown(view, rng, allowed)
        nodes = [graph.by_name[name] for name in view.region(mask, 0).nodes]
        whole = row_fault(graph, nodes)
        assert bool(faults.fault(mask)) is bool(whole), (whole, faults.fault(mask))
        broken += bool(whole)
    return broken


def test_parts_judged_one_by_one_say_what_the_whole_says() -> None:
    """On random graphs a set is legal part by part exactly when it is as a whole."""
    broken = sum(
        _compared(random_graph(seed, 10), random.Random(seed), 8)
        for seed in range(GRAPHS)
    )
    assert broken > GRAPHS // 10


@pytest.mark.parametrize(
    "name", ["train_mlp", "train_transformer_layer", "sd_unet_small", "llama_small"]
)
def test_parts_of_models_say_what_the_whole_says(
    name: str, graphs: Mapping[str, Graph]
) -> None:
    """The same on sets grown in models, whose rows meet in many ways."""
    assert _compared(graphs[name], random.Random(7), SETS) > 0


def test_what_comes_before_every_reduction_is_not_looked_at_again(
    graphs: Mapping[str, Graph],
) -> None:
    """Sets that differ in nodes without a row in front of them are one question."""
    view = View(graphs["train_mlp"])
    reductions = list(bits(view.masks[Pattern.REDUCTION]))
    faults = RowFaults(view)
    for i in reductions:
        before = list(bits(view.above[i] & view.masks[Pattern.ELEMENTWISE]))
        free = [k for k in before if not view.above[k] & view.masks[Pattern.REDUCTION]]
        for count in range(len(free) + 1):
            faults.fault(1 << i | sum(1 << k for k in free[:count]))
    assert faults.judged == len(reductions)


@pytest.mark.parametrize("length", [ROW_LIMIT, 2 * ROW_LIMIT])
def test_kernels_of_ours_read_rows_of_any_length_again(length: int) -> None:
    """The patterns' limit on rows holds under their own rules alone."""
    b = Builder()
    x = b.input(3, length)
    top = b.op("reduce_max", x, axes=(1,), keepdims=1)
    terms = b.op("exp", b.op("sub", x, top))
    graph = b.graph(b.op("reduce_sum", terms, axes=(1,), keepdims=1))
    region = make_region(graph, [node.name for node in graph.nodes])
    assert check(graph, region, profile="full") is Family.REDUCTION
    found = check(graph, region, profile="reference")
    assert isinstance(found, Refusal) is (length > ROW_LIMIT)
