"""Calibration of a device: time every micro-benchmark, and fit its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cost_model.calibration import Calibration, CopySample, LaunchSample, calibrate
from cost_model.refining import WorkSample
from tuner.calibration.micro import COPY, LAUNCH, Micro, micro_benchmarks
from tuner.calibration.timing import Kernel, Timer, generated, library, time_kernel
from tuner.errors import DeviceUnavailable, TunerError
from tuner.runtime.library import is_available

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cost_model.device import Device
    from tuner.plan import Measurement

TIME_LIMIT_SECONDS: Final = 60.0
_LEAST_BUDGET_SECONDS: Final = 0.02
_MOST_BUDGET_SECONDS: Final = 0.4
_TIMED_SHARE: Final = 0.5
"""The rest of the time goes to compilers, inputs and warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMicro:
    """A micro-benchmark with its counted work and its samples."""

    micro: Micro
    kernel: Kernel
    measured: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A calibrated device and everything that it rests on.

    Attributes:
        skipped: names of micro-benchmarks that did not run, with the reason.
    """

    calibration: Calibration
    timed: tuple[TimedMicro, ...]
    skipped: Mapping[str, str]

    @property
    def contended(self) -> int:
        """Micro-benchmarks that other processes disturbed."""
        return sum(each.measured.contended for each in self.timed)


def calibrate_device(
    device: Device,
    timer: Timer,
    clock: Callable[[], float],
    *,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
) -> Fitted:
    """Time all micro-benchmarks within a limit and fit the device.

    Args:
        device: where to start from: the catalogue's row.
        timer: the runner of that device.
        clock: monotonic seconds.
        time_limit_seconds: when it is reached, what is left is skipped.

    Raises:
        DeviceUnavailable: too few ran to fit anything.
    """
    asked = _by_turns(micro_benchmarks(device))
    end = clock() + time_limit_seconds
    timed: list[TimedMicro] = []
    skipped: dict[str, str] = {}
    for index, micro in enumerate(asked):
        left = end - clock()
        if left <= 0:
            skipped[_label(micro)] = "no time left"
            continue
        budget = _TIMED_SHARE * left / (len(asked) - index)
        budget = min(max(budget, _LEAST_BUDGET_SECONDS), _MOST_BUDGET_SECONDS)
        try:
            timed.append(_time(micro, device, timer, budget))
        except TunerError as error:
            skipped[_label(micro)] = error.problem
    return Fitted(calibration=_fit(device, timed), timed=tuple(timed), skipped=skipped)


def fit_again(
    device: Device, measured: Mapping[tuple[str, str], Measurement]
) -> Fitted:
    """Fit a device to micro-benchmarks that were timed earlier.

    Args:
        device: where to start from: the catalogue's row.
        measured: by group and name; those that are no longer asked are left out.

    Raises:
        CannotCalibrate: too few are left to fit anything.
    """
    timed = [
        TimedMicro(
            micro=micro,
            kernel=_kernel_of(micro, device),
            measured=measured[micro.group, micro.name],
        )
        for micro in micro_benchmarks(device)
        if (micro.group, micro.name) in measured
    ]
    return Fitted(calibration=_fit(device, timed), timed=tuple(timed), skipped={})


def _by_turns(asked: Sequence[Micro]) -> tuple[Micro, ...]:
    """Some of every group first, so that a short run leaves no group out."""
    sizes: dict[str, int] = {}
    places: list[int] = []
    for micro in asked:
        places.append(sizes.get(micro.group, 0))
        sizes[micro.group] = places[-1] + 1
    share = [
        place / sizes[micro.group] for place, micro in zip(places, asked, strict=True)
    ]
    order = sorted(range(len(asked)), key=lambda index: share[index])
    return tuple(asked[index] for index in order)


def _label(micro: Micro) -> str:
    return f"{micro.group}: {micro.name}"


def _time(micro: Micro, device: Device, timer: Timer, budget: float) -> TimedMicro:
    if micro.in_library and not is_available():
        raise DeviceUnavailable("library", "ONNX Runtime is not installed")
    kernel = _kernel_of(micro, device)
    measured = time_kernel(kernel, timer, budget_seconds=budget)
    return TimedMicro(micro=micro, kernel=kernel, measured=measured)


def _kernel_of(micro: Micro, device: Device) -> Kernel:
    if micro.in_library:
        return library(micro.graph, device)
    return generated(micro.graph, device, micro.schedule)


def _fit(device: Device, timed: Sequence[TimedMicro]) -> Calibration:
    # The order in which numbers are fitted, whatever the order of timing.
    groups: dict[str, list[WorkSample]] = {
        micro.group: [] for micro in micro_benchmarks(device)
    }
    for each in timed:
        sample = WorkSample(work=each.kernel.work, seconds=each.measured.seconds)
        groups[each.micro.group].append(sample)
    launches, copies = groups.pop(LAUNCH, []), groups.pop(COPY, [])
    return calibrate(
        device,
        copies=[
            CopySample(
                moved_bytes=s.work.read_bytes + s.work.written_bytes,
                seconds=s.seconds,
                blocks=s.work.blocks,
                block_threads=s.work.block_threads,
            )
            for s in copies
        ],
        launches=[
            LaunchSample(blocks=s.work.blocks, seconds=s.seconds) for s in launches
        ],
        works=groups,
    )
