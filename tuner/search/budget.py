"""How much may be spent on a tuning run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a tuning run; whichever is reached first ends it.

    Attributes:
        seconds: device time for measurements, compiling and verifying included.
        trials: kernel runs (one kernel with one schedule).
        trials_per_kernel: kernel runs of one kernel.
    """

    seconds: float = 60.0
    trials: int = 400
    trials_per_kernel: int = 12
