"""A 0/1 minimisation: the relaxation first, then as few columns as the proof allows.

The relaxation of a covering problem is often whole already, and else close. Where it is
not whole, its reduced costs say which columns can matter: a point with a column whose
reduced cost is `r` costs at least the relaxation and `r`. So the columns of small
reduced cost are solved first, and others are added until none that is left out can be
part of a cheaper point.

Source: H. Crowder, E. L. Johnson, M. Padberg, "Solving large-scale zero-one linear
programming problems", Operations Research 31(5), 1983, for fixing by reduced costs; J.
J. Forrest (1989) in R. E. Bixby and others, "Very large-scale linear programming: a
case study", Operations Research 40(5), 1992, for sifting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import highspy
import numpy as np
from highspy._core import _Highs
from numpy.typing import NDArray

FEASIBILITY: Final = 1e-9
WHOLE: Final = 1e-7
"""A value this close to 0 or 1 is whole."""
FIRST_SHARE: Final = 0.025
"""Columns whose reduced cost is at most this share of the relaxation come first."""
WIDER: Final = 4.0
"""By how much that share grows while the columns hold no point."""
LEAST_SECONDS: Final = 0.05
"""What a solver is given at least."""
_HAS_POINT: Final = 2
_OPTIONS: Final[tuple[tuple[str, bool | int | float], ...]] = (
    ("output_flag", False),
    ("mip_rel_gap", 0.0),
    ("mip_abs_gap", FEASIBILITY),
    ("mip_feasibility_tolerance", FEASIBILITY),
    ("mip_allow_restart", False),
    ("mip_heuristic_run_root_reduced_cost", False),
    ("mip_pool_soft_limit", 100),
    ("threads", 1),
    ("random_seed", 0),
)
Numbers = NDArray[np.float64]
Places = NDArray[np.int32]
Marks = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`sum(coefficient * x[column]) >= least`."""

    columns: tuple[int, ...]
    coefficients: tuple[float, ...]
    least: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best point found, and what no point can beat.

    Attributes:
        chosen: columns that are 1; empty when no point was found.
        bound: no feasible point costs less.
        feasible: False if it was proved that there is no point at all.
    """

    chosen: tuple[int, ...]
    bound: float
    feasible: bool = True


NOTHING: Final = Optimum(chosen=(), bound=0.0, feasible=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows as one sparse matrix; the entries of row `i` lie behind `starts[i]`."""

    starts: Places
    columns: Places
    coefficients: Numbers
    least: Numbers

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Rows:
        """Rows that were made one by one."""
        counts = [len(row.columns) for row in rows]
        total = sum(counts)
        columns = (c for row in rows for c in row.columns)
        values = (v for row in rows for v in row.coefficients)
        return cls(
            starts=np.cumsum([0, *counts], dtype=np.int32),
            columns=np.fromiter(columns, dtype=np.int32, count=total),
            coefficients=np.fromiter(values, dtype=np.float64, count=total),
            least=np.asarray([row.least for row in rows], dtype=np.float64),
        )

    def within(self, kept: Marks) -> Rows | None:
        """The rows without the columns that are 0 now.

        Rows that any point keeps are left out. None if no point keeps some row.
        """
        entries = kept[self.columns]
        count = len(self.least)
        home = np.repeat(np.arange(count, dtype=np.int32), np.diff(self.starts))[
            entries
        ]
        values = self.coefficients[entries]
        most = np.bincount(home[values > 0], minlength=count)
        taking = np.bincount(home[values < 0], minlength=count)
        if np.any((most == 0) & (self.least > 0)):
            return None
        live = (taking > 0) | (self.least > 0)
        inside = live[home]
        places = np.cumsum(kept, dtype=np.int32) - 1
        counts = np.bincount(home[inside], minlength=count)[live]
        return Rows(
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            columns=places[self.columns[entries][inside]].astype(np.int32),
            coefficients=values[inside],
            least=self.least[live],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Solved:
    """What a solver said of one problem."""

    values: Numbers
    reduced: Numbers
    cost: float
    bound: float
    seconds: float
    has_point: bool
    is_impossible: bool


def minimise(
    costs: Sequence[float] | Numbers,
    rows: Rows | Sequence[Row],
    *,
    binaries: int,
    time_limit_seconds: float,
) -> Optimum:
    """Least cost over 0/1 columns.

    Args:
        costs: one per column, none below 0; columns from `binaries` on are auxiliary,
            in [0, 1].
        rows: what a point must keep.
        binaries: how many columns, from the first on, are whole.
        time_limit_seconds: when to stop with the best point so far.
    """
    matrix = rows if isinstance(rows, Rows) else Rows.of(rows)
    prices = np.asarray(costs, dtype=np.float64)
    whole = np.arange(len(prices)) < binaries
    everything = np.ones(len(prices), dtype=np.bool_)
    relaxed = _run(prices, matrix, everything, None, time_limit_seconds)
    if relaxed.is_impossible:
        return NOTHING
    if not relaxed.has_point:
        return Optimum(chosen=(), bound=0.0)
    parts = np.minimum(np.abs(relaxed.values), np.abs(1 - relaxed.values))
    if not np.any(parts[whole] > WHOLE):
        return Optimum(chosen=_ones(relaxed.values, binaries), bound=relaxed.cost)
    left = time_limit_seconds - relaxed.seconds
    return _sifted(prices, matrix, whole, relaxed, left)


def _sifted(
    prices: Numbers, rows: Rows, whole: Marks, relaxed: _Solved, left: float
) -> Optimum:
    """Solve with the columns that may be part of the best point.

    A point with any of the others costs `beyond` or more.
    """
    least = relaxed.cost
    slack = max(FEASIBILITY, FIRST_SHARE * least)
    best = Optimum(chosen=(), bound=least)
    while True:
        kept = ~whole | (relaxed.reduced <= slack)
        beyond = np.inf if kept.all() else least + slack
        found = _run(prices, rows, kept, whole, left)
        left -= found.seconds
        if found.is_impossible:
            if kept.all():
                return NOTHING
            slack *= WIDER
            continue
        bound = max(least, min(found.bound, beyond))
        if found.has_point:
            chosen = _ones(found.values, int(whole.sum()))
            best = Optimum(chosen=chosen, bound=bound)
        else:
            best = Optimum(chosen=best.chosen, bound=bound)
        if left <= 0 or not found.has_point or found.cost <= beyond:
            return best
        slack = (found.cost - least) * (1 + WHOLE)


def _ones(values: Numbers, binaries: int) -> tuple[int, ...]:
    return tuple(np.flatnonzero(values[:binaries] > 1 / 2).tolist())


def _run(
    prices: Numbers, rows: Rows, kept: Marks, whole: Marks | None, seconds: float
) -> _Solved:
    """One call of HiGHS; `whole` says which columns are, None relaxes all."""
    matrix = rows.within(kept)
    nothing = np.zeros(len(prices))
    if matrix is None:
        return _Solved(
            values=nothing,
            reduced=nothing,
            cost=np.inf,
            bound=np.inf,
            seconds=0.0,
            has_point=False,
            is_impossible=True,
        )
    solver = _Highs()  # the wrapper `highspy.Highs` prints a banner when it is made
    for name, value in _OPTIONS:
        solver.setOptionValue(name, value)
    if whole is None:  # a second pass over so few rows takes longer than solving them
        solver.setOptionValue("presolve", "off")
    solver.setOptionValue("time_limit", max(LEAST_SECONDS, seconds))
    solver.passModel(
        _model(prices[kept], matrix, None if whole is None else whole[kept])
    )
    solver.run()
    return _read(solver, kept, is_relaxed=whole is None)


def _read(solver: Any, kept: Marks, *, is_relaxed: bool) -> _Solved:
    status, info = solver.getModelStatus(), solver.getInfo()
    solution = solver.getSolution()
    is_optimal = status == highspy.HighsModelStatus.kOptimal
    is_stopped = status == highspy.HighsModelStatus.kTimeLimit
    has_point = info.primal_solution_status == _HAS_POINT and (
        is_optimal or (is_stopped and not is_relaxed)
    )
    values, reduced = np.zeros(len(kept)), np.zeros(len(kept))
    if has_point:
        values[kept] = solution.col_value
        if is_relaxed:
            reduced[kept] = solution.col_dual
    return _Solved(
        values=values,
        reduced=reduced,
        cost=float(info.objective_function_value),
        bound=float(info.mip_dual_bound),
        seconds=float(solver.getRunTime()),
        has_point=has_point,
        is_impossible=not (is_optimal or is_stopped),
    )


def _model(prices: Numbers, rows: Rows, whole: Marks | None) -> highspy.HighsLp:
    model = highspy.HighsLp()
    count = len(prices)
    model.num_col_ = count
    model.num_row_ = len(rows.least)
    model.col_cost_ = prices
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.ones(count)
    model.row_lower_ = rows.least
    model.row_upper_ = np.full(len(rows.least), highspy.kHighsInf)
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = rows.starts
    matrix.index_ = rows.columns
    matrix.value_ = rows.coefficients
    if whole is not None:
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        model.integrality_ = [kinds[flag] for flag in whole.tolist()]
    return model
