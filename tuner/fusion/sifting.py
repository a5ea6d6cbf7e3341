"""The best whole point, with as few columns as the proof allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.fusion.costs import Costs
from tuner.fusion.effort import PRICE_STEPS, Effort
from tuner.fusion.highs import FEASIBILITY, WHOLE, Solved, search
from tuner.fusion.linear import NOTHING, Marks, Numbers, Optimum, Rows

FIRST_SHARE: Final = 0.025
"""Columns whose reduced cost is at most this share of the relaxation come first."""
WIDER: Final = 4.0
"""By how much that share grows while the columns hold no point."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kinds:
    """What columns are.

    Attributes:
        whole: those that are chosen or not.
        branching: those that are 0 or 1, auxiliary ones among them.
    """

    whole: Marks
    branching: Marks


def sifted(
    prices: Costs, rows: Rows, kinds: Kinds, relaxed: Solved, effort: Effort
) -> Optimum:
    """Solve with the columns that may be part of the best point.

    A point with any of the others costs `beyond` or more. Columns whose cost is known
    come first: the point that they make is a start, and says how small a reduced cost
    has to be. Then those come in that may cost more than they are said to. Where the
    best point has none of them, no point is better, whatever the rest costs; else those
    in it are asked. When searches have taken as much work as it takes to ask all that
    are left, these are: so both together never take more than twice what the better of
    the two would, however often a search comes upon columns that turn out dearer.

    Source: A. R. Karlin and others, "Competitive snoopy caching", Algorithmica 3, 1988,
    for when to stop renting.
    """
    sieve = _Sieve(prices, rows, kinds, relaxed)
    known = np.isfinite(prices.values) & ~prices.vague
    if np.any(prices.vague & sieve.near):
        sieve.start_with(sieve.kept & known, effort)
    best = sieve.best(relaxed.cost)
    searching = 0.0
    while True:
        kept, beyond, before = sieve.kept, sieve.beyond, effort.spent
        found = search(prices.values, rows, kept, kinds.branching, effort, sieve.cost)
        searching += effort.spent - before
        if found.is_impossible:
            if sieve.cost <= beyond:  # no point is cheaper than what is known
                is_none = np.isinf(sieve.cost)
                return NOTHING if is_none else replace(best, bound=sieve.cost)
            sieve.widen()
            continue
        sieve.keep(found)
        best = sieve.best(max(relaxed.cost, min(found.bound, beyond)))
        used = prices.vague & (found.values > 1 / 2)
        if np.any(used):
            asking = PRICE_STEPS * int(np.sum(kept & prices.vague))
            sieve.ask(used if searching < asking else kept)
            if prices.is_over:
                return best
            sieve.keep(found)  # it costs what it was said to cost, or more
        elif effort.is_over or not found.has_point or found.cost <= beyond:
            return best
        else:
            sieve.widen()


class _Sieve:
    """Which columns may be part of the best point.

    Attributes:
        slack: most reduced cost of columns that are looked at.
        start: the best point of which all is known, if there is one.
        cost: what it costs; infinite if there is none.
    """

    def __init__(
        self, prices: Costs, rows: Rows, kinds: Kinds, relaxed: Solved
    ) -> None:
        self._prices, self._rows = prices, rows
        self._whole, self._branching = kinds.whole, kinds.branching
        self._least, self._reduced = relaxed.cost, relaxed.reduced.copy()
        self.slack = max(FEASIBILITY, FIRST_SHARE * relaxed.cost)
        self.start: Numbers | None = None
        self.cost = np.inf

    @property
    def near(self) -> Marks:
        """Columns of small reduced cost."""
        return self._reduced <= self.slack

    @property
    def kept(self) -> Marks:
        """Columns to solve with."""
        return (~self._whole | self.near) & self._prices.possible

    @property
    def beyond(self) -> float:
        """What a point costs at least that has another column; infinite if none is."""
        is_all = not np.any(self._prices.possible & ~self.kept)
        return np.inf if is_all else self._least + self.slack

    def start_with(self, columns: Marks, effort: Effort) -> None:
        """Solve with columns whose cost is known."""
        prices, rows = self._prices.values, self._rows
        found = search(prices, rows, columns, self._branching, effort)
        self.keep(found)
        if self.start is not None:
            self.slack = min(self.slack, self._needed)

    @property
    def _needed(self) -> float:
        """A column of larger reduced cost is in no point cheaper than the start."""
        return max(FEASIBILITY, (self.cost - self._least) * (1 + WHOLE))

    def widen(self) -> None:
        """Look at more columns: at all that may matter, if that is known."""
        self.slack = self._needed if self.start is not None else self.slack * WIDER

    def keep(self, found: Solved) -> None:
        """Start from a point, if it costs less than the one before by all its costs."""
        ones = found.values > 1 / 2
        cost = float(np.sum(self._prices.values[ones & self._whole]))
        is_known = not np.any(self._prices.vague & ones)
        if found.has_point and is_known and cost < self.cost:
            self.start, self.cost = found.values, cost

    def ask(self, among: Marks) -> None:
        """Ask what columns cost."""
        more = self._prices.settle(among)
        if more is not None:
            self._reduced += more

    def best(self, bound: float) -> Optimum:
        """The best point of which all is known, with a bound."""
        chosen: tuple[int, ...] = ()
        if self.start is not None:
            chosen = ones_of(self.start, int(self._whole.sum()))
        return Optimum(chosen=chosen, bound=bound)


def ones_of(values: Numbers, binaries: int) -> tuple[int, ...]:
    """Columns that are 1 where all are 0 or 1."""
    return tuple(np.flatnonzero(values[:binaries] > 1 / 2).tolist())
