"""The search for one kernel's schedule: ask and tell, without repeats.

The schedules that are expected to be best come first. Then the size of the space
decides: a small one is run through in that order, a middling one is searched by a
Gaussian process whose prior is the expectation (`tuner.search.guided`), a large one by
Optuna's TPE. Whoever chooses, the choice is enqueued in one Optuna study, asked and
told. A schedule is never proposed twice, and never one outside the space (every
schedule of the space is legal by construction). The only module that imports Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import optuna

from tuner.plan import Schedule
from tuner.search.guided import GuidedSampler

_ASKS: Final = 16
"""Proposals that Optuna may waste on known schedules before the ranking decides."""
SMALL: Final = 12
"""Spaces up to this size are run through in the order of their ranks."""
MIDDLING: Final = 4096
"""Spaces up to this size are scored whole at every proposal."""

Sampler = Literal["ranked", "guided", "tpe"]


def sampler_for(size: int) -> Sampler:
    """How a space of this size is searched after the first trials."""
    if size <= SMALL:
        return "ranked"
    return "guided" if size <= MIDDLING else "tpe"


class KernelStudy:
    """Proposes schedules of one kernel, best guess first, each at most once.

    Args:
        ranked: the whole space, what is expected to be best first.
        seed: of Optuna's sampler; equal seeds and answers give equal proposals.
        expected: seconds by schedule, up to a factor; without them the ranks count.
        first: how many at the head of `ranked` are tried in any case.
        sampler: what follows; by default the size of the space decides.
    """

    def __init__(
        self,
        ranked: Sequence[Schedule],
        *,
        seed: int,
        expected: Mapping[Schedule, float] | None = None,
        first: int = 1,
        sampler: Sampler | None = None,
    ) -> None:
        if not ranked:
            raise ValueError("a study needs at least one schedule")
        self._ranked = tuple(ranked)
        self._legal = frozenset(ranked)
        self._distributions = _distributions(self._ranked)
        self._startup = first + 1
        self._seed = seed
        self._sampler: Sampler = sampler or sampler_for(len(ranked))
        self._expected = expected or {}
        self._guide: GuidedSampler | None = None
        self._study: optuna.Study | None = None
        self._trials: dict[Schedule, optuna.trial.Trial] = {}
        self._proposed: dict[Schedule, None] = {}
        self._told: dict[Schedule, float | None] = {}

    @property
    def space(self) -> tuple[Schedule, ...]:
        """Every schedule, what is expected to be best first."""
        return self._ranked

    @property
    def space_size(self) -> int:
        """How many schedules there are."""
        return len(self._ranked)

    @property
    def told(self) -> Mapping[Schedule, float | None]:
        """Seconds by schedule; None where the run failed."""
        return self._told

    @property
    def exhausted(self) -> bool:
        """Whether every schedule was proposed."""
        return len(self._proposed) >= len(self._ranked)

    def propose(self) -> Schedule | None:
        """The next schedule to run; None when the space is exhausted."""
        if self.exhausted:
            return None
        schedule = self._next()
        self._proposed[schedule] = None
        return schedule

    def tell(self, schedule: Schedule, seconds: float | None) -> None:
        """Report a run; None says that it failed.

        A result of a schedule outside the space is remembered, and no more.
        """
        self._told[schedule] = seconds
        if schedule not in self._legal:
            return
        self._proposed[schedule] = None
        if self._study is not None:
            self._tell_optuna(schedule, seconds)

    def _next(self) -> Schedule:
        is_starting = len(self._proposed) < self._startup
        if is_starting or self._sampler == "ranked":
            return self._enqueued(self._next_ranked())
        if self._sampler == "guided":
            guide = self._ready_guide()
            return self._enqueued(guide.propose(self._told, self._proposed))
        return self._sampled()

    def _next_ranked(self) -> Schedule:
        return next(s for s in self._ranked if s not in self._proposed)

    def _ready_guide(self) -> GuidedSampler:
        if self._guide is None:
            places = {s: 1.0 + 0.01 * n for n, s in enumerate(self._ranked)}
            self._guide = GuidedSampler(self._ranked, {**places, **self._expected})
        return self._guide

    def _enqueued(self, schedule: Schedule) -> Schedule:
        """A schedule that was chosen here, as the study's next trial."""
        study = self._ready_study()
        study.enqueue_trial(dict(schedule.as_dict))
        self._trials[schedule] = study.ask(fixed_distributions=self._distributions)
        return schedule

    def _sampled(self) -> Schedule:
        """A schedule that Optuna's sampler chooses."""
        study = self._ready_study()
        for _ in range(_ASKS):
            trial = study.ask(fixed_distributions=self._distributions)
            schedule = Schedule.of(**trial.params)
            if schedule in self._legal and schedule not in self._proposed:
                self._trials[schedule] = trial
                return schedule
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return self._enqueued(self._next_ranked())

    def _ready_study(self) -> optuna.Study:
        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            sampler = optuna.samplers.TPESampler(
                seed=self._seed, n_startup_trials=self._startup, multivariate=False
            )
            self._study = optuna.create_study(direction="minimize", sampler=sampler)
            for schedule, seconds in self._told.items():
                if schedule in self._legal:
                    self._tell_optuna(schedule, seconds)
        return self._study

    def _tell_optuna(self, schedule: Schedule, seconds: float | None) -> None:
        study = self._ready_study()
        trial = self._trials.pop(schedule, None)
        if trial is None:
            frozen = optuna.trial.create_trial(
                params=schedule.as_dict,
                distributions=self._distributions,
                value=seconds,
                state=_state(seconds),
            )
            study.add_trial(frozen)
        elif seconds is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, seconds)


def default_tpe(
    space: Sequence[Schedule],
    seconds: Mapping[Schedule, float],
    *,
    trials: int,
    seed: int,
) -> Iterator[Schedule]:
    """Optuna's TPE as it is without us: no first trials, nothing kept from repeating.

    Combinations of knobs outside the space are told as failures and cost nothing.

    Args:
        space: legal schedules.
        seconds: of each; infinite where it failed.
        trials: how many to yield.
        seed: of the sampler.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="minimize", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    distributions = _distributions(space)
    legal, done = frozenset(space), 0
    for _ in range(trials * _ASKS):
        if done >= trials:
            return
        trial = study.ask(fixed_distributions=distributions)
        schedule = Schedule.of(**trial.params)
        value = seconds[schedule] if schedule in legal else math.inf
        if math.isfinite(value):
            study.tell(trial, value)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        if schedule in legal:
            done += 1
            yield schedule


def _distributions(
    schedules: Sequence[Schedule],
) -> dict[str, optuna.distributions.BaseDistribution]:
    values: dict[str, set[int]] = {}
    for schedule in schedules:
        for knob, value in schedule.knobs:
            values.setdefault(knob, set()).add(value)
    return {
        knob: optuna.distributions.CategoricalDistribution(sorted(choices))
        for knob, choices in sorted(values.items())
    }


def _state(seconds: float | None) -> optuna.trial.TrialState:
    failed = seconds is None
    return optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
