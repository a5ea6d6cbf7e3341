"""HiGHS: problems as it takes them, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import highspy
import numpy as np
from highspy._core import _Highs

from tuner.fusion.effort import Effort
from tuner.fusion.linear import Marks, Numbers, Rows

FEASIBILITY: Final = 1e-9
WHOLE: Final = 1e-7
"""A value this close to 0 or 1 is whole."""
LEAST_SECONDS: Final = 0.05
"""What a solver is given at least, where there is a time limit."""
LEAST_PIVOTS: Final = 200
"""The same of a relaxation, in pivots."""
LEAST_CHECKS: Final = 2
"""The same of a search, in questions whether to go on."""
RUN_STEPS: Final = 300
PIVOT_STEPS: Final = 10
PIVOT_ENTRY_STEPS: Final = 0.002
SEARCH_ENTRY_STEPS: Final = 5.0
CHECK_STEPS: Final = 500
CHECK_ENTRY_STEPS: Final = 0.3
"""Steps of work, measured: a run and each pivot of a relaxation, a search, and what
lies between two of its questions, by the entries of the matrix."""
_HAS_POINT: Final = 2
_IMPOSSIBLE: Final = (
    highspy.HighsModelStatus.kInfeasible,
    highspy.HighsModelStatus.kUnboundedOrInfeasible,
    highspy.HighsModelStatus.kModelEmpty,
)
"""That there is no point is proved. A status like `kUnknown` proves nothing."""
_STOPPED: Final = (
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kIterationLimit,
    highspy.HighsModelStatus.kInterrupt,
)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """What a solver said of one problem.

    Attributes:
        values, reduced: of each column, and its reduced cost.
        cost, bound: of the point, and of all points.
        has_point: whether there is a point; of a relaxation, whether it is the best.
        is_impossible: whether it was proved that there is none.
        is_settled: whether the solver ended with a proof or with the effort, and not
            because it did not know on.
    """

    values: Numbers
    reduced: Numbers
    cost: float
    bound: float
    has_point: bool
    is_impossible: bool
    is_settled: bool = True


def search(
    prices: Numbers,
    rows: Rows,
    kept: Marks,
    branching: Marks,
    effort: Effort,
    most: float = np.inf,
) -> Solved:
    """Solve with some columns, of which `branching` says which are whole.

    Points that cost more than `most` are of no interest. It is given to the solver as
    a limit: to hand it the point itself is not safe (HiGHS 1.16 calls such a point
    optimal where it is not).
    """
    inside = rows.within(kept)
    if inside is None:
        return impossible(len(prices))
    matrix, _ = inside
    solver = solver_of(prices[kept], matrix, branching[kept])
    if np.isfinite(most):
        solver.setOptionValue("objective_bound", most * (1 + WHOLE))
    _search(solver, effort, len(matrix.columns))
    return read(solver, kept, is_relaxed=False)


def _search(solver: Any, effort: Effort, entries: int) -> None:
    """Run a search until it ends or the effort does.

    The solver asks now and then whether to go on, at places that only its input
    decides; each time counts as work.
    """
    each = CHECK_STEPS + CHECK_ENTRY_STEPS * entries
    least = effort.spent + SEARCH_ENTRY_STEPS * entries + LEAST_CHECKS * each

    def check(
        _kind: object, _words: str, _found: object, reply: Any, _data: object
    ) -> None:
        effort.spend(each)
        if effort.left <= 0 and effort.spent > least:
            reply.user_interrupt = True

    effort.spend(RUN_STEPS + SEARCH_ENTRY_STEPS * entries)
    solver.setCallback(check, None)
    solver.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    _limit(solver, effort)
    solver.run()
    solver.stopCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)


def relax(solver: Any, effort: Effort, entries: int) -> None:
    """Solve a relaxation, or go on with it, until it ends or the effort does."""
    each = PIVOT_STEPS + PIVOT_ENTRY_STEPS * entries
    most = max(LEAST_PIVOTS, effort.left / each)
    is_finite = most < highspy.kHighsIInf
    limit = int(most) if is_finite else highspy.kHighsIInf
    solver.setOptionValue("simplex_iteration_limit", limit)
    _limit(solver, effort)
    solver.run()
    effort.spend(RUN_STEPS + each * max(0, solver.getInfo().simplex_iteration_count))


def _limit(solver: Any, effort: Effort) -> None:
    """Tell a solver the time that it may take yet, where there is a limit."""
    left = effort.seconds_left
    if np.isfinite(left):  # a solver counts the seconds of all its runs
        limit = solver.getRunTime() + max(LEAST_SECONDS, left)
        solver.setOptionValue("time_limit", limit)


def impossible(count: int) -> Solved:
    """The answer of a problem of so many columns that has no point."""
    nothing = np.zeros(count)
    return Solved(
        values=nothing,
        reduced=nothing,
        cost=np.inf,
        bound=np.inf,
        has_point=False,
        is_impossible=True,
    )


def solver_of(prices: Numbers, rows: Rows, whole: Marks | None) -> Any:
    """HiGHS with a problem; `whole` says which columns are, None relaxes all."""
    solver = _Highs()  # the wrapper `highspy.Highs` prints a banner when it is made
    for name, value in _OPTIONS:
        solver.setOptionValue(name, value)
    if whole is None:  # a second pass over so few rows takes longer than solving them
        solver.setOptionValue("presolve", "off")
    solver.passModel(_model(prices, rows, whole))
    return solver


def read(solver: Any, kept: Marks, *, is_relaxed: bool) -> Solved:
    """What a solver has found; columns that it lacks are 0."""
    status, info = solver.getModelStatus(), solver.getInfo()
    solution = solver.getSolution()
    is_optimal = status == highspy.HighsModelStatus.kOptimal
    is_stopped = status in _STOPPED
    has_point = info.primal_solution_status == _HAS_POINT and (
        is_optimal or (is_stopped and not is_relaxed)
    )
    values, reduced = np.zeros(len(kept)), np.zeros(len(kept))
    if has_point:
        values[kept] = solution.col_value
        if is_relaxed:
            reduced[kept] = solution.col_dual
    return Solved(
        values=values,
        reduced=reduced,
        cost=float(info.objective_function_value),
        bound=float(info.mip_dual_bound),
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
