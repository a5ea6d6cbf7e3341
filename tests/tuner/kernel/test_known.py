"""Loops that kernels have in common are counted once, and no count changes by that."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tuner.ir.graph import Region, extract
from tuner.kernel.count import Known, work
from tuner.kernel.lower import lower
from tuner.kernel.schedule import default, space
from tuner.plan import Family, Options
from tuner.pricing import Pricer, price

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuner.ir.graph import Graph

TARGETS = ("cpu", "sm_90")
MANY = 4096


def loops(seed: int) -> Graph:
    """Sums over rows of their own, all of one tensor, and of one beside it."""
    draw = Random(seed)
    b = Builder()
    x, beside = b.input(64, 96), b.input(128)
    views = [(64, 96), (96, 64), (32, 192), (512, 12)]
    outputs = [b.op("exp", beside), b.op("neg", b.op("exp", b.input(64, 96)))]
    for shape in draw.sample(views, 3):
        view = b.op("reshape", x, shape=shape)
        made = b.op(draw.choice(("abs", "exp")), view)
        op = draw.choice(("reduce_sum", "reduce_max"))
        outputs.append(b.op(op, made, axes=(draw.randrange(2),), keepdims=0))
    return b.graph(*outputs)


def kernels(graph: Graph) -> Iterator[Region]:
    """A kernel for every one to three of the outputs."""
    for count in (1, 2, 3):
        for outputs in combinations(graph.outputs, count):
            needed, nodes = set(outputs), []
            for node in reversed(graph.nodes):
                if needed.intersection(node.outputs):
                    nodes.append(node.name)
                    needed.update(node.inputs)
            yield Region(nodes=tuple(reversed(nodes)), outputs=outputs)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("most", [1, 3, MANY])
def test_remembered_work_is_counted_work(most: int, target: str) -> None:
    """Whatever was counted before, and however much is remembered, work is the same."""
    device, draw = find(target), Random(most)
    for seed in range(2):
        known, groups = Known(most), 0
        for region in kernels(loops(seed)):
            nest = lower(extract(loops(seed), region))
            legal = space(nest, device)
            for schedule in (default(nest, device), draw.choice(legal)):
                found = work(nest, schedule, device, known)
                assert found == work(nest, schedule, device)
                assert len(known) <= most
                groups += len(nest.groups)
        assert most < MANY or 0 < len(known) < 0.7 * groups


@pytest.mark.parametrize("target", TARGETS)
def test_a_price_is_that_of_a_kernel_counted_alone(target: str) -> None:
    """A pricer that has priced other kernels says what one says that has not."""
    device, options, graph = find(target), Options(), loops(9)
    pricer = Pricer(graph, device, options)
    for region in kernels(graph):
        alone = price(extract(graph, region), Family.REDUCTION, device, options)
        assert alone is not None
        assert pricer.priced(region, Family.REDUCTION) == alone
