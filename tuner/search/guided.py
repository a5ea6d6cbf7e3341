"""A Gaussian process over a small space of schedules, with an expectation as its prior.

What is learned is how far the logarithm of the measured time lies from what the cost
model and other kernels make one expect, so an expectation that is right needs no runs
at all, and one that ranks at random is unlearned by the likelihood. All schedules of
the space are scored, so nothing is proposed twice and no optimiser is needed.

Source: C. E. Rasmussen, C. K. I. Williams, "Gaussian Processes for Machine Learning",
2006, algorithm 2.1; expected improvement: D. R. Jones, M. Schonlau, W. J. Welch,
"Efficient Global Optimization", J. Global Optimization 13, 1998, equation 15.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tuner.plan import Schedule

Floats = npt.NDArray[np.float64]

_LENGTH: Final = 0.6
"""Distance, in spans of a knob, over which times are alike: likeliest for nearly all
recorded kernels, and a dozen runs are too few to tell them apart."""
_TRUST: Final = ((1.0, 0.0), (0.5, -1.0), (0.0, -2.0))
"""Exponents of the expectation that are tried as the prior mean, and the logarithm of
how likely each is before anything ran."""
_SPREAD: Final = 0.23
"""Deviation of log seconds from the expectation (measured: 0.15 to 0.4 by kernel)."""
_NOISE: Final = 0.08
"""Relative deviation of a median (measured on a quiet processor: 3 to 13 %). Less lets
one lucky run bend the whole surface."""
_SLOWEST: Final = 0.25
"""Log seconds above the best that count as they are; what is slower counts as this
slow. How slow a bad schedule is says nothing of the good ones, and one slow run may be
bad luck."""
_TELLING: Final = 0.9
"""The same where it is asked how far the expectation is to be trusted: that bad
schedules are as slow as expected speaks for it."""


class GuidedSampler:
    """Chooses the schedule with the greatest expected improvement.

    Args:
        schedules: the whole space.
        expected: seconds of each, as far as they are known before anything ran.
    """

    def __init__(
        self, schedules: Sequence[Schedule], expected: Mapping[Schedule, float]
    ) -> None:
        self._schedules = tuple(schedules)
        self._place = {schedule: n for n, schedule in enumerate(self._schedules)}
        self._features = _features(self._schedules)
        self._prior = np.log([max(expected[s], 1e-12) for s in self._schedules])

    def propose(
        self, told: Mapping[Schedule, float | None], excluded: Mapping[Schedule, None]
    ) -> Schedule:
        """The most promising schedule that is not excluded.

        Args:
            told: seconds by schedule; None where the run failed.
            excluded: schedules that were proposed already; not all of them.
        """
        seen = {self._place[s]: v for s, v in told.items() if v and s in self._place}
        free = [n for n, s in enumerate(self._schedules) if s not in excluded]
        if not seen:
            return self._schedules[free[0]]
        values = np.log(list(seen.values()))
        best = float(values.min())
        mean, deviation = self._posterior(list(seen), values, free)
        gain = _expected_improvement(best, mean, deviation)
        return self._schedules[free[int(np.argmax(gain))]]

    def _posterior(
        self, at: Sequence[int], values: Floats, free: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Mean and deviation of log seconds of free schedules, by the likeliest fit."""
        telling = np.minimum(values, values.min() + _TELLING)
        found = [
            (self._fit(at, telling, trust).evidence + likely, trust)
            for trust, likely in _TRUST
        ]
        _, trust = max(found)
        near = np.minimum(values, values.min() + _SLOWEST)
        mean, deviation = self._fit(at, near, trust).predict(self._features[free])
        return mean + trust * self._prior[free], deviation

    def _fit(self, at: Sequence[int], values: Floats, trust: float) -> _Fit:
        """Fit to what an expectation that is trusted so far leaves of the values."""
        return _Fit.of(self._features[at], values - trust * self._prior[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """A Gaussian process, fitted to residuals.

    Attributes:
        points: where they were seen.
        mean: of the residuals, by generalised least squares.
        factor: of their covariance, lower triangular.
        weights: of the covariances with another point.
        evidence: log marginal likelihood, up to a constant.
    """

    points: Floats
    mean: float
    factor: Floats
    weights: Floats
    evidence: float

    @classmethod
    def of(cls, points: Floats, values: Floats) -> _Fit:
        """Fit, and compute the evidence."""
        noise = _NOISE**2 * np.eye(len(values))
        covariance = _SPREAD**2 * _alike(points, points) + noise
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        # Columns: the residuals, and ones.
        both = np.column_stack([values, np.ones_like(values)])
        half = np.linalg.solve(factor, both)
        ones = float(half[:, 1] @ half[:, 1])
        mean = float(half[:, 1] @ half[:, 0]) / ones
        rest = half[:, 0] - mean * half[:, 1]
        fitted = -0.5 * float(rest @ rest) - float(np.log(np.diag(factor)).sum())
        return cls(
            points=points,
            mean=mean,
            factor=factor,
            weights=np.asarray(np.linalg.solve(factor.T, rest), dtype=np.float64),
            evidence=fitted - 0.5 * math.log(ones),
        )

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and deviation of the residual at other points."""
        cross = _SPREAD**2 * _alike(points, self.points)
        mean = self.mean + cross @ self.weights
        left = np.linalg.solve(self.factor, cross.T)
        variance = _SPREAD**2 - np.einsum("ij,ij->j", left, left)
        return mean, np.sqrt(np.maximum(variance, 1e-12))


def _alike(ours: Floats, theirs: Floats) -> Floats:
    apart = ours[:, None, :] - theirs[None, :, :]
    distance: Floats = np.exp(-0.5 * (apart**2).sum(axis=2) / _LENGTH**2)
    return distance


def _features(schedules: Sequence[Schedule]) -> Floats:
    """Knobs by their logarithm, each from 0 to 1 over the space."""
    names = sorted({knob for schedule in schedules for knob, _ in schedule.knobs})
    rows = [[schedule.as_dict.get(name, 0) for name in names] for schedule in schedules]
    logs = np.log2(1.0 + np.maximum(np.array(rows, dtype=np.float64), 0.0))
    low, high = logs.min(axis=0), logs.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    scaled: Floats = (logs - low) / span
    return scaled


def _expected_improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """How far below the best a log time is expected to fall."""
    score = (best - mean) / deviation
    below = np.array([0.5 * (1 + math.erf(z / math.sqrt(2))) for z in score])
    density = np.exp(-0.5 * score**2) / math.sqrt(2 * math.pi)
    gain: Floats = deviation * (score * below + density)
    return gain
