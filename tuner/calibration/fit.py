"""Calibration of a device: time every micro-benchmark, and fit its numbers.

What was disturbed, by other processes or by whatever made its own samples differ, is
timed again a few times. What stays disturbed is left out of the fit; if that is too
much, there is no calibration: numbers of a busy machine are worse than the catalogue's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cost_model.calibration import (
    MIN_COPIES,
    Calibration,
    CannotCalibrate,
    CopySample,
    LaunchSample,
    calibrate,
)
from cost_model.refining import WorkSample
from tuner.calibration.micro import COPY, LAUNCH, Micro, micro_benchmarks
from tuner.calibration.timing import Kernel, Timer, generated, library, time_kernel
from tuner.errors import DeviceUnavailable, TunerError
from tuner.runtime.library import is_available

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cost_model.device import Device
    from tuner.plan import Measurement

TIME_LIMIT_SECONDS: Final = 60.0
_LEAST_BUDGET_SECONDS: Final = 0.02
_MOST_BUDGET_SECONDS: Final = 0.4
_TIMED_SHARE: Final = 0.5
"""The rest of the time goes to compilers, inputs and warm-up."""
DISTURBED_WIDTH: Final = 0.5
"""A median that is known to a quarter either way is none to fit to; on a quiet machine
the 95 % intervals of micro-benchmarks are a few per cent wide."""
AGAIN: Final = 3
"""How often what was disturbed is timed again."""
MOST_DISTURBED: Final = 0.25
"""Share of the micro-benchmarks that may be left out of a fit."""
ALONE: Final = 10.0
"""Percentile of a kernel's samples that is taken for its time alone on the machine:
others only ever make it longer (of 32,768 points through 64 multiplications and
additions 40 us in every third sample, 66 us in the median, while a neighbour ran)."""


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
        """Micro-benchmarks that other processes disturbed to the end."""
        return sum(each.measured.contended for each in self.timed)

    @property
    def disturbed(self) -> tuple[str, ...]:
        """Micro-benchmarks that stayed disturbed, and are not fitted to."""
        return tuple(_label(t.micro) for t in self.timed if is_disturbed(t.measured))


def is_disturbed(measured: Measurement) -> bool:
    """Whether others took time from the samples, or the samples do not agree."""
    return measured.contended or _width(measured) > DISTURBED_WIDTH


def _width(measured: Measurement) -> float:
    """The 95 % interval of a median, as a share of it."""
    return (measured.high_seconds - measured.low_seconds) / measured.seconds


def calibrate_device(
    device: Device,
    timer: Timer,
    clock: Callable[[], float],
    *,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
    accept_disturbed: bool = False,
) -> Fitted:
    """Time all micro-benchmarks within a limit and fit the device.

    Args:
        device: where to start from: the catalogue's row.
        timer: the runner of that device.
        clock: monotonic seconds.
        time_limit_seconds: when it is reached, what is left is skipped, and nothing
            more is timed again.
        accept_disturbed: fit to what was disturbed too, however much it is.

    Raises:
        DeviceUnavailable: too few ran, or stayed undisturbed, to fit anything.
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
    for _ in range(AGAIN):
        timed = _again(timed, device, timer, lambda: end - clock())
    if not accept_disturbed:
        _refuse_disturbed(device, timed)
    return Fitted(
        calibration=_fit(device, timed, accept_disturbed=accept_disturbed),
        timed=tuple(timed),
        skipped=skipped,
    )


def _again(
    timed: Sequence[TimedMicro],
    device: Device,
    timer: Timer,
    left: Callable[[], float],
) -> list[TimedMicro]:
    """Time what was disturbed once more, while there is time; the quieter one stays."""
    found: list[TimedMicro] = []
    for before in timed:
        if not is_disturbed(before.measured) or left() <= 0:
            found.append(before)
            continue
        try:
            now = _time(before.micro, device, timer, _MOST_BUDGET_SECONDS)
        except TunerError:  # it ran before: what there is stays
            now = before
        found.append(min(before, now, key=_disturbance))
    return found


def _disturbance(timed: TimedMicro) -> tuple[bool, float]:
    return timed.measured.contended, _width(timed.measured)


