"""What is known of each kernel during a tuning run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cost_model.device import Device
from tuner.assembly import KernelForm, Tuned
from tuner.errors import InternalError
from tuner.kernel.lower import lower
from tuner.kernel.schedule import space
from tuner.plan import GENERATED, Choice, Family, Measurement, Options, Schedule
from tuner.pricing import predict_nest, price
from tuner.search.study import KernelStudy

MARGIN = 0.05
"""A kernel this close to its lower bound is finished: nothing could improve it."""

TRIES = 3
"""Schedules of a kernel that may fail before the kernel is given up."""


@dataclass(kw_only=True)
class KernelState:
    """One distinct kernel: its form, how often plans use it, what it measured.

    Attributes:
        uses: how many launches of the current partition are this kernel.
        predicted_seconds: the model's price of the default schedule.
        floor_seconds: no schedule can be faster.
    """

    form: KernelForm
    family: Family
    predicted_seconds: float
    floor_seconds: float
    study: KernelStudy
    uses: int = 0
    results: dict[Schedule, Measurement] = field(default_factory=dict)

    @property
    def best(self) -> Tuned | None:
        """The fastest schedule that passed; None while there is none."""
        passed = [(m.seconds, s) for s, m in self.results.items() if not m.failure]
        if not passed:
            return None
        seconds = min(value for value, _ in passed)
        schedule = next(s for value, s in passed if value == seconds)
        return Tuned(schedule=schedule, measurement=self.results[schedule])

    @property
    def is_finished(self) -> bool:
        """Whether no further run can help."""
        best = self.best
        if self.study.exhausted:
            return True
        near = self.floor_seconds * (1 + MARGIN)
        return best is not None and best.measurement.seconds <= near

    @property
    def is_hopeless(self) -> bool:
        """Whether every schedule that ran has failed, and enough were tried."""
        failed = bool(self.results) and self.best is None
        return failed and (self.study.exhausted or len(self.results) >= TRIES)

    @property
    def promise(self) -> float:
        """Seconds of the whole plan that further runs of this kernel could save."""
        best = self.best
        if best is None:
            return math.inf
        spread = best.measurement.seconds - self.floor_seconds
        return self.uses * spread / (1 + len(self.results))


def new_state(
    form: KernelForm, choice: Choice, device: Device, options: Options, seed: int
) -> KernelState:
    """State of a kernel that was never run, its schedules ranked by the model."""
    priced = price(form.graph, choice.family, device, options)
    if priced is None:
        raise InternalError(form.fingerprint, "a chosen kernel cannot be lowered")
    ranked = ranked_schedules(form, choice.family, priced.schedule, device, options)
    return KernelState(
        form=form,
        family=choice.family,
        predicted_seconds=priced.estimate.seconds,
        floor_seconds=priced.floor_seconds,
        study=KernelStudy(ranked, seed=seed),
    )


def ranked_schedules(
    form: KernelForm,
    family: Family,
    default: Schedule,
    device: Device,
    options: Options,
) -> tuple[Schedule, ...]:
    """The schedule space, the default first, then by predicted time."""
    if family not in GENERATED:
        return (default,)
    nest = lower(form.graph)
    timed = {
        schedule: predict_nest(nest, schedule, device, options).estimate.seconds
        for schedule in space(nest, device)
    }
    ordered = sorted(timed, key=lambda schedule: (timed[schedule], schedule.knobs))
    return tuple(dict.fromkeys([default, *ordered]))
