"""Kernels and baselines as rows."""

from __future__ import annotations

import pytest

from service.dashboard.kernels import baseline_rows, kernel_rows, user_names
from tests.service.dashboard import samples


def test_measured_time_counts_where_there_is_one() -> None:
    """Shares, ratios and the part of the roof rest on the measurement."""
    body = samples.plan_body(layers=1)
    rows = kernel_rows(body, samples.user_names(body))
    assert sum(row.share for row in rows) == pytest.approx(1.0)
    first = rows[0]
    assert first.measured_seconds is not None
    assert first.seconds == first.measured_seconds
    assert first.ratio == pytest.approx(first.seconds / first.predicted_seconds)
    assert first.roof == pytest.approx(first.roof_seconds / first.seconds)


def test_an_untuned_plan_shows_predictions() -> None:
    """Without a measurement there is no ratio and no interval."""
    rows = kernel_rows(samples.plan_body(layers=1, measured=False), {})
    assert all(row.ratio is None and row.low_seconds is None for row in rows)
    assert all(row.seconds == row.predicted_seconds for row in rows)


def test_rows_speak_the_users_names_and_else_operators() -> None:
    """Ids alone tell nothing, so that a plan without names shows its operators."""
    body = samples.plan_body(layers=1)
    named = kernel_rows(body, samples.user_names(body))[3]
    assert named.summary.startswith("/encoder/layer.0/max_")
    assert named.more == len(named.nodes) - 3
    bare = kernel_rows(body, {})[3]
    assert bare.summary == "max, sub, exp"
    assert bare.nodes == ("n6", "n7", "n8", "n9", "n10")


def test_each_user_name_is_told_once() -> None:
    """Many primitives of one composite node are that one node."""
    names = {"n0": ("norm",), "n1": ("norm",), "n2": ()}
    assert user_names(("n0", "n1", "n2"), names) == ("norm", "n2")


def test_baselines_stand_slowest_first() -> None:
    """Each says how much slower it is, in words instead of keys."""
    rows = baseline_rows(samples.plan_body(layers=1))
    assert [row.label for row in rows] == ["no fusion", "TVM's rules"]
    assert rows[0].slower == pytest.approx(1.62)
