"""The relaxation of a 0/1 problem, with few of its columns at first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from tuner.fusion.costs import Costs
from tuner.fusion.effort import Effort
from tuner.fusion.highs import WHOLE, Solved, impossible, read, relax, solver_of
from tuner.fusion.linear import Marks, Numbers, Rows

ENOUGH: Final = 200
"""So many columns are never too many to look at."""
PIVOTING: Final = 1e-7
"""A reduced cost below this says that a column may be of use."""


class Relaxation:
    """The problem without whole columns.

    It is solved with few columns first. Those come in that its row prices say may make
    it cheaper, until there are none: then no column that was left out is of use.
    """

    def __init__(self, prices: Costs, rows: Rows, first: Marks, effort: Effort) -> None:
        """Start with some columns.

        Args:
            prices: of all columns.
            rows: what a point must keep.
            first: columns to start with; they should hold a point.
            effort: how far to go.
        """
        self._prices, self._rows, self._effort = prices, rows, effort
        self._kept = first
        self._part: _Part | None = None

    def add(self, rows: Rows, columns: int) -> None:
        """Other rows, and columns behind those there are, from 0 to 1."""
        more = np.ones(columns, dtype=np.bool_)
        self._rows, self._kept = rows, np.concatenate([self._kept, more])
        self._part = None

    def solve(self, *, asks: bool = True) -> Solved:
        """The best point, in which every used column costs what it is said to.

        Args:
            asks: whether to ask what columns cost; else their least costs stand.
        """
        while True:
            found = self._settled(asks=asks)
            missing = ~self._kept & self._prices.possible
            if found.has_point:
                reduced = self._reduced()
                missing &= reduced < -PIVOTING
                found = replace(found, reduced=reduced)
            elif not found.is_impossible:
                return found
            if not np.any(missing):
                return found
            self._keep(missing, found)

    def _keep(self, missing: Marks, found: Solved) -> None:
        """More columns: those that say most, as many again as there are."""
        if found.has_point:
            order = np.argsort(np.where(missing, found.reduced, np.inf), kind="stable")
            most = max(ENOUGH, int(self._kept.sum()) // 2)
            missing = np.isin(np.arange(len(missing)), order[:most]) & missing
        self._kept = self._kept | missing
        self._part = None

    def _settled(self, *, asks: bool) -> Solved:
        """The best point of the columns that are kept."""
        if self._part is None:
            self._part = _Part.of(self._prices.values, self._rows, self._kept)
        if self._part is None:
            return impossible(len(self._kept))
        while True:
            found = self._part.solve(self._prices.values, self._effort)
            if not (asks and found.has_point):
                return found
            if self._prices.settle(found.values > WHOLE) is None:
                return found

    def _reduced(self) -> Numbers:
        """Reduced costs of all columns; rows that the part lacks cost nothing."""
        assert self._part is not None
        rows, prices = self._rows, np.zeros(len(self._rows.least))
        prices[self._part.live] = self._part.row_prices
        each = rows.coefficients * np.repeat(prices, np.diff(rows.starts))
        count = len(self._prices.values)
        return self._prices.values - np.bincount(rows.columns, each, minlength=count)


class _Part:
    """A relaxation with some columns; each solve goes on where the last ended."""

    def __init__(
        self, solver: Any, kept: Marks, live: Marks, told: Numbers, entries: int
    ) -> None:
        self.live = live
        self._solver, self._kept, self._entries = solver, kept, entries
        self._places = np.flatnonzero(kept)
        self._told = told.copy()

    @classmethod
    def of(cls, prices: Numbers, rows: Rows, kept: Marks) -> _Part | None:
        """The part with these columns; None if they hold no point."""
        kept = kept & np.isfinite(prices)
        inside = rows.within(kept)
        if inside is None:
            return None
        matrix, live = inside
        solver = solver_of(prices[kept], matrix, None)
        return cls(solver, kept, live, prices, len(matrix.columns))

    @property
    def row_prices(self) -> Numbers:
        """What the live rows cost."""
        return np.asarray(self._solver.getSolution().row_dual, dtype=np.float64)

    def solve(self, prices: Numbers, effort: Effort) -> Solved:
        """The best point."""
        self._tell(prices)
        relax(self._solver, effort, self._entries)
        found = read(self._solver, self._kept, is_relaxed=True)
        if not found.is_settled:  # where the last solve ended can be a bad start
            self._solver.clearSolver()
            relax(self._solver, effort, self._entries)
            found = read(self._solver, self._kept, is_relaxed=True)
        return found

    def _tell(self, prices: Numbers) -> None:
        """What has become dearer since the last solve."""
        now, before = prices[self._places], self._told[self._places]
        for place in np.flatnonzero(now > before).tolist():
            if np.isinf(now[place]):
                self._solver.changeColBounds(place, 0.0, 0.0)
            else:
                self._solver.changeColCost(place, now[place])
        self._told = prices.copy()
