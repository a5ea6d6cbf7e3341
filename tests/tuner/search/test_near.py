"""Hints from kernels of the same structure."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cost_model.catalog import DEVICES
from tests.tuner.runtime.graphs import exp_add, matmul_add
from tests.tuner.search.conftest import no_clock
from tuner.model import Model
from tuner.plan import Family, Options, Schedule
from tuner.search.budget import Budget
from tuner.search.near import Neighbours, distance, is_like, near_key, sizes
from tuner.search.session import TuningSession


def _record(count: int, threads: int, seconds: float, **more: Any) -> dict[str, Any]:
    graph = exp_add(count)
    return {
        "near": near_key(graph, Family.POINTWISE),
        "sizes": list(sizes(graph)),
        "schedule": {"threads": threads},
        "seconds": seconds,
        **more,
    }


def test_extents_do_not_enter_the_structure() -> None:
    """Other sizes are near, other operators and families are not."""
    one = near_key(exp_add(64), Family.POINTWISE)
    assert one == near_key(exp_add(4096), Family.POINTWISE)
    assert one != near_key(exp_add(64), Family.LIBRARY)
    assert one != near_key(matmul_add(), Family.POINTWISE)


def test_the_nearest_kernels_best_schedule_is_the_hint() -> None:
    """First by distance of extents, then by time; failures give no hint."""
    found = Neighbours(
        [
            _record(1 << 20, 1024, 1.0),
            _record(1 << 12, 128, 2.0),
            _record(1 << 12, 256, 1.5),
            _record(1 << 11, 32, 0.1, failure="timeout"),
            _record(1 << 11, 16, 0.1, contended=True),
        ]
    )
    hints = found.hints(exp_add(1 << 11), Family.POINTWISE)
    assert hints == (Schedule.of(threads=256),)
    assert found.hints(exp_add(1 << 19), Family.POINTWISE) == (
        Schedule.of(threads=1024),
    )
    assert found.hints(matmul_add(), Family.POINTWISE) == ()


def test_other_devices_give_hints_where_ones_own_are_farther() -> None:
    """Of equally near kernels one's own run counts, whatever it took."""
    elsewhere = [_record(1 << 12, 64, 0.1), _record(1 << 20, 512, 0.1)]
    found = Neighbours([_record(1 << 12, 256, 1.5)], elsewhere)
    same = found.hints(exp_add(1 << 12), Family.POINTWISE)
    assert same == (Schedule.of(threads=256),)
    large = found.hints(exp_add(1 << 19), Family.POINTWISE)
    assert large == (Schedule.of(threads=512),)


def test_devices_of_a_kind_are_alike() -> None:
    """A device is not like itself, nor one that nobody knows like any."""
    a100 = DEVICES["a100-40"]
    names = ("a100-80", "t4", "a100-40", "cpu", "ideal", "something else")
    assert [name for name in names if is_like(name, a100)] == ["a100-80", "t4"]


def test_a_run_takes_hints_from_devices_like_its_own(model: Model) -> None:
    """What ran on another kind of device says nothing; nothing is known by it."""
    there, other = _record(64, 16, 1.0), _record(64, 32, 1.0)
    elsewhere = [("t4", there), ("cpu", other)]
    tuning = TuningSession(
        model, "a100-40", Options(), Budget(), elsewhere=elsewhere, clock=no_clock
    )
    assert tuning._run.elsewhere == [there]
    assert not tuning._run.known.records


@pytest.mark.parametrize(
    "damage", [{"sizes": 3}, {"schedule": None}, {"seconds": None}, {"near": 1}]
)
def test_damaged_records_give_no_hint(damage: dict[str, Any]) -> None:
    """What cannot be read is passed over."""
    found = Neighbours([{**_record(64, 16, 1.0), **damage}, "nonsense"])
    assert found.hints(exp_add(64), Family.POINTWISE) == ()


def test_distance() -> None:
    """Twice as large is as far as half as large; other ranks are no neighbours."""
    assert distance((8,), (16,)) == pytest.approx(distance((16,), (8,)))
    assert distance((8, 8), (8, 8)) == 0
    assert distance((8,), (8, 8)) == math.inf
