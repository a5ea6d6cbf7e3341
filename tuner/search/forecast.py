"""What a tuning run would measure, and how long it would take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tuner.search.budget import WHOLE_SECONDS, Budget
from tuner.search.kernels import KernelState
from tuner.search.records import Json

TRIAL_SECONDS: Final = 0.5
"""One kernel run with compiling and verifying (measured: 0.2 to 0.8 s)."""


def forecast(
    states: Iterable[KernelState],
    budget: Budget,
    is_known: Callable[[KernelState], bool],
) -> Json:
    """What the first partition's kernels would take.

    Later partitions bring kernels of their own; the budget bounds them all.

    Args:
        states: distinct kernels of the partition.
        budget: of the run.
        is_known: whether a kernel's first run costs nothing.
    """
    rows = [_row(state, budget, known=is_known(state)) for state in states]
    rows.sort(key=lambda row: -row["uses"] * row["predicted_seconds"])
    wanted = sum(row["trials"] for row in rows)
    trials = min(wanted, budget.trials)
    return {
        "kernels": rows,
        "distinct_kernels": len(rows),
        "known_kernels": sum(row["known"] for row in rows),
        "trials": trials,
        "seconds": min(budget.seconds, trials * TRIAL_SECONDS + WHOLE_SECONDS),
        "budget_seconds": budget.seconds,
        "budget_trials": budget.trials,
    }


def _row(state: KernelState, budget: Budget, *, known: bool) -> Json:
    size = state.study.space_size
    return {
        "kernel": state.name,
        "family": str(state.family),
        "uses": state.uses,
        "schedules": size,
        "trials": min(size, budget.trials_per_kernel) - known,
        "known": known,
        "predicted_seconds": state.predicted_seconds,
        "floor_seconds": state.floor_seconds,
    }
