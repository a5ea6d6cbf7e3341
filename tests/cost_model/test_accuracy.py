"""Accuracy figures on small, hand-counted cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_model.accuracy import (
    held_out_coverage,
    kendall_tau,
    mean_relative_error,
    relative_errors,
    sign_accuracy,
    stated_interval,
    top_k_regret,
)


@pytest.mark.parametrize(
    ("predicted", "measured", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([4, 3, 2, 1], [10, 20, 30, 40], -1.0),
        ([1, 2, 3], [1, 3, 2], 1 / 3),
        ([1, 1, 2], [1, 2, 3], 2 / math.sqrt(2 * 3)),
    ],
)
def test_rank_correlation_of_known_cases(
    predicted: list[float], measured: list[float], tau: float
) -> None:
    """Tau-b as counted by hand, ties included."""
    assert kendall_tau(predicted, measured) == pytest.approx(tau)


def test_rank_correlation_of_equal_values_is_undefined() -> None:
    """No order, no correlation."""
    assert math.isnan(kendall_tau([1, 1], [1, 2]))


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=2))
def test_rank_correlation_is_symmetric_and_bounded(
    pairs: list[tuple[float, float]],
) -> None:
    """Swapping the sides changes nothing; the figure lies between -1 and 1."""
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    tau = kendall_tau(left, right)
    if not math.isnan(tau):
        assert tau == pytest.approx(kendall_tau(right, left))
        assert -1 - 1e-9 <= tau <= 1 + 1e-9


def test_relative_errors_of_a_known_case() -> None:
    """10 % too much, 20 % too little and exact."""
    errors = relative_errors([1.1, 0.8, 1.0], [1.0, 1.0, 1.0])
    assert errors.mean == pytest.approx(0.1)
    assert errors.median == pytest.approx(0.1)
    assert errors.worst == pytest.approx(0.2)
    assert errors.median <= errors.ninetieth <= errors.worst
    assert mean_relative_error([1.1, 0.8, 1.0], [1.0, 1.0, 1.0]) == pytest.approx(0.1)


def test_regret_is_what_the_chosen_one_loses() -> None:
    """The first choice is 50 % slower than the best; the best of two is the best."""
    predicted, measured = [1.0, 2.0, 3.0], [3.0, 2.0, 4.0]
    assert top_k_regret(predicted, measured) == pytest.approx(0.5)
    assert top_k_regret(predicted, measured, k=2) == 0.0


def test_decisions_within_the_noise_do_not_count() -> None:
    """Of three pairs one is noise, one is right and one is wrong."""
    measured = [(1.0, 1.02), (1.0, 2.0), (3.0, 1.0)]
    predicted = [(2.0, 1.0), (1.0, 1.5), (1.0, 1.0)]
    found = sign_accuracy(predicted, measured, noise=0.05)
    assert (found.right, found.decided, found.pairs) == (1, 2, 3)
    assert found.share == 0.5


def test_nothing_to_decide_is_no_error() -> None:
    """Without a pair that differs the share is 1."""
    assert sign_accuracy([], []).share == 1.0


def test_sides_of_different_length_are_refused() -> None:
    """The message says how many there are on either side."""
    with pytest.raises(ValueError, match="2 predicted values, 1 measured"):
        kendall_tau([1, 2], [1])
    with pytest.raises(ValueError, match="0 predicted pairs, 1 measured"):
        sign_accuracy([], [(1, 2)])


def test_a_measured_time_of_zero_is_refused() -> None:
    """Relative errors need positive times."""
    with pytest.raises(ValueError, match="must be positive"):
        mean_relative_error([1.0], [0.0])


def test_a_stated_interval_leaves_out_as_much_on_either_side() -> None:
    """Of factors 1 to 11 the middle eighty per cent are those from 2 to 10."""
    measured = [2.0 * n for n in range(1, 12)]
    assert stated_interval([2.0] * 11, measured, 0.8) == pytest.approx((2.0, 10.0))


def test_an_interval_is_judged_by_what_did_not_state_it() -> None:
    """Kernels alike hold each other's times; one of another kind is never held."""
    said = np.ones(11)
    alike = np.linspace(1.0, 2.0, 11)
    assert held_out_coverage([(said, alike)] * 3, 0.8) == pytest.approx(9 / 11)
    other = held_out_coverage([(said, alike), (said, alike), (said, 10 * alike)], 0.8)
    assert other < 0.8


def test_honest_uncertainty_covers_what_it_claims() -> None:
    """Errors of one kind in all kernels: four fifths lie inside, more or less."""
    rng = np.random.default_rng(5)
    groups = [(np.ones(40), np.exp(0.3 * rng.standard_normal(40))) for _ in range(20)]
    assert held_out_coverage(groups, 0.8) == pytest.approx(0.8, abs=0.03)
