"""Whole plans against each other."""

from __future__ import annotations

import math
import random

import pytest

from tuner.plan import Measurement
from tuner.runtime.timing import summarise
from tuner.search.contest import gap_of, is_disturbed, judge, surely_faster

FAILED = Measurement(seconds=math.inf, failure="correctness")


def _sampled(factor: float, *, contended: bool = False, seed: int = 0) -> Measurement:
    """Fifteen samples that drift by half, alike for all, with one percent of noise."""
    source = random.Random(f"{seed}/{factor}")
    samples = [factor * (1 + turn / 30) * source.gauss(1.0, 0.01) for turn in range(15)]
    return summarise(samples, contended=contended)


def test_samples_by_turns_see_through_a_drift() -> None:
    """Five percent are seen though both programs slow down by half meanwhile."""
    slow, fast = _sampled(1.0), _sampled(0.95)
    assert fast.high_seconds > slow.low_seconds
    assert surely_faster(fast, slow)
    assert not surely_faster(slow, fast)


def test_a_tie_is_no_win() -> None:
    """Equal programs beat each other less often than the confidence allows."""
    wins = sum(
        surely_faster(_sampled(1.0, seed=n), _sampled(1.0, seed=-n - 1))
        for n in range(300)
    )
    assert wins <= 0.04 * 300


def test_disturbed_and_failed_programs_do_not_win() -> None:
    """Neither side may have been disturbed; anything beats a failure."""
    assert not surely_faster(_sampled(0.5, contended=True), _sampled(1.0))
    assert not surely_faster(_sampled(0.5), _sampled(1.0, contended=True))
    assert not surely_faster(FAILED, _sampled(1.0))
    assert surely_faster(_sampled(1.0), FAILED)


@pytest.mark.parametrize(
    ("seconds", "winner"),
    [
        ({"plan": 0.9, "untuned": 1.0, "unfused": 1.5}, "plan"),
        ({"plan": 1.0, "untuned": 1.0, "unfused": 1.5}, "untuned"),
        ({"plan": 0.9, "plan-2": 0.8, "untuned": 1.0}, "plan-2"),
        ({"plan": 1.2, "untuned": 1.0, "unfused": 0.7}, "unfused"),
        ({"plan": 0.9, "untuned": 1.0, "incumbent": 0.9}, "incumbent"),
        ({"plan": 0.8, "untuned": 1.0, "incumbent": 0.9}, "plan"),
        ({"untuned": 1.0, "incumbent": 2.0, "reference": 0.1}, "untuned"),
    ],
)
def test_the_defender_stays_until_surely_beaten(
    seconds: dict[str, float], winner: str
) -> None:
    """The stored plan defends, else the untuned one; the fastest challenger wins."""
    whole = {name: _sampled(factor) for name, factor in seconds.items()}
    labels = [name for name in seconds if name != "reference"]
    assert judge(whole, labels) == winner


def test_a_defender_that_failed_is_replaced() -> None:
    """The next defender, or the fastest that ran; if none did, the first."""
    ran = {"plan": _sampled(0.9), "untuned": FAILED, "unfused": _sampled(1.5)}
    assert judge(ran, list(ran)) == "plan"
    other = {"plan": _sampled(1.0), "untuned": _sampled(1.0), "incumbent": FAILED}
    assert judge(other, list(other)) == "untuned"
    none = {"plan": FAILED, "untuned": FAILED}
    assert judge(none, list(none)) == "plan"


def test_the_reference_does_not_count_as_disturbed() -> None:
    """It runs alone, at another time."""
    quiet = {"plan": _sampled(1.0), "reference": _sampled(1.0, contended=True)}
    assert not is_disturbed(quiet)
    assert is_disturbed({"plan": _sampled(1.0, contended=True)})


def test_gaps() -> None:
    """Relative to the measured total; unknown while a part is."""
    assert gap_of(2.0, 1.0) == 0.5
    assert gap_of(1.0, 1.5) == 0.0
    assert gap_of(None, 1.0) is None
    assert gap_of(1.0, None) is None
