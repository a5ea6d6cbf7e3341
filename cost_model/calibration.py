"""Fit a device to micro-benchmarks that were timed elsewhere.

Copies of all sizes give the launch and the rate of each level of the memory hierarchy:
`predict` charges a copy a fixed time plus its bytes at each level over the rate of that
level, which is linear in the launch and the inverse rates. The size of the last-level
cache is where that line fits best. Empty launches give the cost of a block, long
arithmetic kernels the rate of a pipe, and kernels in which another number decides that
number (`refining`).

The fit is robust, so that a few disturbed samples do not move it. No number may be
negative; what the samples do not determine keeps its old value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from cost_model.device import NUMBER_FIELDS, RATE_FIELDS, base_of
from cost_model.device_file import check
from cost_model.fitting import Matrix, Residual, residual_of, robust_fit
from cost_model.memory import traffic
from cost_model.occupancy import occupancy
from cost_model.refining import WorkSample, bound_excess, refine
from cost_model.work import Access, Pipe, Work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost_model.device import Device


PEAK_MARGIN: Final = 1.25
"""A peak is at least so much above what was reached: the bound rests on peaks."""

FLOOR_MARGIN: Final = 0.8
"""The launch floor is at most this share of the fastest sample."""

MOST_OVERLAP: Final = 0.9
"""Beyond that schedules that compute more for the same traffic cost the same, whichever
is shorter, and rank alike (14 recorded spaces: mean rank correlation 0.02 to 0.05 less
at 1.0)."""

MIN_COPIES: Final = 6
"""Four unknowns and a spare or two."""


class CannotCalibrate(ValueError):
    """The samples do not determine a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySample:
    """A copy: `moved_bytes` read and written together, by `blocks` blocks."""

    moved_bytes: int
    seconds: float
    blocks: int
    block_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSample:
    """A kernel that does nothing."""

    blocks: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSample:
    """A kernel that only computes, everywhere, for much longer than a launch takes."""

    pipe: Pipe
    operations: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted device, and how well it fits, by kind of sample."""

    device: Device
    residuals: Mapping[str, Residual]


def calibrate(
    device: Device,
    *,
    copies: Sequence[CopySample],
    launches: Sequence[LaunchSample] = (),
    operations: Sequence[OperationSample] = (),
    works: Mapping[str, Sequence[WorkSample]] = MappingProxyType({}),
) -> Calibration:
    """Fit what the samples determine, and keep the rest of `device`.

    Args:
        device: where to start from, such as the catalogue's row.
        copies: at least `MIN_COPIES`, from a few KiB to beyond the last cache.
        launches: empty kernels of one block and of many.
        operations: long arithmetic kernels; samples of one pipe are joined.
        works: field -> kernels in which it decides, fitted after all others in the
            order given; see `refining.refine`.

    Returns:
        The new device, its changed fields with source "calibrated", and residuals.

    Raises:
        CannotCalibrate: too few samples, or times that are not positive.
    """
    times = [sample.seconds for sample in copies]
    times += [sample.seconds for sample in launches]
    times += [sample.seconds for sample in operations]
    timed = [sample for group in works.values() for sample in group]
    times += [sample.seconds for sample in timed]
    if len(copies) < MIN_COPIES:
        raise CannotCalibrate(f"{len(copies)} copies; at least {MIN_COPIES} are needed")
    if min(times) <= 0:
        raise CannotCalibrate("a sample has no positive time")
    residuals: dict[str, Residual] = {}
    fitted = device
    if launches:
        fitted, residuals["launch"] = _fit_launches(fitted, launches)
    fitted, residuals["copy"] = _fit_copies(fitted, copies)
    if operations:
        fitted, found = _fit_operations(fitted, operations)
        residuals.update(found)
    fitted, refined = _fit_works(fitted, works)
    residuals.update(refined)
    fitted = _below(_keep_bounds(fitted, min(times)), timed)
    sources = {**device.sources, **_changed(device, fitted, len(times))}
    fitted = check(replace(fitted, sources=MappingProxyType(sources)))
    return Calibration(device=fitted, residuals=MappingProxyType(residuals))


def calibrated_id(device: Device) -> str:
    """What a calibrated device is called: its catalogue id and 8 digits of its digest.

    The numbers of a calibration are part of every plan key through the digest, so a
    calibrated device is another target than its catalogue row, and is named apart.
    """
    return f"{base_of(device.id)}@{device.digest[:8]}"


def restore(base: Device, numbers: Mapping[str, object]) -> Device:
    """The calibrated device whose `Device.numbers` were stored.

    Args:
        base: the catalogue's row; it gives what numbers do not hold.
        numbers: as `Device.numbers` gave them, perhaps through JSON.

    Raises:
        InvalidDevice: a number is missing its pipe, out of its range, or contradicts
            another.
    """
    # Some JSON has no 1.0: a whole number of a field that is none keeps its kind, or
    # the digest would be of another device.
    kinds: dict[str, type] = {name: type(getattr(base, name)) for name in NUMBER_FIELDS}
    changes: dict[str, object] = {
        name: kinds[name](numbers[name]) for name in NUMBER_FIELDS if name in numbers
    }
    for name in RATE_FIELDS:
        known: Mapping[Pipe, float] = getattr(base, name)
        given = numbers.get(name, {})
        assert isinstance(given, dict), f"{name} must be a table"
        found = {pipe: float(given.get(str(pipe), known[pipe])) for pipe in known}
        changes[name] = MappingProxyType(found)
    found_device = check(replace(base, **changes))  # type: ignore[arg-type]
    source = "calibrated on this machine"
    names = [n for n in found_device.numbers if n != "kind"]
    moved = [n for n in names if found_device.numbers[n] != base.numbers[n]]
    sources = {**base.sources, **dict.fromkeys(moved, source)}
    return replace(
        found_device,
        id=calibrated_id(found_device),
        name=f"{base.name}, calibrated",
        sources=MappingProxyType(sources),
    )


def _fit_launches(
    device: Device, samples: Sequence[LaunchSample]
) -> tuple[Device, Residual]:
    starts = [-(-s.blocks // device.multiprocessors) for s in samples]
    columns = np.array([[1.0, count] for count in starts], dtype=np.float64)
    seconds = np.array([s.seconds for s in samples], dtype=np.float64)
    values, residual = robust_fit(columns, seconds)
    return (
        replace(
            device,
            launch_seconds=values[0] or device.launch_seconds,
            block_launch_seconds=values[1],
        ),
        residual,
    )


def _fit_copies(
    device: Device, samples: Sequence[CopySample]
) -> tuple[Device, Residual]:
    """Launch, rates by level, and the last-level cache, where the line fits best."""
    best: tuple[float, Device, Residual] | None = None
    for l2_bytes in _capacities(device, samples):
        trial = replace(device, l2_bytes=l2_bytes)
        fitted, residual, loss = _fit_rates(trial, samples)
        # A hair against ties: an undetermined capacity stays what it was.
        if best is None or loss < best[0] * (1.0 - 1e-6):
            best = (loss, fitted, residual)
    assert best is not None, "the device's own capacity is always tried"
    return best[1], best[2]


def _capacities(device: Device, samples: Sequence[CopySample]) -> list[int]:
    """The device's own, then half-octave steps over the sizes that were copied."""
    most = max(sample.moved_bytes for sample in samples)
    least = device.l1_bytes * (device.multiprocessors if device.keeps_l1 else 1)
    found = [device.l2_bytes]
    step = 2.0 * max(least, 1)
    while step < most:
        found.append(round(step))
        step *= 2**0.5
    return found


