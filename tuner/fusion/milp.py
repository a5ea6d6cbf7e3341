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
ENOUGH: Final = 200
"""So many columns are never too many to look at."""
PIVOTING: Final = 1e-7
"""A reduced cost below this says that a column may be of use."""
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

    def plus(self, more: Rows) -> Rows:
        """These rows and others."""
        return Rows(
            starts=np.concatenate([self.starts, more.starts[1:] + self.starts[-1]]),
            columns=np.concatenate([self.columns, more.columns]),
            coefficients=np.concatenate([self.coefficients, more.coefficients]),
            least=np.concatenate([self.least, more.least]),
        )

    def within(self, kept: Marks) -> tuple[Rows, Marks] | None:
        """The rows without the columns that are 0 now, and which rows they are.

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
        rows = Rows(
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            columns=places[self.columns[entries][inside]].astype(np.int32),
            coefficients=values[inside],
            least=self.least[live],
        )
        return rows, live


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

    def extend(self, count: int) -> None:
        """More columns, which cost nothing."""
        self.values = np.concatenate([self.values, np.zeros(count)])
        self.vague = np.concatenate([self.vague, np.zeros(count, dtype=np.bool_)])

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
    """Least cost over 0/1 columns; the arguments are those of `Minimiser`."""
    problem = Minimiser(costs, rows, binaries=binaries, vague=vague, settle=settle)
    return problem.solve(time_limit_seconds)


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
        """
        self._rows = rows if isinstance(rows, Rows) else Rows.of(rows)
        self._prices = _Costs(costs, vague, settle)
        self._binaries = binaries
        self._branching = np.arange(len(self._prices.values)) < binaries
        self._relaxation = _Relaxation(
            self._prices, self._rows, self._first(binaries, first)
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

    def bound(self, time_limit_seconds: float) -> float:
        """What no point can beat, from what columns cost at least; nothing is asked."""
        relaxed, _ = self._relaxation.solve(time_limit_seconds, asks=False)
        return relaxed.cost if relaxed.has_point else 0.0

    def solve(self, time_limit_seconds: float) -> Optimum:
        """The best point, and what no point can beat.

        Args:
            time_limit_seconds: when to stop with the best point so far.
        """
        prices, binaries = self._prices, self._binaries
        whole = np.arange(len(prices.values)) < binaries
        relaxed, left = self._relaxation.solve(time_limit_seconds)
        if relaxed.is_impossible:
            return NOTHING
        if not relaxed.has_point:
            return Optimum(chosen=(), bound=0.0)
        if prices.is_over:
            return Optimum(chosen=(), bound=relaxed.cost)
        parts = np.minimum(np.abs(relaxed.values), np.abs(1 - relaxed.values))
        if not np.any(parts[whole] > WHOLE):
            return Optimum(chosen=_ones(relaxed.values, binaries), bound=relaxed.cost)
        kinds = _Kinds(whole=whole, branching=self._branching)
        return _sifted(prices, self._rows, kinds, relaxed, left)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kinds:
    """What columns are.

    Attributes:
        whole: those that are chosen or not.
        branching: those that are 0 or 1, auxiliary ones among them.
    """

    whole: Marks
    branching: Marks


class _Relaxation:
    """The problem without whole columns.

    It is solved with few columns first. Those come in that its row prices say may make
    it cheaper, until there are none: then no column that was left out is of use.
    """

    def __init__(self, prices: _Costs, rows: Rows, first: Marks) -> None:
        """Start with some columns.

        Args:
            prices: of all columns.
            rows: what a point must keep.
            first: columns to start with; they should hold a point.
        """
        self._prices, self._rows = prices, rows
        self._kept = first
        self._part: _Part | None = None

    def add(self, rows: Rows, columns: int) -> None:
        """Other rows, and columns behind those there are, from 0 to 1."""
        more = np.ones(columns, dtype=np.bool_)
        self._rows, self._kept = rows, np.concatenate([self._kept, more])
        self._part = None

    def solve(self, left: float, *, asks: bool = True) -> tuple[_Solved, float]:
        """The best point, in which every used column costs what it is said to.

        Args:
            left: seconds.
            asks: whether to ask what columns cost; else their least costs stand.
        """
        while True:
            found, left = self._settled(left, asks=asks)
            missing = ~self._kept & self._prices.possible
            if found.has_point:
                reduced = self._reduced()
                missing &= reduced < -PIVOTING
                found = replace(found, reduced=reduced)
            elif not found.is_impossible:
                return found, left
            if not np.any(missing):
                return found, left
            self._keep(missing, found)

    def _keep(self, missing: Marks, found: _Solved) -> None:
        """More columns: those that say most, as many again as there are."""
        if found.has_point:
            order = np.argsort(np.where(missing, found.reduced, np.inf), kind="stable")
            most = max(ENOUGH, int(self._kept.sum()) // 2)
            missing = np.isin(np.arange(len(missing)), order[:most]) & missing
        self._kept = self._kept | missing
        self._part = None

    def _settled(self, left: float, *, asks: bool) -> tuple[_Solved, float]:
        """The best point of the columns that are kept."""
        if self._part is None:
            self._part = _Part.of(self._prices.values, self._rows, self._kept)
        if self._part is None:
            return _impossible(len(self._kept)), left
        while True:
            found = self._part.solve(self._prices.values, left)
            left -= found.seconds
            if not (asks and found.has_point):
                return found, left
            if self._prices.settle(found.values > WHOLE) is None:
                return found, left

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

    def __init__(self, solver: Any, kept: Marks, live: Marks, told: Numbers) -> None:
        self.live = live
        self._solver, self._kept = solver, kept
        self._places = np.flatnonzero(kept)
        self._told = told.copy()
        self._used = 0.0

    @classmethod
    def of(cls, prices: Numbers, rows: Rows, kept: Marks) -> _Part | None:
        """The part with these columns; None if they hold no point."""
        kept = kept & np.isfinite(prices)
        inside = rows.within(kept)
        if inside is None:
            return None
        matrix, live = inside
        return cls(_solver(prices[kept], matrix, None), kept, live, prices)

    @property
    def row_prices(self) -> Numbers:
        """What the live rows cost."""
        return np.asarray(self._solver.getSolution().row_dual, dtype=np.float64)

    def solve(self, prices: Numbers, left: float) -> _Solved:
        """The best point; the seconds are those of this solve alone."""
        self._tell(prices)
        limit = self._used + max(LEAST_SECONDS, left)
        self._solver.setOptionValue("time_limit", limit)
        self._solver.run()
        found = _read(self._solver, self._kept, is_relaxed=True)
        if not found.is_settled:  # where the last solve ended can be a bad start
            self._solver.clearSolver()
            self._solver.run()
            found = _read(self._solver, self._kept, is_relaxed=True)
        seconds, self._used = found.seconds - self._used, found.seconds
        return replace(found, seconds=seconds)

    def _tell(self, prices: Numbers) -> None:
        """What has become dearer since the last solve."""
        for place, k in enumerate(self._places.tolist()):
            if prices[k] > self._told[k]:
                if np.isinf(prices[k]):
                    self._solver.changeColBounds(place, 0.0, 0.0)
                else:
                    self._solver.changeColCost(place, prices[k])
        self._told = prices.copy()


def _sifted(
    prices: _Costs, rows: Rows, kinds: _Kinds, relaxed: _Solved, left: float
) -> Optimum:
    """Solve with the columns that may be part of the best point.

    A point with any of the others costs `beyond` or more. Columns whose cost is known
    come first: the point that they make is a start, and says how small a reduced cost
    has to be. Then those come in that may cost more than they are said to. Where the
    best point has none of them, no point is better, whatever the rest costs; else those
    in it are asked where there are few columns, and all that are left where not.
    """
    sieve = _Sieve(prices, rows, kinds, relaxed)
    known = np.isfinite(prices.values) & ~prices.vague
    if np.any(prices.vague & sieve.near):
        left -= sieve.start_with(sieve.kept & known, left)
    best = sieve.best(relaxed.cost)
    for turn in itertools.count():
        kept, beyond = sieve.kept, sieve.beyond
        found = _run(prices.values, rows, kept, kinds.branching, left, sieve.cost)
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
        self, prices: _Costs, rows: Rows, kinds: _Kinds, relaxed: _Solved
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

    def start_with(self, columns: Marks, left: float) -> float:
        """Solve with columns whose cost is known; the seconds that it took."""
        found = _run(self._prices.values, self._rows, columns, self._branching, left)
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
    branching: Marks,
    seconds: float,
    most: float = np.inf,
) -> _Solved:
    """Solve with some columns, of which `branching` says which are whole.

    Points that cost more than `most` are of no interest. It is given to the solver as
    a limit: to hand it the point itself is not safe (HiGHS 1.16 calls such a point
    optimal where it is not).
    """
    inside = rows.within(kept)
    if inside is None:
        return _impossible(len(prices))
    matrix, _ = inside
    solver = _solver(prices[kept], matrix, branching[kept])
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
