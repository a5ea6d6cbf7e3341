"""How well times were predicted, and which knob mattered: plain statistics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Json = Mapping[str, Any]

FEWEST: Final = 3
"""With fewer trials nothing is said about a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Predicted against measured times of a group of trials.

    Attributes:
        error: mean of |predicted - measured| / measured.
        bias: geometric mean of measured / predicted; 1 is fair.
        rank: Spearman's rank correlation; None where all are equal.
        within: share of the trials predicted within a factor of 1.5.
    """

    group: str
    trials: int
    error: float
    bias: float
    rank: float | None
    within: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """What a knob of the schedule explains.

    Attributes:
        share: part of the variance of log time, within kernels, that the knob's value
            explains alone (correlation ratio, eta squared).
        best: value with the least geometric mean time.
        worst_ratio: geometric mean time of the worst value over that of the best.
    """

    name: str
    share: float
    trials: int
    values: int
    best: int
    worst_ratio: float


_WITHIN: Final = math.log(1.5)


def quality(trials: Sequence[Json]) -> tuple[Quality, ...]:
    """Of all trials, then of each family; groups that are too small are left out."""
    pairs = defaultdict(list)
    for trial in trials:
        if trial["seconds"] and trial["predicted_seconds"]:
            pair = (trial["predicted_seconds"], trial["seconds"])
            pairs["all"].append(pair)
            pairs[trial["family"]].append(pair)
    families = sorted(set(pairs) - {"all"})
    groups = ("all", *families) if len(families) > 1 else ("all",)
    return tuple(
        _quality(group, pairs[group]) for group in groups if len(pairs[group]) >= FEWEST
    )


_SIZES: Final = (
    (1e-5, "below 10 µs"),
    (1e-4, "10 to 100 µs"),
    (1e-3, "0.1 to 1 ms"),
    (math.inf, "above 1 ms"),
)


def by_size(trials: Sequence[Json]) -> tuple[Quality, ...]:
    """Of trials of about equal length, the shortest first: launches, then memory."""
    pairs = defaultdict(list)
    for trial in trials:
        if trial["seconds"] and trial["predicted_seconds"]:
            label = next(name for top, name in _SIZES if trial["seconds"] < top)
            pairs[label].append((trial["predicted_seconds"], trial["seconds"]))
    return tuple(
        _quality(name, pairs[name]) for _, name in _SIZES if len(pairs[name]) >= FEWEST
    )


def _quality(group: str, pairs: Sequence[tuple[float, float]]) -> Quality:
    predicted, measured = np.array(pairs).T
    logs = np.log(measured / predicted)
    return Quality(
        group=group,
        trials=len(pairs),
        error=float(np.mean(np.abs(predicted - measured) / measured)),
        bias=float(np.exp(logs.mean())),
        rank=rank_correlation(predicted, measured),
        within=float(np.mean(np.abs(logs) <= _WITHIN)),
    )


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's coefficient; equal values share their mean rank."""
    first, second = _ranks(a), _ranks(b)
    spread = float(first.std() * second.std())
    if not spread:
        return None
    product = (first - first.mean()) * (second - second.mean())
    return float(product.mean()) / spread


def _ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(times).astype(float)
    return np.asarray((last - (times - 1) / 2)[place])


def importance(trials: Sequence[Json]) -> tuple[Knob, ...]:
    """Knobs of the schedules, the one that explains most first.

    Each kernel's log times are taken relative to its mean, so that a large kernel
    does not speak for a knob; kernels with one schedule say nothing.
    """
    residuals = _residuals(trials)
    names = sorted({name for schedule, _ in residuals for name in schedule})
    knobs = (_knob(name, residuals) for name in names)
    found = [knob for knob in knobs if knob is not None]
    return tuple(sorted(found, key=lambda knob: -knob.share))


Residual = tuple[Mapping[str, int], float]


def _residuals(trials: Sequence[Json]) -> list[Residual]:
    kernels: dict[str, list[Residual]] = defaultdict(list)
    for trial in trials:
        if trial["seconds"] and trial["schedule"]:
            pair = (trial["schedule"], math.log(trial["seconds"]))
            kernels[trial["kernel"]].append(pair)
    found: list[Residual] = []
    for group in kernels.values():
        mean = sum(log for _, log in group) / len(group)
        if len(group) > 1:
            found += [(schedule, log - mean) for schedule, log in group]
    return found


def _knob(name: str, residuals: Sequence[Residual]) -> Knob | None:
    groups: dict[int, list[float]] = defaultdict(list)
    for schedule, residual in residuals:
        if name in schedule:
            groups[schedule[name]].append(residual)
    everything = np.array([r for group in groups.values() for r in group])
    whole = float(((everything - everything.mean()) ** 2).sum()) if groups else 0.0
    if len(groups) < 2 or not whole:  # noqa: PLR2004 - a constant explains nothing
        return None
    means = {value: float(np.mean(group)) for value, group in groups.items()}
    centre = everything.mean()
    between = sum(len(groups[v]) * (mean - centre) ** 2 for v, mean in means.items())
    best = min(means, key=lambda value: means[value])
    return Knob(
        name=name,
        share=float(between) / whole,
        trials=len(everything),
        values=len(groups),
        best=best,
        worst_ratio=math.exp(max(means.values()) - means[best]),
    )
