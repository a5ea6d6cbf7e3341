"""What an accuracy run found: times, each beside what the model says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost_model.device import Device
    from tuner.plan import Measurement, Schedule

TRIES: Final = 3
"""How often an item is measured at most, because others disturbed it."""
WIDE: Final = 0.25
"""An interval of so much of its median says little of what it is the median of."""
SHORTLIST: Final = 5
"""Schedules that a careful user would measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is measured.

    Attributes:
        seconds: most that the whole may take.
        seed: of the order, and of the schedules that are drawn.
        schedules: of each kernel, the default among them.
        kernels, pairs: most that are taken; None takes all.
        sample_seconds: of timed samples, for each kernel and schedule.
        attempts: how often samples that others disturbed are taken.
    """

    seconds: float = 600.0
    seed: int = 0
    schedules: int = 10
    kernels: int | None = None
    pairs: int | None = None
    sample_seconds: float = 0.1
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One kernel under one schedule.

    Attributes:
        moved_bytes: distinct bytes read and written.
        predicted_seconds: what the cost model says.
        bound_seconds: what it says nothing can beat.
    """

    name: str
    shape: tuple[int, ...]
    family: str
    schedule: Schedule
    moved_bytes: int
    predicted_seconds: float
    bound_seconds: float
    measured: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What a choice by the model loses against the fastest schedule that was measured.

    The two were measured again by turns; a loss inside the intervals counts as none.
    """

    name: str
    shape: tuple[int, ...]
    shortlist: int
    chosen: Measurement
    winner: Measurement

    @property
    def share(self) -> float:
        """0.05 is 5 % slower."""
        if self.chosen.low_seconds <= self.winner.high_seconds:
            return 0.0
        return self.chosen.seconds / self.winner.seconds - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A graph fused and apart: predicted and measured.

    Attributes:
        fused_bytes, apart_bytes: distinct bytes of all its kernels.
    """

    name: str
    family: str
    fused_bytes: int
    apart_bytes: int
    fused_predicted_seconds: float
    apart_predicted_seconds: float
    fused: Measurement
    apart: Measurement

    @property
    def is_decided(self) -> bool:
        """Whether the measured intervals lie apart."""
        return (
            self.fused.high_seconds < self.apart.low_seconds
            or self.apart.high_seconds < self.fused.low_seconds
        )

    @property
    def is_right(self) -> bool:
        """Whether the model prefers what is faster."""
        said = self.fused_predicted_seconds < self.apart_predicted_seconds
        return said == (self.fused.seconds < self.apart.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one kernel, or one pair, was found to take.

    Attributes:
        failures: trial -> why it has no time.
        tries: how often it was measured.
    """

    trials: tuple[Trial, ...] = ()
    regrets: tuple[Regret, ...] = ()
    decisions: tuple[Decision, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    tries: int = 1

    @property
    def measured(self) -> tuple[Measurement, ...]:
        """All of its measurements."""
        return (
            *(trial.measured for trial in self.trials),
            *(side for r in self.regrets for side in (r.chosen, r.winner)),
            *(side for d in self.decisions for side in (d.fused, d.apart)),
        )

    @property
    def contended(self) -> int:
        """Measurements that other processes disturbed."""
        return sum(each.contended for each in self.measured)

    @property
    def wide(self) -> int:
        """Measurements whose samples disagree."""
        return sum(width(each) > WIDE for each in self.measured)

    @property
    def is_settled(self) -> bool:
        """Whether measuring it again promises nothing."""
        return not (self.contended or self.wide) or self.tries >= TRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Everything that was measured.

    Attributes:
        found: by label of the kernel or pair.
        asked: how many kernels and pairs there are to measure.
        seconds: that measuring took, in all runs.
    """

    device: Device
    limits: Limits
    found: Mapping[str, Found]
    asked: int
    seconds: float

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Kernels under their schedules."""
        return tuple(one for each in self.found.values() for one in each.trials)

    @property
    def regrets(self) -> tuple[Regret, ...]:
        """What choices by the model lose."""
        return tuple(one for each in self.found.values() for one in each.regrets)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Graphs fused and apart."""
        return tuple(one for each in self.found.values() for one in each.decisions)

    @property
    def failures(self) -> tuple[tuple[str, str], ...]:
        """Trials without a time, with the reason."""
        return tuple(one for each in self.found.values() for one in each.failures)

    @property
    def is_complete(self) -> bool:
        """Whether everything has been measured, as quietly as it could be."""
        settled = sum(each.is_settled for each in self.found.values())
        return settled >= self.asked


def width(measured: Measurement) -> float:
    """The 95 % interval of a median, as a share of it."""
    return (measured.high_seconds - measured.low_seconds) / measured.seconds
