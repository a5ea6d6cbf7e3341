"""A stored plan is only replaced by one that is not slower: on a busy processor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.tuner.search.conftest import body_of, run_to_end
from tests.tuner.search.test_never_regress import little
from tuner.execution import whole_request
from tuner.model import Model
from tuner.plan import Options, Plan
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.contest import surely_faster
from tuner.search.session import TuningSession

__all__ = ["little"]  # a fixture


def test_no_update_under_load_makes_a_plan_slower(
    opencl: OpenCLBackend, little: Model, soak: bool
) -> None:
    """Updates while another process computes: a quiet comparison finds none slower."""
    assert opencl.name
    before: Plan | None = None
    stored: dict[str, Any] | None = None
    budget = Budget(seconds=3.0, trials=4, trials_per_kernel=2)
    with Runner("cpu") as runner:
        for seed in range(20 if soak else 2):
            tuning = TuningSession(
                little, "cpu", Options(), budget, seed=seed, incumbent=stored
            )
            with _load():
                run_to_end(tuning, runner)
            now = tuning.plan()
            if tuning.winner == "incumbent" or now.whole["plan"].failure:
                continue
            if before is not None:
                plans = {"before": before, "now": now}
                request = whole_request(
                    little, plans, "opencl", budget_seconds=1.0, attempts=4
                )
                found = runner.measure_whole(request).measurements
                assert not surely_faster(found["before"], found["now"]), seed
            before, stored = now, body_of(tuning)
    assert before is not None


@contextmanager
def _load() -> Iterator[None]:
    """Another process computes."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()
