"""Two plans as ribbons of time."""

from __future__ import annotations

import pytest

from service.dashboard.ribbons import LEAST, WIDTH, ribbons
from tests.service.dashboard import samples

BODY = samples.plan_body(layers=1)


def test_the_longer_plan_fills_the_ribbon() -> None:
    """Both stand on one scale, so that the faster plan is the shorter ribbon."""
    faster = samples.plan_body(layers=1, measured=False)
    first, second = ribbons(BODY, faster)
    ends = [max(p.x + p.width for p in one.pieces) for one in (first, second)]
    assert max(ends) == pytest.approx(WIDTH, abs=1.0)
    times = [
        sum(k["measurement"]["seconds"] for k in BODY["kernels"]),
        sum(k["estimate"]["seconds"] for k in faster["kernels"]),
    ]
    assert ends[1] / ends[0] == pytest.approx(times[1] / times[0], abs=0.01)


def test_what_is_the_same_is_pale() -> None:
    """A kernel is the same where the other plan has one that does its nodes."""
    other = samples.plan_body(layers=1)
    joined = other["kernels"].pop(1)
    other["kernels"][0]["nodes"] += joined["nodes"]
    first, second = ribbons(BODY, other)
    assert [piece.is_same for piece in first.pieces[:3]] == [False, False, True]
    assert [piece.is_same for piece in second.pieces[:2]] == [False, True]
    foreign = {**other, "graph": {**other["graph"], "outputs": []}}
    assert not any(p.is_same for one in ribbons(BODY, foreign) for p in one.pieces)


def test_a_large_plan_is_few_pieces() -> None:
    """Short kernels are drawn together, and none is lost."""
    body = samples.plan_body(layers=130)
    first, _ = ribbons(body, body)
    assert len(first.pieces) <= WIDTH / LEAST + 1
    assert first.text.startswith("before: 1\u202f560 kernels")