def _refuse_disturbed(device: Device, timed: Sequence[TimedMicro]) -> None:
    """Say what was disturbed where a fit would rest on too little.

    Raises:
        DeviceUnavailable: with the groups, and what to do.
    """
    loud = [each for each in timed if is_disturbed(each.measured)]
    left = _by_group(each for each in timed if not is_disturbed(each.measured))
    of = _by_group(timed)
    lacking = of.get(LAUNCH, 0) > 0 == left.get(LAUNCH, 0)
    lacking |= of.get(COPY, 0) >= MIN_COPIES > left.get(COPY, 0)
    if not lacking and len(loud) <= MOST_DISTURBED * len(timed):
        return
    groups = ", ".join(
        f"{name} {count} of {of[name]}" for name, count in _by_group(loud).items()
    )
    raise DeviceUnavailable(
        device.id,
        f"{len(loud)} of {len(timed)} micro-benchmarks were disturbed, also when they"
        f" were timed again ({groups}): other work takes processor or memory",
        hint="stop what else runs on this machine and calibrate again; until then an"
        " earlier calibration, or the catalogue's row, stays in force;"
        " --accept-disturbed fits all the same",
    )


def _by_group(timed: Iterable[TimedMicro]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in timed:
        found[each.micro.group] = found.get(each.micro.group, 0) + 1
    return found


def fit_again(
    device: Device, measured: Mapping[tuple[str, str], Measurement]
) -> Fitted:
    """Fit a device to micro-benchmarks that were timed earlier.

    Args:
        device: where to start from: the catalogue's row.
        measured: by group and name; those that are no longer asked are left out.

    Raises:
        DeviceUnavailable: too few are left to fit anything.
    """
    timed = [
        TimedMicro(
            micro=micro,
            kernel=kernel_of(micro, device),
            measured=measured[micro.group, micro.name],
        )
        for micro in micro_benchmarks(device)
        if (micro.group, micro.name) in measured
    ]
    loud = sum(is_disturbed(each.measured) for each in timed)
    fitted = _fit(
        device, timed, accept_disturbed=loud > MOST_DISTURBED * max(len(timed), 1)
    )
    return Fitted(calibration=fitted, timed=tuple(timed), skipped={})


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
    kernel = kernel_of(micro, device)
    measured = time_kernel(kernel, timer, budget_seconds=budget)
    return TimedMicro(micro=micro, kernel=kernel, measured=measured)


def kernel_of(micro: Micro, device: Device) -> Kernel:
    """What is timed for a micro-benchmark, and what was counted of it."""
    if micro.in_library:
        company = micro.company
        beside = None if company is None else generated(company, device).source
        given = None if company is None or beside is None else (company, beside)
        return library(micro.graph, device, company=given)
    return generated(micro.graph, device, micro.schedule)


def _fit(
    device: Device, timed: Sequence[TimedMicro], *, accept_disturbed: bool
) -> Calibration:
    # The order in which numbers are fitted, whatever the order of timing.
    groups: dict[str, list[WorkSample]] = {
        micro.group: [] for micro in micro_benchmarks(device)
    }
    for each in timed:
        if is_disturbed(each.measured) and not accept_disturbed:
            continue
        sample = WorkSample(work=each.kernel.work, seconds=_seconds(each))
        groups[each.micro.group].append(sample)
    launches, copies = groups.pop(LAUNCH, []), groups.pop(COPY, [])
    try:
        return calibrate(
            device,
            copies=[_copy_of(sample) for sample in copies],
            launches=[
                LaunchSample(blocks=s.work.blocks, seconds=s.seconds) for s in launches
            ],
            works=groups,
        )
    except CannotCalibrate as error:
        raise DeviceUnavailable(
            device.id,
            f"nothing to fit to: {error}",
            hint="see `fuseplan doctor`, and give it more time",
        ) from error


def _seconds(timed: TimedMicro) -> float:
    """What is fitted to.

    Launches take longer when the threads of the runtime sleep than while they still
    spin, and a program meets both: launches and copies count by their medians, and so
    does what takes turns with another kernel.
    """
    measured, micro = timed.measured, timed.micro
    meets_both = micro.group in (LAUNCH, COPY) or micro.company is not None
    if meets_both or not measured.samples:
        return measured.seconds
    alone = float(np.percentile(measured.samples, ALONE))
    return min(alone, measured.seconds)


def _copy_of(sample: WorkSample) -> CopySample:
    work = sample.work
    return CopySample(
        moved_bytes=work.read_bytes + work.written_bytes,
        seconds=sample.seconds,
        blocks=work.blocks,
        block_threads=work.block_threads,
    )
