"""Runs that other processes disturb: they never win, and are told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.tuner.search.conftest import (
    PATIENT,
    body_of,
    kernel_runs,
    made_up_seconds,
    run_to_end,
    session_of,
)
from tuner.model import Model
from tuner.plan import Measurement
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult
from tuner.search.kernels import RETRIES


class Busy(NullRunner):
    """A device that other processes disturb."""

    def measure(self, request: MeasureRequest) -> Measurement:
        """Answer, disturbed."""
        return replace(super().measure(request), contended=True)

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Answer, disturbed."""
        found = super().measure_whole(request)
        disturbed = {
            name: replace(m, contended=True) for name, m in found.measurements.items()
        }
        return replace(found, measurements=disturbed)


def test_disturbed_runs_never_win(model: Model) -> None:
    """On a busy machine the untuned plan stays, and the run says why it is partial."""
    tuning = session_of(model)
    run_to_end(tuning, Busy(made_up_seconds))
    assert tuning.winner == "untuned"
    assert "undisturbed" in tuning.partial_reason
    assert all(k.schedule == _first_schedule(tuning, k) for k in tuning.plan().kernels)
    assert not body_of(tuning)["refinement"]["measured_optimal"]


def _first_schedule(tuning: Any, kernel: Any) -> Any:
    return tuning._run.kernels[kernel.fingerprint].default


@pytest.mark.parametrize("times", [1, RETRIES])
def test_a_disturbed_default_is_run_again(model: Model, times: int) -> None:
    """A later, quiet run of the same schedule takes the disturbed one's place."""
    seen: Counter[str] = Counter()

    class Settling(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            text = (
                request.source.digest if request.source else repr(request.graph.nodes)
            )
            found = super().measure(request)
            seen[text] += 1
            return replace(found, contended=seen[text] <= times)

    tuning = session_of(model, budget=PATIENT)
    run_to_end(tuning, Settling(made_up_seconds))
    assert tuning.partial_reason == ""
    assert all(
        k.measurement and not k.measurement.contended for k in tuning.plan().kernels
    )


def test_a_kernel_that_never_runs_undisturbed_is_given_up(model: Model) -> None:
    """The runs of each are bounded; the plan is there, and nothing is said proved."""
    tuning = session_of(model, budget=PATIENT)
    runs = Counter(kernel_runs(run_to_end(tuning, Busy(made_up_seconds))))
    assert max(runs.values()) == 1 + RETRIES
    used = {k.fingerprint for k in tuning.plan().kernels}
    assert all(tuning._run.kernels[name].is_drowned for name in used)


def test_a_kernel_that_drowns_makes_the_run_partial(model: Model) -> None:
    """One kernel of the plan that never ran undisturbed is noise, and is told."""

    class Drowning(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            found = super().measure(request)
            return replace(found, contended=request.graph.nodes[0].op == "matmul")

    tuning = session_of(model, budget=PATIENT)
    run_to_end(tuning, Drowning(made_up_seconds))
    assert tuning.partial_reason.startswith("noise: every run of ")
