"""A 0/1 minimisation: the relaxation first, then as few columns as the proof allows.

The relaxation of a covering problem is often whole already, and else close. Where it is
not whole, its reduced costs say which columns can matter: a point with a column whose
reduced cost is `r` costs at least the relaxation and `r`. So the columns of small
reduced cost are solved first, and others are added until none that is left out can be
part of a cheaper point.

A cost may be known only from below. Such a column is asked for its cost when the
relaxation or the best point uses it; what a cost grows by, its reduced cost grows by,
so the argument above holds for columns that are never asked.

Source: H. Crowder, E. L. Johnson, M. Padberg, "Solving large-scale zero-one linear
programming problems", Operations Research 31(5), 1983, for fixing by reduced costs; J.
J. Forrest (1989) in R. E. Bixby and others, "Very large-scale linear programming: a
case study", Operations Research 40(5), 1992, for sifting.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
TURNS: Final = 3
"""How often only those columns are asked that a point uses."""
QUICK: Final = 500
"""With more columns another solve takes longer than to ask all of them."""
LEAST_SECONDS: Final = 0.05
"""What a solver is given at least."""
_HAS_POINT: Final = 2
_IMPOSSIBLE: Final = (
    highspy.HighsModelStatus.kInfeasible,
    highspy.HighsModelStatus.kUnboundedOrInfeasible,
    highspy.HighsModelStatus.kModelEmpty,
)
"""That there is no point is proved. A status like `kUnknown` proves nothing."""
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
Settle = Callable[[Sequence[int]], Sequence[float] | None]
"""What columns cost, none less than it was said to cost at least; infinite if they
cannot be chosen. None if time is over."""


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
    """What a solver said of one problem.

    Attributes:
        values, reduced: of each column, and its reduced cost.
        cost, bound: of the point, and of all points.
        seconds: what it took.
        has_point: whether there is a point; of a relaxation, whether it is the best.
        is_impossible: whether it was proved that there is none.
        is_settled: whether the solver ended with a proof or with the time, and not
            because it did not know on.
    """

    values: Numbers
    reduced: Numbers
    cost: float
    bound: float
    seconds: float
    has_point: bool
    is_impossible: bool
    is_settled: bool = True


class _Costs:
    """Costs of columns, some of them known only from below.

    Attributes:
        values: per column; infinite if it cannot be chosen.
        vague: columns that may cost more than that.
        is_over: whether time ended before a column could be asked.
    """

    def __init__(
        self, costs: Sequence[float] | Numbers, vague: Sequence[int], settle: Settle
    ) -> None:
        self.values = np.array(costs, dtype=np.float64)
        self.vague = np.zeros(len(self.values), dtype=np.bool_)
        self.vague[list(vague)] = True
        self._settle = settle
        self.is_over = False

    @property
    def possible(self) -> Marks:
        """Columns that can be chosen."""
        return np.isfinite(self.values)

    def settle(self, among: Marks) -> Numbers | None:
        """Ask the vague ones among these; by how much each column became dearer.

        None if there was nothing to ask, or no time.
        """
        asked = np.flatnonzero(self.vague & among)
        found = self._settle(asked.tolist()) if len(asked) else None
        self.is_over = self.is_over or (len(asked) > 0 and found is None)
        if found is None:
            return None
        more = np.zeros(len(self.values))
        more[asked] = np.maximum(0.0, np.asarray(found) - self.values[asked])
        self.values[asked] += more[asked]
        self.vague[asked] = False
        return more


def _nothing_vague(_: Sequence[int]) -> None:
    return None


def minimise(
    costs: Sequence[float] | Numbers,
    rows: Rows | Sequence[Row],
    *,
    binaries: int,
    time_limit_seconds: float,
    vague: Sequence[int] = (),
    settle: Settle = _nothing_vague,
) -> Optimum:
    """Least cost over 0/1 columns.

    Args:
        costs: one per column, none below 0; columns from `binaries` on are auxiliary,
            in [0, 1].
        rows: what a point must keep.
        binaries: how many columns, from the first on, are whole.
        time_limit_seconds: when to stop with the best point so far.
        vague: columns that may cost more than `costs` says.
        settle: says what they cost.
    """
    matrix = rows if isinstance(rows, Rows) else Rows.of(rows)
    prices = _Costs(costs, vague, settle)
    whole = np.arange(len(prices.values)) < binaries
    relaxed, left = _relaxed(prices, matrix, time_limit_seconds)
    if relaxed.is_impossible:
        return NOTHING
    if not relaxed.has_point:
        return Optimum(chosen=(), bound=0.0)
    if prices.is_over:
        return Optimum(chosen=(), bound=relaxed.cost)
    parts = np.minimum(np.abs(relaxed.values), np.abs(1 - relaxed.values))
    if not np.any(parts[whole] > WHOLE):
        return Optimum(chosen=_ones(relaxed.values, binaries), bound=relaxed.cost)
    return _sifted(prices, matrix, whole, relaxed, left)


def _relaxed(prices: _Costs, rows: Rows, left: float) -> tuple[_Solved, float]:
    """The relaxation, in which every column that is used costs what it is said to.

    What became dearer is still feasible, so each solve goes on where the last ended.
    """
    everything = np.ones(len(prices.values), dtype=np.bool_)
    matrix = rows.within(everything)
    if matrix is None:
        return _impossible(len(everything)), left
    solver = _solver(prices.values, matrix, None)
    used = 0.0
    while True:
        solver.setOptionValue("time_limit", used + max(LEAST_SECONDS, left))
        solver.run()
        found = _read(solver, everything, is_relaxed=True)
        if not found.is_settled:  # where the last solve ended can be a bad start
            solver.clearSolver()
            solver.run()
            found = _read(solver, everything, is_relaxed=True)
        left, used = left - (found.seconds - used), found.seconds
        more = prices.settle(found.values > WHOLE) if found.has_point else None
        if more is None:
            return found, left
        for k in np.flatnonzero(more).tolist():
            if np.isinf(prices.values[k]):
                solver.changeColBounds(k, 0.0, 0.0)
            else:
                solver.changeColCost(k, prices.values[k])


def _sifted(
    prices: _Costs, rows: Rows, whole: Marks, relaxed: _Solved, left: float
) -> Optimum:
    """Solve with the columns that may be part of the best point.

    A point with any of the others costs `beyond` or more. Columns whose cost is known
    come first: the point that they make is a start, and says how small a reduced cost
    has to be. Then those come in that may cost more than they are said to. Where the
    best point has none of them, no point is better, whatever the rest costs; else those
    in it are asked where there are few columns, and all that are left where not.
    """
    sieve = _Sieve(prices, rows, whole, relaxed)
    known = np.isfinite(prices.values) & ~prices.vague
    if np.any(prices.vague & sieve.near):
        left -= sieve.start_with(sieve.kept & known, left)
    best = sieve.best(relaxed.cost)
    for turn in itertools.count():
        kept, beyond = sieve.kept, sieve.beyond
        found = _run(prices.values, rows, kept, whole, left, sieve.cost)
        left -= found.seconds
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
            is_quick = turn < TURNS and int(kept.sum()) <= QUICK
            sieve.ask(used if is_quick else kept)
            if prices.is_over:
                return best
            sieve.keep(found)  # it costs what it was said to cost, or more
        elif left <= 0 or not found.has_point or found.cost <= beyond:
            return best
        else:
            sieve.widen()
    raise AssertionError("the loop has no end")


class _Sieve:
    """Which columns may be part of the best point.

    Attributes:
        slack: most reduced cost of columns that are looked at.
        start: the best point of which all is known, if there is one.
        cost: what it costs; infinite if there is none.
    """

    def __init__(
        self, prices: _Costs, rows: Rows, whole: Marks, relaxed: _Solved
    ) -> None:
        self._prices, self._rows, self._whole = prices, rows, whole
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

    def start_with(self, columns: Marks, left: float) -> float:
        """Solve with columns whose cost is known; the seconds that it took."""
        found = _run(self._prices.values, self._rows, columns, self._whole, left)
        self.keep(found)
        if self.start is not None:
            self.slack = min(self.slack, self._needed)
        return found.seconds

    @property
    def _needed(self) -> float:
        """A column of larger reduced cost is in no point cheaper than the start."""
        return max(FEASIBILITY, (self.cost - self._least) * (1 + WHOLE))

    def widen(self) -> None:
        """Look at more columns: at all that may matter, if that is known."""
        self.slack = self._needed if self.start is not None else self.slack * WIDER

    def keep(self, found: _Solved) -> None:
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
            chosen = _ones(self.start, int(self._whole.sum()))
        return Optimum(chosen=chosen, bound=bound)


def _ones(values: Numbers, binaries: int) -> tuple[int, ...]:
    return tuple(np.flatnonzero(values[:binaries] > 1 / 2).tolist())


def _run(
    prices: Numbers,
    rows: Rows,
    kept: Marks,
    whole: Marks,
    seconds: float,
    most: float = np.inf,
) -> _Solved:
    """Solve with some columns, of which `whole` says which are.

    Points that cost more than `most` are of no interest. It is given to the solver as
    a limit: to hand it the point itself is not safe (HiGHS 1.16 calls such a point
    optimal where it is not).
    """
    matrix = rows.within(kept)
    if matrix is None:
        return _impossible(len(prices))
    solver = _solver(prices[kept], matrix, whole[kept])
    if np.isfinite(most):
        solver.setOptionValue("objective_bound", most * (1 + WHOLE))
    solver.setOptionValue("time_limit", max(LEAST_SECONDS, seconds))
    solver.run()
    return _read(solver, kept, is_relaxed=False)


def _impossible(count: int) -> _Solved:
    nothing = np.zeros(count)
    return _Solved(
        values=nothing,
        reduced=nothing,
        cost=np.inf,
        bound=np.inf,
        seconds=0.0,
        has_point=False,
        is_impossible=True,
    )


def _solver(prices: Numbers, rows: Rows, whole: Marks | None) -> Any:
    """HiGHS with a problem; `whole` says which columns are, None relaxes all."""
    solver = _Highs()  # the wrapper `highspy.Highs` prints a banner when it is made
    for name, value in _OPTIONS:
        solver.setOptionValue(name, value)
    if whole is None:  # a second pass over so few rows takes longer than solving them
        solver.setOptionValue("presolve", "off")
    solver.passModel(_model(prices, rows, whole))
    return solver


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
        is_impossible=status in _IMPOSSIBLE,
        is_settled=is_optimal or is_stopped or status in _IMPOSSIBLE,
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
