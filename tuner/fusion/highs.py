"""HiGHS: problems as it takes them, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import highspy
import numpy as np
from highspy._core import _Highs

from tuner.fusion.linear import Marks, Numbers, Rows

FEASIBILITY: Final = 1e-9
WHOLE: Final = 1e-7
"""A value this close to 0 or 1 is whole."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
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


def search(
    prices: Numbers,
    rows: Rows,
    kept: Marks,
    branching: Marks,
    seconds: float,
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
    solver.setOptionValue("time_limit", max(LEAST_SECONDS, seconds))
    solver.run()
    return read(solver, kept, is_relaxed=False)


def impossible(count: int) -> Solved:
    """The answer of a problem of so many columns that has no point."""
    nothing = np.zeros(count)
    return Solved(
        values=nothing,
        reduced=nothing,
        cost=np.inf,
        bound=np.inf,
        seconds=0.0,
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
    is_stopped = status == highspy.HighsModelStatus.kTimeLimit
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
