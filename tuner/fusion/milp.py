"""A 0/1 minimisation: the relaxation first, then as few columns as the proof allows.

The relaxation of a covering problem is often whole already, and else close. Where it is
not whole, its reduced costs say which columns can matter: a point with a column whose
reduced cost is `r` costs at least the relaxation and `r`. So the columns of small
reduced cost are solved first, and others are added until none that is left out can be
part of a cheaper point.

A cost may be known only from below. Such a column is asked for its cost when the
relaxation or the best point uses it; what a cost grows by, its reduced cost grows by,
so the argument above holds for columns that are never asked.

Problems are solved again with rows that cut points off; what is known of costs, and
which columns are of use to the relaxation, is kept.

Source: H. Crowder, E. L. Johnson, M. Padberg, "Solving large-scale zero-one linear
programming problems", Operations Research 31(5), 1983, for fixing by reduced costs; J.
J. Forrest (1989) in R. E. Bixby and others, "Very large-scale linear programming: a
case study", Operations Research 40(5), 1992, for sifting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.fusion.costs import Costs, Settle
from tuner.fusion.effort import Effort
from tuner.fusion.highs import WHOLE
from tuner.fusion.linear import NOTHING, Marks, Numbers, Optimum, Row, Rows
from tuner.fusion.relaxation import ENOUGH, Relaxation
from tuner.fusion.sifting import Kinds, ones_of, sifted


def _nothing_vague(_: Sequence[int]) -> None:
    return None


def minimise(
    costs: Sequence[float] | Numbers,
    rows: Rows | Sequence[Row],
    *,
    binaries: int,
    vague: Sequence[int] = (),
    settle: Settle = _nothing_vague,
    effort: Effort | None = None,
) -> Optimum:
    """Least cost over 0/1 columns; the arguments are those of `Minimiser`."""
    return Minimiser(
        costs, rows, binaries=binaries, vague=vague, settle=settle, effort=effort
    ).solve()


class Minimiser:
    """Least cost over 0/1 columns, again and again while rows cut points off."""

    def __init__(
        self,
        costs: Sequence[float] | Numbers,
        rows: Rows | Sequence[Row],
        *,
        binaries: int,
        vague: Sequence[int] = (),
        settle: Settle = _nothing_vague,
        first: Sequence[int] = (),
        effort: Effort | None = None,
    ) -> None:
        """Keep the problem.

        Args:
            costs: one per column, none below 0; columns from `binaries` on are
                auxiliary, in [0, 1].
            rows: what a point must keep.
            binaries: how many columns, from the first on, are whole.
            vague: columns that may cost more than `costs` says.
            settle: says what they cost.
            first: columns that hold a point, to start with; by default all.
            effort: when to stop with the best point so far; by default never.
        """
        self._effort = effort or Effort.unlimited()
        self._rows = rows if isinstance(rows, Rows) else Rows.of(rows)
        self._prices = Costs(costs, vague, settle)
        self._binaries = binaries
        self._branching = np.arange(len(self._prices.values)) < binaries
        self._relaxation = Relaxation(
            self._prices, self._rows, self._first(binaries, first), self._effort
        )

    def _first(self, binaries: int, first: Sequence[int]) -> Marks:
        count = len(self._prices.values)
        if not first or binaries <= ENOUGH:
            return np.ones(count, dtype=np.bool_)
        found = np.arange(count) >= binaries
        found[list(first)] = True
        return found

    def add(
        self, rows: Sequence[Row], *, columns: int = 0, branches: bool = True
    ) -> None:
        """Ask more of a point.

        Args:
            rows: what it must keep, too.
            columns: how many auxiliary columns there are behind those known so far.
            branches: whether those are whole where a point is; then a search may
                branch on them.
        """
        more = np.full(columns, branches, dtype=np.bool_)
        self._branching = np.concatenate([self._branching, more])
        self._prices.extend(columns)
        self._rows = self._rows.plus(Rows.of(rows))
        self._relaxation.add(self._rows, columns)

    def bound(self) -> float:
        """What no point can beat, from what columns cost at least; nothing is asked."""
        relaxed = self._relaxation.solve(asks=False)
        return relaxed.cost if relaxed.has_point else 0.0

    def solve(self) -> Optimum:
        """The best point, and what no point can beat."""
        prices, binaries = self._prices, self._binaries
        whole = np.arange(len(prices.values)) < binaries
        relaxed = self._relaxation.solve()
        if relaxed.is_impossible:
            return NOTHING
        if not relaxed.has_point:
            return Optimum(chosen=(), bound=0.0)
        if prices.is_over:
            return Optimum(chosen=(), bound=relaxed.cost)
        parts = np.minimum(np.abs(relaxed.values), np.abs(1 - relaxed.values))
        if not np.any(parts[whole] > WHOLE):
            return Optimum(chosen=ones_of(relaxed.values, binaries), bound=relaxed.cost)
        kinds = Kinds(whole=whole, branching=self._branching)
        return sifted(prices, self._rows, kinds, relaxed, self._effort)