def _fit_rates(
    device: Device, samples: Sequence[CopySample]
) -> tuple[Device, Residual, float]:
    rows = [_row(device, sample) for sample in samples]
    columns = np.array(rows, dtype=np.float64)
    seconds = np.array([s.seconds for s in samples], dtype=np.float64)
    starts = np.array(
        [-(-s.blocks // device.multiprocessors) for s in samples], dtype=np.float64
    )
    fixed = starts * device.block_launch_seconds
    if device.kind == "cpu":
        fixed *= 1.0 - device.overlap
    values, residual = robust_fit(columns, seconds, fixed=fixed)
    fitted = _with_rates(device, values)
    errors = (columns @ values + fixed - seconds) / seconds
    return fitted, residual, float(np.abs(errors).mean())


def _row(device: Device, sample: CopySample) -> tuple[float, float, float, float]:
    half = sample.moved_bytes // 2
    read = Access(unique_bytes=half, sector_bytes=half, requested_bytes=half)
    work = Work(
        accesses=(read, replace(read, is_write=True)),
        blocks=sample.blocks,
        block_threads=sample.block_threads,
    )
    moved = traffic(work, device, occupancy(work, device).blocks)
    return 1.0, moved.private_bytes, moved.cache_bytes, moved.dram_bytes


def _with_rates(device: Device, values: Matrix) -> Device:
    """Rates from inverse rates; a level is never slower than the one behind it."""
    old = (
        device.l1_bytes_per_second,
        device.l2_bytes_per_second,
        device.dram_bytes_per_second,
    )
    near, last, dram = (
        1.0 / float(value) if value > 0 else known
        for value, known in zip(values[1:], old, strict=True)
    )
    last = max(last, dram)
    near = max(near, last)
    launch = device.launch_seconds
    if values[0] > 0:
        launch = max(float(values[0]) - device.dram_latency_seconds, 1e-9)
    return replace(
        device,
        launch_seconds=launch,
        l1_bytes_per_second=near,
        l2_bytes_per_second=last,
        dram_bytes_per_second=dram,
    )


def _fit_operations(
    device: Device, samples: Sequence[OperationSample]
) -> tuple[Device, dict[str, Residual]]:
    rates = dict(device.operations_per_second)
    found: dict[str, Residual] = {}
    for pipe in sorted({sample.pipe for sample in samples}):
        mine = [sample for sample in samples if sample.pipe is pipe]
        seen = np.array(
            [
                s.operations / max(s.seconds - device.launch_seconds, s.seconds / 2)
                for s in mine
            ]
        )
        rates[pipe] = float(np.median(seen))
        found[str(pipe)] = residual_of(seen / rates[pipe] - 1.0)
    return replace(device, operations_per_second=MappingProxyType(rates)), found


def _fit_works(
    device: Device, works: Mapping[str, Sequence[WorkSample]]
) -> tuple[Device, Mapping[str, Residual]]:
    """Refine, and put back in order what the search may have put out of it."""
    fitted, residuals = refine(device, works)
    call = fitted.library_launch_seconds + fitted.library_operator_seconds
    floor = min(fitted.library_floor_seconds, FLOOR_MARGIN * call)
    overlap = min(fitted.overlap, max(device.overlap, MOST_OVERLAP))
    return replace(fitted, library_floor_seconds=floor, overlap=overlap), residuals


def _below(device: Device, samples: Sequence[WorkSample]) -> Device:
    """Raise all peaks together until the bound lies below every sample."""
    excess = bound_excess(device, samples) / FLOOR_MARGIN
    if excess <= 1.0:
        return device
    peaks = device.peak_operations_per_second
    return replace(
        device,
        launch_floor_seconds=device.launch_floor_seconds / excess,
        library_floor_seconds=device.library_floor_seconds / excess,
        dram_peak_bytes_per_second=device.dram_peak_bytes_per_second * excess,
        l2_peak_bytes_per_second=device.l2_peak_bytes_per_second * excess,
        l1_peak_bytes_per_second=device.l1_peak_bytes_per_second * excess,
        peak_operations_per_second=MappingProxyType(
            {pipe: rate * excess for pipe, rate in peaks.items()}
        ),
    )


def _keep_bounds(device: Device, shortest_seconds: float) -> Device:
    """Raise peaks and lower floors, so that a bound stays below what was measured."""
    peaks = dict(device.peak_operations_per_second)
    for pipe, rate in device.operations_per_second.items():
        peaks[pipe] = max(peaks[pipe], PEAK_MARGIN * rate)
    floor = min(
        device.launch_floor_seconds,
        FLOOR_MARGIN * shortest_seconds,
        device.launch_seconds,
    )
    dram_peak = _peak(device.dram_peak_bytes_per_second, device.dram_bytes_per_second)
    l2_peak = _peak(device.l2_peak_bytes_per_second, device.l2_bytes_per_second)
    l1_peak = _peak(device.l1_peak_bytes_per_second, device.l1_bytes_per_second)
    each = device.l2_bytes_per_second / device.multiprocessors
    return replace(
        device,
        launch_floor_seconds=floor,
        dram_peak_bytes_per_second=dram_peak,
        l2_peak_bytes_per_second=max(l2_peak, dram_peak),
        l1_peak_bytes_per_second=max(l1_peak, l2_peak, dram_peak),
        multiprocessor_bytes_per_second=max(
            device.multiprocessor_bytes_per_second, each
        ),
        peak_operations_per_second=MappingProxyType(peaks),
    )


def _peak(known: float, reached: float) -> float:
    return max(known, PEAK_MARGIN * reached)


def _changed(old: Device, new: Device, samples: int) -> dict[str, str]:
    source = f"calibrated: {samples} samples"
    names = [name for name in new.numbers if name != "kind"]
    return {name: source for name in names if old.numbers[name] != new.numbers[name]}
