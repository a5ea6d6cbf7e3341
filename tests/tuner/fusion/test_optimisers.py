"""Steps of optimisers: joined side by side, and what is proved of that."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.tuner.optimisers import adam, mixed, sgd
from tuner.fusion.legality import Limits
from tuner.ir.graph import Graph
from tuner.model import load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Options, Partition

STEPS: dict[str, Callable[[int], bytes]] = {
    "sgd": lambda count: sgd(mixed(count)),
    "sgd_decay": lambda count: sgd(mixed(count), decay=0.01),
    "adam": lambda count: adam(mixed(count)),
    "adamw": lambda count: adam(mixed(count), decay=0.01),
}


@cache
def planned(step: bytes) -> tuple[Graph, Partition]:
    """A step as it is planned, and its partition on a GPU; asked again, the same."""
    model = load(step)
    planner = Planner(
        model=model,
        device=resolve_target("sm_90"),
        options=Options(),
        time_limit_seconds=600.0,
    )
    return model.graph, planner.solve().partition


@pytest.mark.parametrize("count", [10, 40, *([200, 1000] if SOAK else [])])
@pytest.mark.parametrize("name", STEPS)
def test_the_gap_of_a_step_is_small(name: str, count: int) -> None:
    """However many tensors: no partition is cheaper by more than 1 %."""
    _, found = planned(STEPS[name](count))
    assert found.gap <= 0.01


def test_the_gap_of_the_zoos_step_is_small(zoo_dir: Path) -> None:
    """Of a step that PyTorch exports, too."""
    _, found = planned((zoo_dir / "adamw_step.onnx").read_bytes())
    assert found.gap <= 0.01


def test_what_every_tensor_needs_is_computed_once() -> None:
    """The powers of the decay rates: stored by one kernel, read by the others."""
    graph, found = planned(STEPS["adamw"](40))
    powers = {node.name for node in graph.nodes if node.op == "pow"}
    assert powers
    holders = [c for c in found.choices if powers.intersection(c.region.nodes)]
    assert len(holders) == 1 < len(found.choices)


def test_kernels_are_filled_before_there_is_one_more() -> None:
    """Four steps of 14 nodes leave room: parts of other steps go there."""
    graph, found = planned(STEPS["adam"](40))
    most = Limits.of(resolve_target("sm_90")).max_nodes
    assert most is not None
    assert len(found.choices) == -(-len(graph.nodes) // most)


@pytest.mark.parametrize(("make", "kernels"), [(sgd, 2), (adam, 3)])
def test_gradients_that_are_clipped_are_reduced_side_by_side(
    make: Callable[..., bytes], kernels: int
) -> None:
    """Their sum is a chain, of which each link waits for the one before."""
    graph, found = planned(make(mixed(4), clip=True))
    reductions = {n.name for n in graph.nodes if n.op == "reduce_sum"}
    holders = [c for c in found.choices if reductions.intersection(c.region.nodes)]
    assert len(holders) == 1
    assert len(found.choices) == kernels
