"""What a tuning run would measure, and how long it would take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from tuner.search.budget import Budget, Ledger
from tuner.search.kernels import KernelState
from tuner.search.records import Json

TRIAL_SECONDS: Final = 0.5
"""One kernel run with compiling and verifying (measured: 0.2 to 0.8 s)."""
LEAST_RUNS: Final = 5
"""Earlier runs below which their median says too little."""


def forecast(
    states: Iterable[KernelState],
    budget: Budget,
    known_runs: Callable[[KernelState], int],
    costs: Sequence[float] = (),
) -> Json:
    """What the first partition's kernels would take.

    Later partitions bring kernels of their own; the budget bounds them all.

    Args:
        states: distinct kernels of the partition.
        budget: of the run.
        known_runs: how many schedules of a kernel earlier runs have measured.
        costs: seconds that earlier kernel runs took on this device, compiling and
            verifying included.
    """
    rows = [_row(state, budget, known_runs(state)) for state in states]
    rows.sort(key=lambda row: -row["uses"] * row["predicted_seconds"])
    trials = min(sum(row["trials"] for row in rows), budget.trials)
    is_measured = len(costs) >= LEAST_RUNS
    each = median(costs) if is_measured else TRIAL_SECONDS
    whole = Ledger(budget=budget).reserve_seconds
    return {
        "kernels": rows,
        "distinct_kernels": len(rows),
        "known_kernels": sum(row["known"] for row in rows),
        "candidate_schedules": sum(row["schedules"] for row in rows),
        "trials": trials,
        "trial_seconds": each,
        "whole_seconds": whole,
        "seconds": min(budget.seconds, trials * each + whole),
        "basis": _basis(len(costs), is_measured=is_measured),
        "budget_seconds": budget.seconds,
        "budget_trials": budget.trials,
    }


def _basis(runs: int, *, is_measured: bool) -> str:
    """On what the seconds rest."""
    trial = (
        f"the median of {runs} earlier kernel runs on this device"
        if is_measured
        else f"{TRIAL_SECONDS} s for a kernel run, as no earlier ones are known here"
    )
    return (
        f"{trial}; the kernels of the cost model's own partition; whole plans take "
        "what the budget keeps back for them; solving is not counted"
    )


def _row(state: KernelState, budget: Budget, known_runs: int) -> Json:
    size = state.study.space_size
    wanted = min(size, budget.trials_per_kernel)
    return {
        "kernel": state.name,
        "family": str(state.family),
        "operators": [node.op for node in state.form.graph.nodes],
        "uses": state.uses,
        "schedules": size,
        "trials": max(0, wanted - known_runs),
        "known": known_runs > 0,
        "known_runs": known_runs,
        "predicted_seconds": state.predicted_seconds,
        "floor_seconds": state.floor_seconds,
    }
