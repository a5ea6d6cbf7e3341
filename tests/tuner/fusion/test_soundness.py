"""A bound that some partition refutes is a fault: never hidden, never claimed."""

from __future__ import annotations

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tuner.errors import InternalError
from tuner.fusion.legality import Limits
from tuner.fusion.partition import Partitioner
from tuner.fusion.soundness import UnsoundBound, believed
from tuner.ir.graph import Graph
from tuner.plan import Options, Partition
from tuner.pricing import Pricer, floor_of

DEVICE, SLOWER = find("sm_90"), find("cpu")


def _updates() -> Graph:
    """Independent steps that are joined after the proof."""
    b = Builder()
    outputs = []
    for _ in range(4):
        x, g = b.input(512, 512), b.input(512, 512)
        outputs.append(b.op("sub", x, b.op("sqrt", b.op("mul", g, g))))
    return b.graph(*outputs)


def _planned(floor_device: str) -> Partition:
    """A plan by the prices of one device and the floor of another."""
    graph = _updates()
    partitioner = Partitioner(graph, limits=Limits.of(DEVICE))
    price = Pricer(graph, DEVICE, Options()).seconds
    floor = floor_of(find(floor_device), Options())
    return partitioner.solve(price, floor=floor).partition


def test_a_bound_is_believed_up_to_what_the_solver_proves() -> None:
    """Rounding is no fault; the bound that is stated never lies above the cost."""
    assert believed(1.0, 2.0, where="x") == 1.0
    assert believed(1.0 + 1e-9, 1.0, where="x") == 1.0
    assert believed(0.0, 0.0, where="x") == 0.0


def test_a_refuted_bound_ends_a_test() -> None:
    """Where warnings are errors it is an internal error, with both numbers."""
    with pytest.raises(
        InternalError, match=r"the floor: .* 1\.1 s, but 1 s were found"
    ):
        believed(1.1, 1.0, where="the floor")


def test_a_refuted_bound_claims_nothing_elsewhere() -> None:
    """In production there is a warning, and no bound is left of it."""
    with pytest.warns(UnsoundBound, match="please report it"):
        assert believed(1.1, 1.0, where="the floor") == 0.0


@pytest.mark.parametrize("target", ["cpu", "sm_90", "ideal"])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_a_kernel_without_elements_has_no_floor(
    target: str, shape: tuple[int, int]
) -> None:
    """It waits for no memory: less than a launch that moves something."""
    b = Builder()
    x = b.input(*shape)
    whole = b.op("reduce_sum", b.op("exp", x), axes=(1,), keepdims=0)
    full = b.op("add", b.input(8, 8), b.input(8, 8))
    for outputs in ([whole], [whole, full], [b.op("neg", x)]):
        graph = b.graph(*outputs)
        pricer = Pricer(graph, find(target), Options())
        floor = floor_of(find(target), Options(), pricer)
        partitioner = Partitioner(graph, limits=Limits.of(find(target)))
        found = partitioner.solve(pricer.seconds, floor=floor).partition
        assert found.bound_seconds <= found.objective_seconds
        assert found.candidate_space.complete


def test_a_floor_that_lies_is_found_out() -> None:
    """That of a slower device: kernels cost less than it says they can."""
    with pytest.raises(UnsoundBound, match="the floor of the whole graph"):
        _planned(SLOWER.id)


def test_a_floor_that_lies_costs_the_claim_and_not_the_plan() -> None:
    """The kernels are those of a true floor, and the bound is no higher."""
    true = _planned(DEVICE.id)
    with pytest.warns(UnsoundBound):
        found = _planned(SLOWER.id)
    assert found.choices == true.choices
    assert found.bound_seconds <= true.bound_seconds
    assert found.bound_seconds < found.objective_seconds
