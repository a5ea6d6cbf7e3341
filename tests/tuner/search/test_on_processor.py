"""A short tuning run on this processor, from end to end."""

from __future__ import annotations

import json

from tests.tuner.search.conftest import body_of, results_by_key, run_to_end
from tuner.model import Model
from tuner.plan import Options
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession


def test_a_run_measures_verifies_and_is_served_the_second_time(
    opencl: OpenCLBackend, model: Model
) -> None:
    """Kernels and whole plans pass; a second run repeats nothing undisturbed."""
    budget = Budget(seconds=6.0, trials=8, trials_per_kernel=3)
    with Runner("cpu") as runner:
        first = TuningSession(model, "cpu", Options(), budget)
        log = run_to_end(first, runner)
        known = results_by_key(log)
        second = TuningSession(model, "cpu", Options(), budget, known)
        log_of_second = run_to_end(second, runner)
    failed = [r for _, results in log for r in results if r.get("failure")]
    assert not failed
    whole = log[-1][1][0]
    assert whole["verified"]
    assert {"untuned", "unfused", "reference"} <= set(whole["whole"])
    assert all(not m["failure"] for m in whole["whole"].values())
    assert json.loads(json.dumps(body_of(first)))["refinement"]["trials"] > 0
    quiet = {key for key, result in known.items() if not result["contended"]}
    measured_again = {
        item["key"]
        for batch, _ in log_of_second
        for item in batch["items"]
        if item["kind"] == "kernel"
    }
    assert quiet
    assert not quiet & measured_again
    assert opencl.name in str(first.toolchain)
