"""How far predictions can be trusted: rank correlation, error, regret, decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignAccuracy:
    """How often the model picked the faster of two.

    Attributes:
        right: pairs whose order was predicted.
        decided: pairs that differ by more than the noise.
        pairs: all pairs.
    """

    right: int
    decided: int
    pairs: int

    @property
    def share(self) -> float:
        """Right ones of those decided; 1 when nothing was to be decided."""
        return self.right / self.decided if self.decided else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorQuantiles:
    """Relative errors `|predicted - measured| / measured`."""

    mean: float
    median: float
    ninetieth: float
    worst: float


def kendall_tau(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Rank correlation with ties, tau-b, from -1 to 1.

    Nan when either side has less than two different values.

    Source: M. G. Kendall, "The treatment of ties in ranking problems", Biometrika
    33(3), 1945.
    """
    left, right = _pair(predicted, measured)
    upper = np.triu_indices(left.size, k=1)
    a = np.sign(left[upper[0]] - left[upper[1]])
    b = np.sign(right[upper[0]] - right[upper[1]])
    scale = float(np.sqrt(np.count_nonzero(a)) * np.sqrt(np.count_nonzero(b)))
    return float(a @ b) / scale if scale else float("nan")


def relative_errors(
    predicted: Sequence[float], measured: Sequence[float]
) -> ErrorQuantiles:
    """Relative errors of positive, measured times; `mean` is the usual mean of them.

    Raises:
        ValueError: no pair, different lengths, or a measured time that is not positive.
    """
    errors = _errors(predicted, measured)
    return ErrorQuantiles(
        mean=float(errors.mean()),
        median=float(np.median(errors)),
        ninetieth=float(np.quantile(errors, 0.9)),
        worst=float(errors.max()),
    )


def mean_relative_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Mean absolute percentage error as a share: 0.2 is 20 %."""
    return float(_errors(predicted, measured).mean())


def top_k_regret(
    predicted: Sequence[float], measured: Sequence[float], k: int = 1
) -> float:
    """What is lost by measuring only the `k` best predicted: 0.05 is 5 % slower.

    Equal predictions are taken in the order given.
    """
    left, right = _pair(predicted, measured)
    chosen = np.argsort(left, kind="stable")[:k]
    return float(right[chosen].min() / right.min() - 1.0)


def sign_accuracy(
    predicted: Sequence[tuple[float, float]],
    measured: Sequence[tuple[float, float]],
    *,
    noise: float = 0.0,
) -> SignAccuracy:
    """How often the model sees which of two is faster, such as fused and apart.

    Args:
        predicted: seconds of either side, per pair.
        measured: the same, measured.
        noise: relative difference up to which measured times are equal.

    Returns:
        Counts over the pairs; a predicted tie is wrong wherever there is a winner.
    """
    said, seen = _pairs(predicted), _pairs(measured)
    if said.shape != seen.shape:
        raise ValueError(f"{said.shape[0]} predicted pairs, {seen.shape[0]} measured")
    difference = seen[:, 0] - seen[:, 1]
    decided = np.abs(difference) > noise * seen.min(axis=1)
    right = np.sign(said[:, 0] - said[:, 1]) == np.sign(difference)
    return SignAccuracy(
        right=int(np.count_nonzero(right & decided)),
        decided=int(np.count_nonzero(decided)),
        pairs=int(difference.size),
    )


def stated_interval(
    predicted: Sequence[float] | Vector,
    measured: Sequence[float] | Vector,
    share: float,
) -> tuple[float, float]:
    """Factors of a prediction between which so large a share of measured times lies.

    Equal shares are left out on both sides.
    """
    left, right = _pair(predicted, measured)
    tail = 50.0 * (1.0 - share)
    low, high = np.percentile(right / left, (tail, 100.0 - tail))
    return float(low), float(high)


def held_out_coverage(groups: Sequence[tuple[Vector, Vector]], share: float) -> float:
    """Share of measured times inside the interval that all other groups state.

    It is near `share` where the stated uncertainty can be trusted: below it, times
    scatter more than predictions admit; above it, less.

    Args:
        groups: predicted and measured seconds, such as those of one kernel, at least
            two groups; one never states what it is judged by.
        share: of times that an interval claims to hold.
    """
    inside = total = 0
    for place, (said, seen) in enumerate(groups):
        others = [group for other, group in enumerate(groups) if other != place]
        known = [np.concatenate(part) for part in zip(*others, strict=True)]
        low, high = stated_interval(known[0], known[1], share)
        factors = seen / said
        inside += int(np.count_nonzero((low <= factors) & (factors <= high)))
        total += factors.size
    return inside / total


def _pairs(values: Sequence[tuple[float, float]]) -> Vector:
    return np.asarray(values, dtype=np.float64).reshape(-1, 2)


def _pair(
    predicted: Sequence[float] | Vector, measured: Sequence[float] | Vector
) -> tuple[Vector, Vector]:
    left = np.asarray(predicted, dtype=np.float64)
    right = np.asarray(measured, dtype=np.float64)
    if left.shape != right.shape or left.ndim != 1 or not left.size:
        raise ValueError(f"{left.size} predicted values, {right.size} measured")
    return left, right


def _errors(predicted: Sequence[float], measured: Sequence[float]) -> Vector:
    left, right = _pair(predicted, measured)
    if not (right > 0).all():
        raise ValueError("measured times must be positive")
    errors: Vector = np.abs(left - right) / right
    return errors
