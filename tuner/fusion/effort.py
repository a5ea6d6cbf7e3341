"""How far a solve may go: counted work, and a clock only where a user sets a limit.

Work is counted in steps, of which a core of 2020 does about a million a second. The
same input takes the same steps on every machine, so where they are spent, and what was
left out by then, does not depend on how fast the machine is or what else it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Final

Clock = Callable[[], float]

STEPS: Final = 20_000_000
"""What one solve may take where no time limit is given."""
LOOK_STEPS: Final = 40
"""What lies between two looks at how much is left."""
PRICE_STEPS: Final = 1_000
"""What it takes to price a kernel, measured."""
PREPARING_SHARE: Final = 0.5
"""Part of the effort after which no more candidates are looked for, and operators that
another strategy would group stay alone."""


class Effort:
    """Counts what a solve does, and says when it has to end.

    Attributes:
        spent: steps so far.
        was_over: whether anyone was told that it has to end.
        was_late: whether it was the clock that said so.
    """

    def __init__(
        self,
        *,
        steps: float = STEPS,
        seconds: float = math.inf,
        clock: Clock = perf_counter,
    ) -> None:
        """Begin.

        Args:
            steps: most work; infinite where only a clock counts.
            seconds: most time.
            clock: a monotonic clock, in seconds; not looked at without a limit.
        """
        self._steps, self._seconds, self._clock = steps, seconds, clock
        self._is_timed = math.isfinite(seconds)
        self._started = clock() if self._is_timed else 0.0
        self.spent = 0.0
        self.was_over = self.was_late = False

    @classmethod
    def within(
        cls,
        seconds: float | None,
        clock: Clock = perf_counter,
        *,
        steps: float | None = None,
    ) -> Effort:
        """A user's time limit, whatever the work; without one, counted work alone.

        Whoever names both gets both.
        """
        if seconds is None:
            return cls(steps=STEPS if steps is None else steps)
        most = math.inf if steps is None else steps
        return cls(steps=most, seconds=seconds, clock=clock)

    @classmethod
    def unlimited(cls) -> Effort:
        """Until the end."""
        return cls(steps=math.inf)

    def spend(self, steps: float) -> None:
        """Count work that was done."""
        self.spent += steps

    @property
    def left(self) -> float:
        """Steps that may yet be taken."""
        return self._steps - self.spent

    @property
    def seconds_left(self) -> float:
        """Seconds that it may yet take; infinite without a time limit."""
        if not self._is_timed:
            return math.inf
        return self._started + self._seconds - self._clock()

    @property
    def is_over(self) -> bool:
        """Whether to end now; each look counts as work."""
        self.spent += LOOK_STEPS
        return self._told(self.left <= 0, self.seconds_left <= 0)

    @property
    def is_half_over(self) -> bool:
        """Whether what comes before the solver must end; each look counts as work."""
        self.spent += LOOK_STEPS
        is_late = False
        if self._is_timed:
            is_late = self.seconds_left < (1 - PREPARING_SHARE) * self._seconds
        return self._told(self.spent > PREPARING_SHARE * self._steps, is_late)

    def _told(self, is_spent: bool, is_late: bool) -> bool:
        self.was_late = self.was_late or (is_late and not is_spent)
        self.was_over = self.was_over or is_spent or is_late
        return is_spent or is_late

    def keep(self, share: float) -> None:
        """Leave a share of it for what comes now, however late it is."""
        if math.isfinite(self._steps):
            self._steps += max(0.0, share * self._steps - self.left)
        if self._is_timed:
            left = share * self._seconds - self.seconds_left
            self._seconds += max(0.0, left)
