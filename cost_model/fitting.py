"""Robust fits of a few non-negative numbers to timed samples.

Iteratively re-weighted least squares on relative errors.

Source: P. J. Huber, "Robust estimation of a location parameter", Annals of Mathematical
Statistics 35(1), 1964.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Matrix = NDArray[np.float64]

HUBER_THRESHOLD: Final = 1.345
"""In standard deviations: 95 % as efficient as least squares on clean samples."""

MAD_TO_DEVIATION: Final = 1.4826
"""Standard deviation of normal errors over their median absolute deviation."""

_STEPS: Final = 25
_SMALLEST_DEVIATION: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Relative errors of a fit: how far the samples lie from it."""

    samples: int
    median: float
    worst: float


def robust_fit(
    columns: Matrix, seconds: Matrix, *, fixed: Matrix | float = 0.0
) -> tuple[Matrix, Residual]:
    """Non-negative coefficients with `columns @ them + fixed` near `seconds`.

    Relative errors count, and large ones count less (Huber's weights).

    Args:
        columns: samples x unknowns; a column of zeros gives coefficient 0.
        seconds: positive, one per sample.
        fixed: seconds that are already explained.

    Returns:
        The coefficients, and the relative errors of all samples.
    """
    scaled = columns / seconds[:, None]
    target = (seconds - fixed) / seconds
    weights = np.ones_like(seconds)
    values = np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        root = np.sqrt(weights)
        values = non_negative_fit(scaled * root[:, None], target * root)
        errors = np.abs(scaled @ values - target)
        deviation = MAD_TO_DEVIATION * float(np.median(errors))
        limit = HUBER_THRESHOLD * max(deviation, _SMALLEST_DEVIATION)
        weights = limit / np.maximum(errors, limit)
    return values, residual_of(scaled @ values - target)


def non_negative_fit(columns: Matrix, target: Matrix) -> Matrix:
    """Least squares without negative coefficients, for a handful of unknowns.

    Tries every set of unknowns that may be non-zero: exact, and quick for up to five.
    """
    used = [i for i in range(columns.shape[1]) if columns[:, i].any()]
    best = np.zeros(columns.shape[1])
    least = float(target @ target)
    for chosen in _subsets(used):
        part = columns[:, chosen]
        scale = np.abs(part).max(axis=0)
        found = np.linalg.lstsq(part / scale, target, rcond=None)[0] / scale
        if (found < 0).any():
            continue
        loss = float(np.square(part @ found - target).sum())
        if loss < least:
            least = loss
            best = np.zeros(columns.shape[1])
            best[chosen] = found
    return best


def _subsets(items: Sequence[int]) -> Iterable[list[int]]:
    for size in range(1, len(items) + 1):
        yield from (list(chosen) for chosen in combinations(items, size))


def residual_of(errors: Matrix) -> Residual:
    """Summary of relative errors."""
    size = np.abs(errors)
    return Residual(
        samples=int(size.size), median=float(np.median(size)), worst=float(size.max())
    )
