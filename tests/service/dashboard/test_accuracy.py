"""Statistics of trials."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dashboard.accuracy import importance, quality, rank_correlation


def trial(
    seconds: float, predicted: float = 1.0, kernel: str = "a", **schedule: int
) -> dict[str, Any]:
    """A trial as the API tells it."""
    return {
        "seconds": seconds,
        "predicted_seconds": predicted,
        "family": "pointwise",
        "kernel": kernel,
        "schedule": schedule,
    }


def test_quality_of_exact_predictions() -> None:
    """No error, no bias, and the order is right."""
    (whole,) = quality([trial(t, t) for t in (1e-6, 2e-6, 5e-6)])
    assert whole.error == 0
    assert whole.bias == pytest.approx(1)
    assert whole.rank == pytest.approx(1)
    assert whole.within == 1


def test_predictions_that_are_half_of_the_truth() -> None:
    """An error of a half and a bias of two, though the order is right."""
    (whole,) = quality([trial(t, t / 2) for t in (1e-6, 2e-6, 5e-6)])
    assert whole.error == pytest.approx(0.5)
    assert whole.bias == pytest.approx(2)
    assert whole.rank == pytest.approx(1)
    assert whole.within == 0


def test_few_trials_say_nothing() -> None:
    """Two trials are no group, and failed ones do not count."""
    assert quality([trial(1e-6), trial(2e-6), {**trial(1), "seconds": None}]) == ()


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30))
def test_rank_correlation_is_symmetric_and_bounded(values: list[int]) -> None:
    """Equal orders correlate by 1, opposite ones by -1, constants not at all."""
    same = rank_correlation(values, values)
    if len(set(values)) == 1:
        assert same is None
        return
    assert same == pytest.approx(1)
    assert rank_correlation(values, [-v for v in values]) == pytest.approx(-1)


def test_a_knob_that_decides_explains_everything() -> None:
    """Time follows one knob in kernels of any size; the other explains nothing."""
    trials = [
        trial(size * wide, kernel=kernel, wide=wide, idle=idle)
        for kernel, size in (("a", 1e-6), ("b", 1e-3))
        for wide in (1, 4)
        for idle in (0, 1)
    ]
    first, second = importance(trials)
    assert first.name == "wide"
    assert first.share == pytest.approx(1)
    assert first.best == 1
    assert first.worst_ratio == pytest.approx(4)
    assert second.share == pytest.approx(0, abs=1e-9)


def test_kernels_with_one_schedule_say_nothing() -> None:
    """Nothing varies, so that nothing is explained."""
    assert importance([trial(1e-6, kernel="a", wide=1)]) == ()
    assert importance([]) == ()
