"""Cold caches: what is done before every timed launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_model.catalog import find
from tests.tuner.runtime.graphs import GOOD, exp_add
from tuner.runtime.bench import Bench
from tuner.runtime.flush import before_each, host_flush
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.requests import MeasureRequest
from tuner.search.measuring import flush_bytes


def test_every_timed_launch_follows_a_flush() -> None:
    """A sample of many launches is one cold one, as if all had taken so long."""
    told: list[str] = []

    def run(launches: int) -> float:
        told.append(f"run {launches}")
        return 0.5

    cold = before_each(run, lambda: told.append("flush"))
    assert cold(1) == pytest.approx(0.5)
    assert told == ["flush", "run 1"]
    told.clear()
    assert cold(1000) == pytest.approx(500.0)
    assert told == ["flush", "run 1"]


def test_a_flush_is_larger_than_all_caches_together() -> None:
    """Sized by the device, so by the bend of the copy curve where it was measured."""
    device = find("cpu")
    caches = device.l2_bytes + device.multiprocessors * device.l1_bytes
    assert flush_bytes("cold", device) > caches
    smaller = replace(device, l2_bytes=device.l2_bytes // 4)
    assert flush_bytes("cold", smaller) < flush_bytes("cold", device)
    assert flush_bytes("warm", device) == 0


def test_the_host_flush_touches_as_much() -> None:
    """It reads and writes all of its bytes."""
    assert getattr(host_flush(4096)(), "nbytes", 0) == 4096


def test_both_modes_measure_on_a_processor(opencl: OpenCLBackend) -> None:
    """Verified alike; by turns, a cold launch takes longer than a warm one."""
    warm = MeasureRequest(graph=exp_add(), source=GOOD, repeats=7, budget_seconds=0.05)
    cold = replace(warm, flush_bytes=8 << 20)
    found = Bench(opencl).measure_by_turns([warm, cold])
    assert all(len(m.samples) >= 7 and not m.failure for m in found)
    assert found[0].max_abs_error == found[1].max_abs_error
    assert found[0].seconds < found[1].seconds
