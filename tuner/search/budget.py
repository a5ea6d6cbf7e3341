"""How much may be spent on a tuning run, and what was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TRIAL_SECONDS: Final = 0.3
"""What one kernel run costs, compiling and verifying included, until some were seen."""
_LEAST_TRIAL_SECONDS: Final = 0.02
WHOLE_SECONDS: Final = 10.0
"""What is kept back for running whole plans, at least; of a small budget less."""
_WHOLE_SHARE: Final = 0.15
_MOST_WHOLE_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a tuning run; whichever is reached first ends it.

    Attributes:
        seconds: device time for measurements, compiling and verifying included, and
            time for solving with measured costs.
        trials: kernel runs (one kernel with one schedule).
        trials_per_kernel: kernel runs of one kernel.
    """

    seconds: float = 60.0
    trials: int = 400
    trials_per_kernel: int = 12


@dataclass(kw_only=True)
class Ledger:
    """What a run has spent, by the costs that its results recorded.

    Attributes:
        seconds: of everything.
        kernel_seconds: of kernel runs alone.
        trials: kernel runs.
    """

    budget: Budget
    seconds: float = 0.0
    kernel_seconds: float = 0.0
    trials: int = 0

    @property
    def trial_seconds(self) -> float:
        """What one more kernel run will cost, about."""
        if not self.trials:
            return TRIAL_SECONDS
        return max(_LEAST_TRIAL_SECONDS, self.kernel_seconds / self.trials)

    @property
    def seconds_left(self) -> float:
        """What remains of the budget."""
        return max(0.0, self.budget.seconds - self.seconds)

    @property
    def reserve_seconds(self) -> float:
        """Kept back for running whole plans."""
        wanted = max(WHOLE_SECONDS, _WHOLE_SHARE * self.budget.seconds)
        return min(wanted, _MOST_WHOLE_SHARE * self.budget.seconds)

    def allows_trials(self, count: int) -> bool:
        """Whether so many more kernel runs are within the budget."""
        return self.trials + count <= self.budget.trials

    def allows_last(self, count: int) -> bool:
        """Whether so many kernel runs fit in what is left, whole plans having run."""
        takes = count * self.trial_seconds
        return self.allows_trials(count) and takes <= self.seconds_left

    def allows(self, waiting: int, share: float) -> bool:
        """Whether another kernel run fits beside those waiting.

        Args:
            waiting: kernel runs that are planned already.
            share: part of the seconds that may be spent; none of the reserve.
        """
        if not self.allows_trials(waiting + 1):
            return False
        ahead = waiting * self.trial_seconds
        most = (self.budget.seconds - self.reserve_seconds) * share
        return self.seconds + ahead < most
