"""Calibration: a device is found again from what it would measure."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cost_model.calibration import (
    MOST_OVERLAP,
    CannotCalibrate,
    CopySample,
    LaunchSample,
    OperationSample,
    calibrate,
    restore,
)
from cost_model.catalog import cpu, find
from cost_model.fitting import non_negative_fit, robust_fit
from cost_model.refining import WorkSample
from cost_model.roofline import lower_bound, predict
from cost_model.work import Pipe, Work
from tests.cost_model.builders import copy, read, write

if TYPE_CHECKING:
    from cost_model.device import Device

KIB = 1 << 10
SIZES = [(4 * KIB) << step for step in range(17)]


def measured_copies(device: Device, noise: float = 0.0) -> list[CopySample]:
    """What copies of all sizes would take on `device`."""
    generator = np.random.default_rng(7)
    samples = []
    for nbytes in SIZES:
        work = copy(nbytes, vector=8)
        seconds = predict(work, device).seconds
        factor = 1.0 + noise * generator.standard_normal()
        samples.append(
            CopySample(
                moved_bytes=nbytes,
                seconds=seconds * factor,
                blocks=work.blocks,
                block_threads=work.block_threads,
            )
        )
    return samples


def measured_launches(device: Device) -> list[LaunchSample]:
    """What empty kernels would take on `device`."""
    return [
        LaunchSample(
            blocks=blocks,
            seconds=predict(Work(accesses=(), blocks=blocks), device).seconds,
        )
        for blocks in (1, 2, 16, 256, 4096)
    ]


OTHER = replace(
    cpu(),
    launch_seconds=11e-6,
    block_launch_seconds=80e-9,
    l1_bytes_per_second=120e9,
    l2_bytes_per_second=40e9,
    dram_bytes_per_second=15e9,
    l2_bytes=round((8 << 20) * 2**0.5),
)
"""A CPU that the catalogue does not know."""


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_device_is_found_again(noise: float) -> None:
    """Launch, rates by level and the size of the last cache come back."""
    found = calibrate(
        cpu(),
        copies=measured_copies(OTHER, noise),
        launches=measured_launches(OTHER),
    ).device
    for name in (
        "launch_seconds",
        "block_launch_seconds",
        "l1_bytes_per_second",
        "l2_bytes_per_second",
        "dram_bytes_per_second",
        "l2_bytes",
    ):
        wanted = getattr(OTHER, name)
        assert getattr(found, name) == pytest.approx(wanted, rel=0.1), name


def test_disturbed_samples_do_not_move_the_fit() -> None:
    """Three copies that took five times too long change the rates by less than 10 %."""
    samples = measured_copies(OTHER, 0.01)
    for index in (3, 9, 14):
        samples[index] = replace(samples[index], seconds=5 * samples[index].seconds)
    launches = measured_launches(OTHER)
    calibration = calibrate(cpu(), copies=samples, launches=launches)
    rate = calibration.device.dram_bytes_per_second
    assert rate == pytest.approx(OTHER.dram_bytes_per_second, rel=0.1)
    assert calibration.residuals["copy"].median < 0.05
    assert calibration.residuals["copy"].worst > 0.5


def test_copies_of_a_few_bytes_are_launches_too() -> None:
    """Empty kernels that found the threads awake say little of what others pay."""
    awake = [replace(s, seconds=0.5 * s.seconds) for s in measured_launches(OTHER)[:3]]
    found = calibrate(
        cpu(),
        copies=measured_copies(OTHER, 0.0),
        launches=[*awake, *measured_launches(OTHER)[3:]],
    ).device
    assert found.launch_seconds == pytest.approx(OTHER.launch_seconds, rel=0.1)


def test_the_published_h100_table_gives_its_law() -> None:
    """The table's own figures give about 5.3 us and 3.25e12 bytes a second."""
    table = ((8, 1.4), (1024, 179), (4096, 639), (16384, 1584), (65536, 2343),
             (1 << 20, 3126))  # fmt: skip
    samples = [
        CopySample(
            moved_bytes=kib * KIB,
            seconds=kib * KIB / (rate * 2**30),
            blocks=kib * KIB // 8192 + 1,
            block_threads=256,
        )
        for kib, rate in table
    ]
    device = calibrate(find("sm_90"), copies=samples).device
    launch = device.launch_seconds + device.dram_latency_seconds
    assert launch == pytest.approx(5.3e-6, rel=0.1)
    assert device.dram_bytes_per_second == pytest.approx(3.25e12, rel=0.1)


