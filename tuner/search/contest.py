"""Whole plans against each other: which one is kept.

The plan that stands is only replaced by one that is faster beyond doubt: the programs
were sampled by turns, so the ratio of two samples taken one after the other says more
than the two medians.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tuner.assembly import Tuned
from tuner.fusion.partition import Solution
from tuner.plan import Measurement
from tuner.runtime.timing import MIN_SAMPLES, confidence_interval

DEFENDERS: Final = ("incumbent", "untuned")
"""Who stands until beaten: the stored plan, or the one that needs no tuning."""
APART: Final = ("alone", "reference")
"""Measurements that were not taken by turns with the programs, and judge nobody: the
plan that was kept, and the user's own model, each alone in a process, in turns of whole
rounds. They are compared with each other: beside other programs, a plan finds their
data in the caches, and the model would not."""
CONFIDENCE: Final = 0.95
"""Of every interval here; see `tuner.runtime.timing.confidence_interval`."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A partition with the schedules that it runs with."""

    solution: Solution
    tuned: Mapping[str, Tuned] = field(default_factory=lambda: MappingProxyType({}))


def surely_faster(one: Measurement, other: Measurement) -> bool:
    """Whether one program beats another, of the same run, with confidence.

    A run that others disturbed proves nothing.
    """
    if one.failure or one.contended or other.contended:
        return False
    if other.failure:
        return True
    ratio = _ratios(one.samples, other.samples)
    if ratio is not None:
        return confidence_interval(ratio)[1] < 1
    return one.high_seconds < other.low_seconds


def _ratios(one: Sequence[float], other: Sequence[float]) -> list[float] | None:
    if len(one) != len(other) or len(one) < MIN_SAMPLES:
        return None
    return [a / b for a, b in zip(one, other, strict=True)]


def judge(whole: Mapping[str, Measurement], labels: Sequence[str]) -> str:
    """Which of the programs to keep.

    Args:
        whole: by label; those in `APART` take no part.
        labels: who took part, the tuned plan first.

    Returns:
        The defender, unless another is surely faster; then the fastest of those. If
        the defender failed, the fastest that did not; if all did, the first.
    """
    ran = {n: whole[n] for n in labels if n in whole and not whole[n].failure}
    if not ran:
        return labels[0]
    defender = next((name for name in DEFENDERS if name in ran), None)
    if defender is None:
        return min(ran, key=lambda name: ran[name].seconds)
    better = [n for n in ran if surely_faster(ran[n], ran[defender])]
    return min(better, key=lambda name: ran[name].seconds, default=defender)


def is_disturbed(whole: Mapping[str, Measurement]) -> bool:
    """Whether the programs' own samples were disturbed."""
    return any(m.contended for name, m in whole.items() if name not in APART)


def gap_of(measured: float | None, bound: float | None) -> float | None:
    """How far a measured total may be from the best; None while nothing is known."""
    if measured is None or bound is None or not math.isfinite(measured):
        return None
    return max(0.0, (measured - bound) / measured) if measured > 0 else 0.0
