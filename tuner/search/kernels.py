"""What is known of each kernel during a tuning run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cost_model.device import Device
from tuner.assembly import KernelForm, Tuned
from tuner.errors import InternalError
from tuner.kernel.lower import lower
from tuner.kernel.schedule import regime, space
from tuner.kernel.split_space import split_space
from tuner.plan import GENERATED, Choice, Family, Measurement, Options, Schedule
from tuner.pricing import may_split, predict_nest, price, price_call
from tuner.search.experience import shipped
from tuner.search.study import KernelStudy

MARGIN: Final = 0.05
"""A kernel this close to its lower bound is finished: nothing could improve it."""
TRIES: Final = 3
"""Schedules of a kernel that may fail before the kernel is given up."""
ALIKE: Final = 2
"""Schedules of a kernel that may fail by the very same error: all of them add up in the
same order then, and so do the others."""
RETRIES: Final = 5
"""Later runs of a schedule whose every batch of samples was disturbed.

A library call has one schedule only: without a sound run of it, nothing is known of a
plan that rests on it. Each run repeats its samples up to three times by itself.
"""
ABANDON_FACTOR: Final = 1.25
"""A schedule whose first samples are all so much slower than the best is given up."""


@dataclass(kw_only=True)
class KernelState:
    """One distinct kernel: its form, how often plans use it, what it measured.

    Attributes:
        default: the schedule that needs no tuning; it always runs first.
        predicted_seconds: the model's price of the default schedule.
        floor_seconds: no schedule can be faster.
        uses: how many launches of the partition in question are this kernel.
        results: by schedule; disturbed runs too.
        loaded: schedules whose results come from an earlier run.
        make_study: ranks the schedules; called when more than the default is asked
            for, because many kernels only ever run with their default.
    """

    form: KernelForm
    family: Family
    default: Schedule
    predicted_seconds: float
    floor_seconds: float
    make_study: Callable[[], KernelStudy]
    uses: int = 0
    results: dict[Schedule, Measurement] = field(default_factory=dict)
    loaded: set[Schedule] = field(default_factory=set)
    retries: int = 0
    _asked: bool = False
    _study: KernelStudy | None = None

    @property
    def study(self) -> KernelStudy:
        """The search over the kernel's schedules; it knows all results."""
        if self._study is None:
            self._study = self.make_study()
            for schedule, measurement in self.results.items():
                self._tell(schedule, measurement)
        return self._study

    @property
    def name(self) -> str:
        """Identity of the kernel."""
        return self.form.fingerprint

    @property
    def best(self) -> Tuned | None:
        """The fastest schedule that passed undisturbed; None while there is none."""
        passed = [
            (m.seconds, place, s)
            for place, (s, m) in enumerate(self.results.items())
            if not m.failure and not m.contended
        ]
        if not passed:
            return None
        schedule = min(passed, key=lambda entry: entry[:2])[2]
        return Tuned(schedule=schedule, measurement=self.results[schedule])

    @property
    def plain(self) -> Tuned | None:
        """The default schedule's run, disturbed or not; None if there is none."""
        found = self.results.get(self.default)
        if found is None or found.failure:
            return None
        return Tuned(schedule=self.default, measurement=found)

    @property
    def chosen(self) -> Tuned | None:
        """What a plan uses: the best, else the default though it was disturbed."""
        return self.best or self.plain

    @property
    def is_finished(self) -> bool:
        """Whether no further run can help."""
        best = self.best
        near = self.floor_seconds * (1 + MARGIN)
        if best is not None and best.measurement.seconds <= near:
            return True
        return self.study.exhausted

    @property
    def is_hopeless(self) -> bool:
        """Whether every schedule that ran has failed, and enough were tried."""
        own = [m for m in self.results.values() if not (m.failure and m.contended)]
        if not own or not all(m.failure for m in own):
            return False
        enough = len(own) >= TRIES or _most_alike(own) >= ALIKE
        return enough or self.study.exhausted

    @property
    def is_waiting(self) -> bool:
        """Whether it has no sound measurement, and may still get one."""
        if self.best is not None or self.is_hopeless:
            return False
        if self._was_disturbed:
            return self.retries < RETRIES
        return not self.results or not self.study.exhausted

    @property
    def has_failed(self) -> bool:
        """Whether it ran, and no schedule of it has passed."""
        return self.best is None and any(m.failure for m in self.results.values())

    @property
    def is_drowned(self) -> bool:
        """Whether it has no sound measurement, because others disturbed every run."""
        return self.best is None and self._was_disturbed

    @property
    def _was_disturbed(self) -> bool:
        found = self.results.get(self.default)
        return found is not None and found.contended

    @property
    def promise(self) -> float:
        """Seconds of the whole plan that further runs of this kernel could save."""
        best = self.best
        if best is None:
            return math.inf
        spread = best.measurement.seconds - self.floor_seconds
        return self.uses * spread / (1 + len(self.results))

    @property
    def abandon_above_seconds(self) -> float:
        """When a run may be given up."""
        best = self.best
        return math.inf if best is None else best.measurement.seconds * ABANDON_FACTOR

    def next_schedule(self) -> Schedule | None:
        """What to run next: the default until it ran undisturbed, then the study."""
        if not self.results and not self._asked:
            self._asked = True
            return self.default
        if self.best is None and self._was_disturbed:
            self.retries += 1
            return self.default
        return self.study.propose()

    def take(
        self, schedule: Schedule, measurement: Measurement, *, loaded: bool = False
    ) -> None:
        """Remember a result."""
        self.results[schedule] = measurement
        self.loaded.discard(schedule)
        if loaded:
            self.loaded.add(schedule)
        if self._study is not None:
            self._tell(schedule, measurement)

    def _tell(self, schedule: Schedule, measurement: Measurement) -> None:
        unusable = bool(measurement.failure) or measurement.contended
        self.study.tell(schedule, None if unusable else measurement.seconds)


