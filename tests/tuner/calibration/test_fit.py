"""Calibration finds a device again from its own micro-benchmarks."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from cost_model.calibration import CannotCalibrate
from cost_model.catalog import cpu, find
from cost_model.refining import scaled
from cost_model.roofline import lower_bound
from tests.tuner.calibration.fakes import ModelTimer
from tuner.calibration.fit import calibrate_device
from tuner.calibration.micro import COPY, LAUNCH, micro_benchmarks
from tuner.calibration.timing import generated
from tuner.runtime.library import is_available

TRUTH = scaled(
    replace(
        cpu(),
        launch_seconds=9e-6,
        block_launch_seconds=70e-9,
        l1_bytes_per_second=120e9,
        l2_bytes_per_second=45e9,
        dram_bytes_per_second=14e9,
        scattered_share=0.15,
    ),
    "operations_per_second.special",
    0.5,
)
"""A CPU that the catalogue does not know."""


def still() -> float:
    """A clock that stands."""
    return 0.0


def test_a_device_is_found_from_its_micro_benchmarks() -> None:
    """Launch, bandwidths, scattered requests and special functions come back."""
    fitted = calibrate_device(cpu(), ModelTimer(TRUTH), still)
    found = fitted.calibration.device
    assert not fitted.skipped or not is_available()
    for name in (
        "launch_seconds",
        "block_launch_seconds",
        "dram_bytes_per_second",
        "scattered_share",
    ):
        wanted = getattr(TRUTH, name)
        assert getattr(found, name) == pytest.approx(wanted, rel=0.25), name
    rates = found.operations_per_second
    assert rates["special"] == pytest.approx(  # type: ignore[index]
        TRUTH.operations_per_second["special"],  # type: ignore[index]
        rel=0.15,
    )
    assert fitted.calibration.residuals["copy"].median < 0.15


def test_the_bound_holds_on_every_sample() -> None:
    """No lower bound of the calibrated device exceeds what was measured."""
    fitted = calibrate_device(cpu(), ModelTimer(TRUTH), still)
    device = fitted.calibration.device
    for each in fitted.timed:
        bound = lower_bound(each.kernel.work, device)
        assert bound <= each.measured.seconds, each.micro.name


def test_a_broken_kernel_is_skipped_with_its_reason() -> None:
    """One group that does not compile costs its number, and nothing else."""
    timer = ModelTimer(TRUTH, broken=("barrier_seconds",))
    fitted = calibrate_device(cpu(), timer, still)
    assert fitted.calibration.device.barrier_seconds == cpu().barrier_seconds
    named = [name for name in fitted.skipped if name.startswith("barrier_seconds")]
    assert len(named) == 2
    assert "no such function" in fitted.skipped[named[0]]


def test_the_time_limit_ends_it() -> None:
    """What does not fit in the time is skipped, but no group is left out whole."""
    ticks = count()
    timer = ModelTimer(TRUTH)
    fitted = calibrate_device(
        cpu(), timer, lambda: float(next(ticks)), time_limit_seconds=60.0
    )
    assert timer.asked < 62
    assert "no time left" in fitted.skipped.values()
    missed = {name.partition(":")[0] for name in fitted.skipped}
    timed = {each.micro.group for each in fitted.timed}
    assert missed <= timed


def test_nothing_to_fit_is_said() -> None:
    """A device on which no copy runs cannot be calibrated."""
    with pytest.raises(CannotCalibrate):
        calibrate_device(cpu(), ModelTimer(TRUTH, broken=(COPY,)), still)


@pytest.mark.parametrize("target", ["cpu", "sm_90", "t4"])
def test_every_micro_benchmark_can_be_generated(target: str) -> None:
    """All kinds of devices get launches, copies and kernels for their own numbers."""
    device = find(target)
    asked = micro_benchmarks(device)
    assert {LAUNCH, COPY, "scattered_share", "overlap"} <= {m.group for m in asked}
    for micro in asked:
        if not micro.in_library:
            assert generated(micro.graph, device, micro.schedule).source is not None
