"""The roofline: points under the roofs of their device."""

from __future__ import annotations

import pytest

from service.dashboard.kernels import kernel_rows
from service.dashboard.roofline import MAX_POINTS, roofline_view
from tests.service.dashboard import samples

NUMBERS = {
    "dram_bytes_per_second": 4e10,
    "l2_bytes_per_second": 6e10,
    "operations_per_second": {"fma32": 8e10},
}


def test_height_under_the_roof_is_the_share_of_busy_arithmetic() -> None:
    """A kernel whose compute term is half its time stands at half the roof."""
    rows = kernel_rows(samples.plan_body(layers=1), {})
    view = roofline_view(rows, NUMBERS, "/k/")
    row = max(rows, key=lambda row: row.seconds)
    point = view["points"][0]
    assert point["name"] == row.name
    busy = dict(row.terms)["compute"]
    assert point["predicted"] / 8e10 == pytest.approx(busy / row.predicted_seconds)
    assert point["measured"] / 8e10 == pytest.approx(busy / row.seconds)
    assert point["intensity"] == pytest.approx(busy * 8e10 / row.traffic_bytes)
    assert point["href"] == f"/k/{row.name}"


def test_every_memory_level_that_is_known_has_a_roof() -> None:
    """Levels without a number are left out, and nothing is made up for them."""
    view = roofline_view((), NUMBERS, "")
    assert [roof["bytes_per_second"] for roof in view["memory"]] == [4e10, 6e10]
    assert roofline_view((), {}, "")["compute"] == []


def test_what_is_not_drawn_is_counted() -> None:
    """Kernels without arithmetic, and those beyond the limit, are told of."""
    body = samples.plan_body(layers=60)
    for kernel in body["kernels"][:5]:
        kernel["estimate"]["compute_seconds"] = 0.0
    view = roofline_view(kernel_rows(body, {}), NUMBERS, "")
    assert len(view["points"]) == MAX_POINTS
    assert view["without_arithmetic"] == 5
    assert view["not_drawn"] == 60 * 12 - 5 - MAX_POINTS
