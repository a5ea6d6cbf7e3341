"""Tests of stopping the batch in flight."""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import cast

import pytest

from service.jobs.stopping import Stoppable, Stopped
from tuner.plan import Measurement
from tuner.runtime.requests import MeasureRequest, Measures, PlanRequest, PlanResult

NOTHING = cast("MeasureRequest", None)
DONE = cast("Measurement", object())


class Slow:
    """A device whose kernel runs until its process is killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.measured = 0

    @property
    def pid(self) -> int:
        """The process that measures."""
        return self.process.pid

    def measure(self, request: MeasureRequest) -> Measurement:
        """Wait for the process, as one waits for an answer."""
        self.process.wait()
        self.measured += 1
        return DONE

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Not asked here."""
        raise NotImplementedError


def test_the_batch_in_flight_is_stopped() -> None:
    """Once it is wished the measuring process is killed, and no more is run."""
    cancelled = threading.Event()
    device = Slow()
    threading.Timer(0.2, cancelled.set).start()
    with (
        Stoppable(cast("Measures", device), cancelled.is_set) as stoppable,
        pytest.raises(Stopped),
    ):
        stoppable.measure(NOTHING)
    assert device.process.returncode == -signal.SIGKILL
    with (
        Stoppable(cast("Measures", device), cancelled.is_set) as stoppable,
        pytest.raises(Stopped),
    ):
        stoppable.measure(NOTHING)
    assert device.measured == 1


def test_a_job_that_is_not_cancelled_is_left_alone() -> None:
    """The result comes through, and nobody is killed afterwards."""
    device = Slow()
    device.process.kill()
    with Stoppable(cast("Measures", device), lambda: False) as stoppable:
        assert stoppable.measure(NOTHING) is DONE
        assert stoppable.measured == 1
