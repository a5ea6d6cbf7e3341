"""A 0/1 minimisation, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import highspy
import numpy as np
from highspy._core import _Highs

FEASIBILITY: Final = 1e-9
_SOLVED: Final = frozenset(
    {highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit}
)


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


def minimise(
    costs: Sequence[float],
    rows: Sequence[Row],
    *,
    binaries: int,
    time_limit_seconds: float,
) -> Optimum:
    """Least cost over 0/1 columns.

    Args:
        costs: one per column; columns from `binaries` on are auxiliary, in [0, 1].
        rows: what a point must keep.
        binaries: how many columns, from the first on, are whole.
        time_limit_seconds: when to stop with the best point so far.
    """
    solver = _Highs()  # the wrapper `highspy.Highs` prints a banner when it is made
    for name, value in (
        ("output_flag", False),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", FEASIBILITY),
        ("mip_feasibility_tolerance", FEASIBILITY),
        ("threads", 1),
        ("random_seed", 0),
        ("time_limit", max(0.05, time_limit_seconds)),
    ):
        solver.setOptionValue(name, value)
    solver.passModel(_model(costs, rows, binaries))
    solver.run()
    status = solver.getModelStatus()
    if status not in _SOLVED:
        return Optimum(chosen=(), bound=0.0, feasible=False)
    info = solver.getInfo()
    bound = float(info.mip_dual_bound)
    values = solver.getSolution().col_value
    if not info.primal_solution_status:
        return Optimum(chosen=(), bound=bound)
    chosen = tuple(k for k in range(binaries) if values[k] > 1 / 2)
    return Optimum(chosen=chosen, bound=bound)


def _model(
    costs: Sequence[float], rows: Sequence[Row], binaries: int
) -> highspy.HighsLp:
    model = highspy.HighsLp()
    model.num_col_ = len(costs)
    model.num_row_ = len(rows)
    model.col_cost_ = np.asarray(costs, dtype=np.float64)
    model.col_lower_ = np.zeros(len(costs))
    model.col_upper_ = np.ones(len(costs))
    model.row_lower_ = np.asarray([row.least for row in rows], dtype=np.float64)
    model.row_upper_ = np.full(len(rows), highspy.kHighsInf)
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    starts = np.cumsum([0, *(len(row.columns) for row in rows)])
    matrix.start_ = starts.astype(np.int32)
    matrix.index_ = np.asarray([c for r in rows for c in r.columns], dtype=np.int32)
    values = [v for row in rows for v in row.coefficients]
    matrix.value_ = np.asarray(values, dtype=np.float64)
    whole, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    model.integrality_ = [whole if k < binaries else free for k in range(len(costs))]
    return model