def test_a_rate_of_a_pipe_is_its_median() -> None:
    """One slow run of three does not count, and other pipes stay as they were."""
    operations = [
        OperationSample(pipe=Pipe.FMA32, operations=1e12, seconds=1e12 / rate)
        for rate in (50e9, 51e9, 20e9)
    ]
    calibration = calibrate(cpu(), copies=measured_copies(cpu()), operations=operations)
    rates = calibration.device.operations_per_second
    assert rates[Pipe.FMA32] == pytest.approx(50e9, rel=0.01)
    assert rates[Pipe.SPECIAL] == cpu().operations_per_second[Pipe.SPECIAL]
    assert calibration.residuals["fma32"].samples == 3


def test_a_calibrated_bound_stays_below_what_was_measured() -> None:
    """A device faster than the catalogue thinks raises the peaks of the bound."""
    fast = replace(
        find("a10"),
        dram_bytes_per_second=900e9,
        l2_bytes_per_second=3e12,
        launch_seconds=0.9e-6,
        peak_operations_per_second=MappingProxyType(
            {p: 4 * r for p, r in find("a10").peak_operations_per_second.items()}
        ),
    )
    samples = measured_copies(fast)
    operations = [OperationSample(pipe=Pipe.FMA32, operations=1e14, seconds=1.6)]
    found = calibrate(find("a10"), copies=samples, operations=operations).device
    for sample in samples:
        assert lower_bound(copy(sample.moved_bytes), found) <= sample.seconds
    arithmetic = Work(accesses=(), operations={Pipe.FMA32: 1e14})
    assert lower_bound(arithmetic, found) <= 1.6


def test_what_changed_says_so() -> None:
    """Fitted fields have the calibration as their source, the others keep theirs."""
    found = calibrate(cpu(), copies=measured_copies(OTHER)).device
    assert found.sources["dram_bytes_per_second"] == f"calibrated: {len(SIZES)} samples"
    assert found.sources["barrier_seconds"] == cpu().sources["barrier_seconds"]
    assert found.digest != cpu().digest


def test_what_the_samples_do_not_determine_stays() -> None:
    """Copies that never leave the caches say nothing about main memory."""
    samples = [s for s in measured_copies(cpu()) if s.moved_bytes <= 256 * KIB]
    found = calibrate(cpu(), copies=samples).device
    assert found.dram_bytes_per_second == cpu().dram_bytes_per_second
    assert found.l2_bytes == cpu().l2_bytes


def test_too_few_samples_are_refused() -> None:
    """The message says how many are needed."""
    with pytest.raises(CannotCalibrate, match="5 copies; at least 6 are needed"):
        calibrate(cpu(), copies=measured_copies(cpu())[:5])


def test_a_time_of_zero_is_refused() -> None:
    """A sample without a positive time is a broken clock."""
    samples = measured_copies(cpu())
    with pytest.raises(CannotCalibrate, match="no positive time"):
        calibrate(cpu(), copies=[*samples, replace(samples[0], seconds=0.0)])


def test_no_coefficient_is_negative() -> None:
    """The best fit with non-negative numbers, where a free one would go below zero."""
    columns = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert non_negative_fit(columns, np.array([3.0, 2.0, 1.0])) == pytest.approx([2, 0])
    values, residual = robust_fit(columns, np.array([1.0, 3.0, 5.0]))
    assert values == pytest.approx([1, 2])
    assert residual.worst == pytest.approx(0, abs=1e-9)


def test_numbers_that_went_through_json_give_the_same_device() -> None:
    """Canonical JSON writes 1.0 as 1; the digest, and so the name, must not change."""
    numbers = dict(replace(cpu(), scattered_share=1.0, pipe_overlap=0.0).numbers)
    shortened = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in numbers.items()
    }
    assert shortened["scattered_share"] == 1
    found, same = restore(cpu(), numbers), restore(cpu(), shortened)
    assert (found.id, found.digest) == (same.id, same.digest)


def test_no_calibration_hides_all_of_the_shorter_time() -> None:
    """Schedules that differ in it alone would rank alike."""
    truth = replace(cpu(), overlap=1.0)
    nbytes = 32 << 20
    balanced = [
        Work(
            accesses=(read(nbytes), write(nbytes)),
            operations={Pipe.FMA32: count},
            blocks=64,
            block_threads=256,
        )
        for count in (5e7, 1e8, 2e8)
    ]
    samples = [WorkSample(work=w, seconds=predict(w, truth).seconds) for w in balanced]
    works = {"overlap": samples}
    found = calibrate(cpu(), copies=measured_copies(cpu()), works=works).device
    assert found.overlap == MOST_OVERLAP
