"""Where tensors live."""

from __future__ import annotations

import pytest

from tests.tuner.fusion.random_graphs import random_graph
from tuner.fusion.baselines import unfused
from tuner.fusion.legality import Limits
from tuner.fusion.memory import ALIGNMENT_BYTES, plan_memory
from tuner.ir.graph import region_inputs


@pytest.mark.parametrize("seed", range(40))
def test_no_two_living_tensors_overlap(seed: int) -> None:
    """Tensors alive in the same kernel have disjoint, aligned places in the arena."""
    graph = random_graph(seed, most_nodes=20)
    choices = unfused(graph, lambda r, f: 1.0, profile="full", limits=Limits.none())
    plan = plan_memory(graph, [choice.region for choice in choices])
    placed = {b.tensor: b for b in plan.buffers}
    for a in plan.buffers:
        assert a.offset % ALIGNMENT_BYTES == 0
        assert a.offset + a.bytes <= plan.arena_bytes
        for b in plan.buffers:
            if a is not b and a.first <= b.last and b.first <= a.last:
                disjoint = a.offset + a.bytes <= b.offset
                assert disjoint or b.offset + b.bytes <= a.offset
    for step, choice in enumerate(choices):
        for name in (
            *region_inputs(graph, choice.region.nodes),
            *choice.region.outputs,
        ):
            if name in placed:
                assert placed[name].first <= step <= placed[name].last
    assert plan.peak_bytes >= sum(graph.types[name].bytes for name in graph.inputs)
