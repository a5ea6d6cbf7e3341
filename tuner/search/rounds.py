"""Solved partitions with what is known of their kernels, and what they prove."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.partition import Solution
from tuner.plan import Choice
from tuner.search.costs import Costs
from tuner.search.kernels import KernelState

STORING_ROUNDING: Final = 1e-9
"""Times this close, relatively, are one that was stored and read."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One answer of the solver.

    Attributes:
        states: of the chosen kernels, in launch order; equal kernels share one.
    """

    solution: Solution
    states: tuple[KernelState, ...]

    @property
    def regions(self) -> frozenset[object]:
        """What tells one partition from another."""
        choices = self.solution.partition.choices
        return frozenset((choice.region, choice.family) for choice in choices)

    @property
    def total_seconds(self) -> float | None:
        """Sum of soundly measured kernels; None if one was not measured."""
        best = [state.best for state in self.states]
        if any(found is None for found in best):
            return None
        return math.fsum(f.measurement.seconds for f in best if f is not None)

    def objective_seconds(self, costs: Costs) -> float:
        """Sum over the kernels: measured where known, else the model's, corrected."""
        return math.fsum(costs.expected(state) for state in self.states)

    def changes(self, before: Round | None) -> int:
        """How many kernels were not in an earlier answer."""
        old = before.regions if before is not None else frozenset()
        return len(self.regions - old)


def ranked(rounds: Sequence[Round]) -> list[Round]:
    """Distinct partitions whose kernels were all measured, the fastest first."""
    found: dict[frozenset[object], tuple[float, int, Round]] = {}
    for place, each in enumerate(rounds):
        total = each.total_seconds
        if total is not None:
            found.setdefault(each.regions, (total, place, each))
    return [entry[2] for entry in sorted(found.values(), key=lambda e: e[:2])]


class Proof:
    """The last solution under optimistic prices: a bound on every partition.

    A measured kernel counts with its best run, any other with a time that nothing can
    beat. Where the solution is made of measured kernels only, it is the best of all,
    whatever the others would have cost.
    """

    def __init__(self, answer: Round, costs: Costs) -> None:
        self.answer = answer
        self._costs = costs
        self._scale = costs.floor_scale()
        self._best = costs.best_seconds()
        choices = answer.solution.partition.choices
        self._open = [
            state
            for state, choice in zip(answer.states, choices, strict=True)
            if _is_bound(choice, state, costs)
        ]

    @property
    def is_stale(self) -> bool:
        """Whether another solve would say more: a kernel became known or faster."""
        known = any(state.best or state.is_hopeless for state in self._open)
        return known or self._shrunk() < 1

    @property
    def bound_seconds(self) -> float:
        """No partition of the candidate space is faster.

        If a kernel ran faster since, or below its lower bound, every price may have
        shrunk by as much.
        """
        return self.answer.solution.partition.bound_seconds * self._shrunk()

    def _shrunk(self) -> float:
        now = self._costs.best_seconds()
        faster = (now[name] / then for name, then in self._best.items() if name in now)
        return min(1.0, self._costs.floor_scale() / self._scale, *faster)


def _is_bound(choice: Choice, state: KernelState, costs: Costs) -> bool:
    """Whether a solution counts a kernel with less than is known of it.

    So it is where nothing was known of the kernel when the solver was asked; what an
    earlier run had found may have been looked up since.
    """
    known = math.inf
    if state.best is not None:
        known = state.best.measurement.seconds
    elif state.is_hopeless:
        known = costs.last_resort(choice.region, choice.family)
    return choice.seconds < known * (1 - STORING_ROUNDING)
