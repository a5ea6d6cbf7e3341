"""A Gaussian process over a small space of schedules, with the cost model as its prior.

What is learned is how far the logarithm of the measured time lies from the model's
prediction, so a model that is right needs no runs at all, and one that ranks at random
is unlearned by the likelihood. All schedules of the space are scored, so nothing is
proposed twice and no optimiser is needed.

Source: C. E. Rasmussen, C. K. I. Williams, "Gaussian Processes for Machine Learning",
2006, algorithm 2.1; expected improvement: D. R. Jones, M. Schonlau, W. J. Welch,
"Efficient Global Optimization", J. Global Optimization 13, 1998, equation 15.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.plan import Schedule

Floats = npt.NDArray[np.float64]

_LENGTHS: Final = (0.5, 1.0, 2.0)
"""Distances, in spans of a knob, over which times are alike."""
_TRUST: Final = (0.0, 0.5, 1.0)
"""Exponents of the model's prediction that are tried as the prior mean."""
_NOISE: Final = 0.06
"""Relative deviation of a median (measured on a quiet processor: 3 to 13 %). Less lets
one lucky run bend the whole surface."""
_LEAST_SPREAD: Final = 0.05


class GuidedSampler:
    """Chooses the schedule with the greatest expected improvement.

    Args:
        schedules: the whole space.
        predicted: the model's seconds for each.
    """

    def __init__(
        self, schedules: Sequence[Schedule], predicted: Mapping[Schedule, float]
    ) -> None:
        self._schedules = tuple(schedules)
        self._place = {schedule: n for n, schedule in enumerate(self._schedules)}
        self._features = _features(self._schedules)
        self._prior = np.log([max(predicted[s], 1e-12) for s in self._schedules])

    def propose(
        self, told: Mapping[Schedule, float | None], excluded: Mapping[Schedule, None]
    ) -> Schedule:
        """The most promising schedule that is not excluded.

        Args:
            told: seconds by schedule; None where the run failed.
            excluded: schedules that were proposed already; not all of them.
        """
        seen = [(self._place[s], v) for s, v in told.items() if v and s in self._place]
        free = [n for n, s in enumerate(self._schedules) if s not in excluded]
        if not seen:
            return self._schedules[free[0]]
        mean, deviation = self._posterior(seen, free)
        best = min(math.log(seconds) for _, seconds in seen)
        gain = _expected_improvement(best, mean, deviation)
        return self._schedules[free[int(np.argmax(gain))]]

    def _posterior(
        self, seen: Sequence[tuple[int, float]], free: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Mean and deviation of log seconds of free schedules, by the likeliest fit."""
        at = [place for place, _ in seen]
        values = np.log([seconds for _, seconds in seen])
        fits = [
            _Fit.of(self._features[at], values - trust * self._prior[at], length, trust)
            for length, trust in product(_LENGTHS, _TRUST)
        ]
        fit = max(fits, key=lambda each: each.evidence)
        mean, deviation = fit.predict(self._features[free])
        return mean + fit.trust * self._prior[free], deviation


class _Fit:
    """A Gaussian process with one length, fitted to residuals."""

    def __init__(  # noqa: PLR0913, PLR0917 - the terms of one formula
        self,
        points: Floats,
        mean: float,
        scale: float,
        length: float,
        trust: float,
        factor: Any,
        weights: Any,
        evidence: float,
    ) -> None:
        self.points, self.mean, self.scale = points, mean, scale
        self.length, self.trust, self.evidence = length, trust, evidence
        self.factor, self.weights = factor, weights

    @classmethod
    def of(cls, points: Floats, values: Floats, length: float, trust: float) -> _Fit:
        """Fit, and compute the log marginal likelihood."""
        mean = float(values.mean())
        scale = max(float(values.std()), _LEAST_SPREAD)
        rest = values - mean
        noise = _NOISE**2 * np.eye(len(values))
        factor = np.linalg.cholesky(scale**2 * _alike(points, points, length) + noise)
        weights = np.linalg.solve(factor.T, np.linalg.solve(factor, rest))
        evidence = -0.5 * float(rest @ weights) - float(np.log(np.diag(factor)).sum())
        return cls(points, mean, scale, length, trust, factor, weights, evidence)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and deviation of the residual at other points."""
        cross = self.scale**2 * _alike(points, self.points, self.length)
        mean = self.mean + cross @ self.weights
        left = np.linalg.solve(self.factor, cross.T)
        variance = self.scale**2 - np.einsum("ij,ij->j", left, left)
        return mean, np.sqrt(np.maximum(variance, 1e-12))


def _alike(ours: Floats, theirs: Floats, length: float) -> Floats:
    apart = ours[:, None, :] - theirs[None, :, :]
    distance: Floats = np.exp(-0.5 * (apart**2).sum(axis=2) / length**2)
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