def new_state(
    form: KernelForm,
    choice: Choice,
    device: Device,
    options: Options,
    *,
    seed: int,
    hints: tuple[Schedule, ...] = (),
) -> KernelState:
    """State of a kernel that was never run, its schedules ranked by what is expected.

    Args:
        form: the kernel.
        choice: where it stands in a partition.
        device: for which schedules are legal.
        options: launch mode.
        seed: of the search.
        hints: schedules that were good for kernels like it; tried right after the
            default, if they are legal here.
    """
    if choice.family in GENERATED:
        priced = price(form.graph, choice.family, device, options)
    else:  # as it is measured: with nothing of ours beside it
        priced = price_call(form.graph, device, options, alone=True)
    if priced is None:
        raise InternalError(form.fingerprint, "a chosen kernel cannot be lowered")
    first, first_seconds = priced.schedule, priced.estimate.seconds

    def make_study() -> KernelStudy:
        found = expected_schedules(form, choice.family, device, options)
        expected = {first: first_seconds, **found}
        hinted = [schedule for schedule in hints if schedule in expected]
        ranked = tuple(dict.fromkeys([first, *hinted, *expected]))
        return KernelStudy(ranked, seed=seed, expected=expected, first=1 + len(hinted))

    return KernelState(
        form=form,
        family=choice.family,
        default=first,
        predicted_seconds=first_seconds,
        floor_seconds=priced.floor_seconds,
        make_study=make_study,
    )


def expected_schedules(
    form: KernelForm, family: Family, device: Device, options: Options
) -> dict[Schedule, float]:
    """The schedule space with seconds up to a factor, the fastest first.

    They are what the cost model says, corrected by what other kernels have taught.
    """
    if family not in GENERATED:
        return {}
    nest = lower(form.graph)
    search = split_space if may_split(device, options) else space
    schedules = search(nest, device)
    factors = shipped(device.kind).factors(regime(nest), schedules)
    expected = {
        schedule: factors[schedule]
        * predict_nest(nest, schedule, device, options).estimate.seconds
        for schedule in schedules
    }
    ordered = sorted(
        expected, key=lambda schedule: (expected[schedule], schedule.knobs)
    )
    return {schedule: expected[schedule] for schedule in ordered}


def _most_alike(results: Sequence[Measurement]) -> int:
    """How many results differ from the reference by the very same error."""
    errors = Counter(_error_of(m) for m in results if m.failure == "correctness")
    return max(errors.values(), default=0)


def _error_of(wrong: Measurement) -> object:
    """What tells errors apart: by how much a result differs, to the last bit.

    What is said of it is rounded. It counts alone where nothing was measured: what was
    computed is no number, or the check itself is void.
    """
    measured = (wrong.max_abs_error, wrong.max_rel_error)
    return measured if any(measured) else wrong.message


def failed_check(measurement: Measurement, failure: str, message: str) -> Measurement:
    """A loaded result that did not stand its check."""
    return replace(measurement, seconds=math.inf, failure=failure, message=message)


def tuned_of(states: Mapping[str, KernelState]) -> dict[str, Tuned]:
    """What plans use, by kernel."""
    found = {name: state.chosen for name, state in states.items()}
    return {name: chosen for name, chosen in found.items() if chosen is not None}


def plain_of(states: Mapping[str, KernelState]) -> dict[str, Tuned]:
    """Default schedules with their runs, by kernel."""
    found = {name: state.plain for name, state in states.items()}
    return {name: plain for name, plain in found.items() if plain is not None}
