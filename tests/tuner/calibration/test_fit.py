"""Calibration finds a device again from its own micro-benchmarks."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from cost_model.catalog import cpu, find
from cost_model.refining import scaled
from cost_model.roofline import lower_bound
from tests.tuner.calibration.fakes import ModelTimer, RecordedTimer
from tuner.calibration.fit import AGAIN, Fitted, calibrate_device, fit_again
from tuner.calibration.micro import COPY, LAUNCH, micro_benchmarks
from tuner.calibration.timing import generated
from tuner.errors import DeviceUnavailable
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


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    """What is found of the device; for reading only."""
    return calibrate_device(cpu(), ModelTimer(TRUTH), still)


def test_a_device_is_found_from_its_micro_benchmarks(fitted: Fitted) -> None:
    """Launch, bandwidths, scattered requests and special functions come back."""
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


def test_the_bound_holds_on_every_sample(fitted: Fitted) -> None:
    """No lower bound of the calibrated device exceeds what was measured."""
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
    with pytest.raises(DeviceUnavailable, match="0 copies; at least 6 are needed"):
        calibrate_device(cpu(), ModelTimer(TRUTH, broken=(COPY,)), still)


QUIET = (1.0, 1.0, 1.01, 0.99, 1.0, 1.02, 0.98)
"""Samples of a micro-benchmark as shares of its median, recorded on a quiet machine."""
SPREAD = (0.7, 1.9, 1.0, 4.2, 1.4, 0.8, 3.1)
"""The same while a compiler ran beside it."""


@pytest.fixture(scope="module")
def undisturbed() -> Fitted:
    """What is found on a quiet machine; for reading only."""
    return calibrate_device(cpu(), RecordedTimer(TRUTH, {}, QUIET), still)


@pytest.mark.parametrize("group", [COPY, LAUNCH, "scattered_share"])
def test_what_was_disturbed_once_is_timed_again(
    undisturbed: Fitted, group: str
) -> None:
    """A burst of other work costs repetitions of what it hit, and no number."""
    timer = RecordedTimer(TRUTH, {group: (SPREAD, QUIET)}, QUIET)
    fitted = calibrate_device(cpu(), timer, still)
    assert not fitted.disturbed
    assert fitted.calibration.device == undisturbed.calibration.device
    of = sum(micro.group == group for micro in micro_benchmarks(cpu()))
    assert timer.asked == RecordedTimer.TIMED + of


SHARED = (1.02, 1.6, 1.01, 1.42, 1.5, 1.02, 1.0, 1.44, 1.43, 1.4, 1.41)
"""The same while a neighbour of the machine ran most of the time, which no count of
stolen time told: the samples of its median agree."""


def test_the_speed_of_a_pipe_is_that_of_the_machine_alone(undisturbed: Fitted) -> None:
    """Others only ever make a kernel longer, and a plan is for a machine of its own."""
    group = "operations_per_second.special"
    shared = calibrate_device(
        cpu(), RecordedTimer(TRUTH, {group: (SHARED,)}, QUIET), still
    )
    assert not shared.disturbed
    both = (shared, undisturbed)
    rates = (each.calibration.device.operations_per_second for each in both)
    found, wanted = (each["special"] for each in rates)  # type: ignore[index]
    assert found == pytest.approx(wanted, rel=0.15)


def test_samples_that_disagree_are_repeated_a_few_times_and_left_out() -> None:
    """A number that cannot be measured keeps its value; the record names the rest."""
    timer = RecordedTimer(TRUTH, {"scattered_share": (SPREAD,)}, QUIET)
    fitted = calibrate_device(cpu(), timer, still)
    assert fitted.calibration.device.scattered_share == cpu().scattered_share
    assert {name.partition(":")[0] for name in fitted.disturbed} == {"scattered_share"}
    assert timer.asked == RecordedTimer.TIMED + AGAIN * len(fitted.disturbed)
    assert "scattered_share" not in fitted.calibration.residuals


def test_a_busy_machine_is_refused() -> None:
    """The message says how much was disturbed, where, and what to do."""
    timer = RecordedTimer(TRUTH, {COPY: (SPREAD,), LAUNCH: (SPREAD,)}, QUIET)
    with pytest.raises(DeviceUnavailable) as caught:
        calibrate_device(cpu(), timer, still)
    for group in (COPY, LAUNCH):
        count = sum(micro.group == group for micro in micro_benchmarks(cpu()))
        assert f"{group} {count} of {count}" in caught.value.problem
    assert "stop what else runs" in caught.value.hint


def test_launches_alone_that_stay_disturbed_are_refused() -> None:
    """Few as they are: every prediction rests on the launch."""
    with pytest.raises(DeviceUnavailable, match=r"launch (\d+) of \1\b"):
        calibrate_device(cpu(), RecordedTimer(TRUTH, {LAUNCH: (SPREAD,)}, QUIET), still)


def test_contended_samples_that_agree_are_disturbed_all_the_same() -> None:
    """Somebody who takes half of each core makes all samples alike, and wrong."""
    timer = RecordedTimer(TRUTH, {COPY: (QUIET,)}, QUIET, contended=True)
    with pytest.raises(DeviceUnavailable, match="micro-benchmarks were disturbed"):
        calibrate_device(cpu(), timer, still)


def test_a_disturbed_calibration_can_be_asked_for() -> None:
    """It fits to everything, and still says what was disturbed."""
    timer = RecordedTimer(TRUTH, {COPY: (SPREAD,), LAUNCH: (SPREAD,)}, QUIET)
    fitted = calibrate_device(cpu(), timer, still, accept_disturbed=True)
    assert fitted.calibration.residuals["copy"].samples > 20
    assert len(fitted.disturbed) > 20


def test_no_time_is_spent_beyond_the_limit_on_what_is_disturbed() -> None:
    """Repetitions end with the time that was given."""
    ticks = count()
    timer = RecordedTimer(TRUTH, {"overlap": (SPREAD,)}, QUIET)
    few = RecordedTimer.TIMED + 6
    calibrate_device(
        cpu(), timer, lambda: float(next(ticks)), time_limit_seconds=float(few)
    )
    assert RecordedTimer.TIMED < timer.asked <= few


def test_stored_samples_are_fitted_like_new_ones() -> None:
    """What was disturbed then is left out now."""
    timer = RecordedTimer(TRUTH, {"scattered_share": (SPREAD,)}, QUIET)
    first = calibrate_device(cpu(), timer, still)
    stored = {(t.micro.group, t.micro.name): t.measured for t in first.timed}
    again = fit_again(cpu(), stored)
    assert again.calibration.device == first.calibration.device
    assert again.disturbed == first.disturbed


@pytest.mark.parametrize("target", ["cpu", "sm_90", "t4"])
def test_every_micro_benchmark_can_be_generated(target: str) -> None:
    """All kinds of devices get launches, copies and kernels for their own numbers."""
    device = find(target)
    asked = micro_benchmarks(device)
    assert {LAUNCH, COPY, "scattered_share", "overlap"} <= {m.group for m in asked}
    for micro in asked:
        if not micro.in_library:
            assert generated(micro.graph, device, micro.schedule).source is not None
