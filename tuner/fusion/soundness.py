"""Whether a bound can be believed: no more than what some partition costs."""

from __future__ import annotations

import warnings
from typing import Final

from tuner.errors import InternalError
from tuner.fusion.trim import SOLVER_TOLERANCE

NO_TIME: Final = 1e-15
"""Seconds that no kernel is as short as: sums of costs that are zero differ by less."""


class UnsoundBound(InternalError, RuntimeWarning):
    """A partition costs less than what no partition was said to beat.

    A warning, for the partition is as good as ever and only the claim falls: where
    warnings are errors, as in tests, it ends the run.
    """

    usual_hint = (
        "the plan holds, its gap is stated without this bound; please report it"
    )


def believed(bound_seconds: float, cost_seconds: float, *, where: str) -> float:
    """A bound, if the cost of a partition that it speaks about does not refute it.

    Args:
        bound_seconds: what no partition is said to beat.
        cost_seconds: of one of these partitions.
        where: what the bound is of, for the warning.

    Returns:
        The bound, but for rounding never above the cost; 0, which claims nothing, where
        it is refuted, and then there is a warning.
    """
    if bound_seconds <= cost_seconds * (1 + SOLVER_TOLERANCE) + NO_TIME:
        return min(bound_seconds, cost_seconds)
    problem = f"the bound is {bound_seconds:.9g} s, but {cost_seconds:.9g} s were found"
    warnings.warn(UnsoundBound(where, problem), stacklevel=2)
    return 0.0
