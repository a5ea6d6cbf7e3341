"""Kernel runs in the formats of other tuners."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.tuner.search.conftest import Log, results_by_key, run_to_end, session_of
from tuner.errors import InvalidModel
from tuner.model import Model
from tuner.plan import Measurement, Schedule
from tuner.runtime.null import NullRunner
from tuner.search.exchange import (
    KernelRuns,
    from_kernel_tuner,
    from_t4,
    runs_of,
    to_kernel_tuner,
    to_t4,
)
from tuner.search.session import TuningSession

NOW = "2026-01-01T00:00:00+00:00"
FAST = Measurement(
    seconds=0.001, samples=(0.0009, 0.001, 0.0011), low_seconds=0.0009,
    high_seconds=0.0011,
)  # fmt: skip
KINDS = ("compile", "runtime", "timeout", "correctness", "resources")


def _runs() -> KernelRuns:
    runs = {Schedule.of(threads=32, vector=1): FAST}
    for n, kind in enumerate(KINDS):
        failed = Measurement(seconds=math.inf, failure=kind, message="imported")
        runs[Schedule.of(threads=64 + n, vector=2)] = failed
    return KernelRuns(
        kernel="pointwise:abc", device_name="a device", runs=runs, sizes=(64, 96),
        near="structure",
    )  # fmt: skip


def _same(one: KernelRuns, other: KernelRuns) -> None:
    assert set(one.runs) == set(other.runs)
    for schedule, measurement in one.runs.items():
        there = other.runs[schedule]
        assert there.failure == measurement.failure
        assert there.seconds == pytest.approx(measurement.seconds)
        assert there.samples == pytest.approx(measurement.samples)


def test_kernel_tuners_cache_keeps_everything() -> None:
    """Written and read: schedules, samples, failures, device, extents, structure."""
    runs = _runs()
    stored = json.loads(json.dumps(to_kernel_tuner(runs, timestamp=NOW)))
    again = from_kernel_tuner(stored)
    _same(runs, again)
    assert (again.kernel, again.device_name) == (runs.kernel, runs.device_name)
    assert (again.sizes, again.near) == (runs.sizes, runs.near)


def test_the_cache_has_what_its_schema_requires() -> None:
    """Keys are the knobs' values in order; times are milliseconds."""
    stored = to_kernel_tuner(_runs(), timestamp=NOW)
    assert stored["schema_version"] == "1.1.0"
    assert stored["tune_params_keys"] == ["threads", "vector"]
    line = stored["cache"]["32,1"]
    assert line["time"] == pytest.approx(1.0)
    assert stored["cache"]["64,2"]["time"] == "CompilationFailedConfig"
    required = {
        "time", "compile_time", "verification_time", "benchmark_time",
        "strategy_time", "framework_time", "timestamp",
    }  # fmt: skip
    assert all(required <= set(entry) for entry in stored["cache"].values())


def test_t4_keeps_what_it_can_say() -> None:
    """Written and read: schedules, samples and failures, each by its own word."""
    runs = _runs()
    stored = json.loads(json.dumps(to_t4(runs, timestamp=NOW)))
    _same(runs, from_t4(stored))
    words = [entry["invalidity"] for entry in stored["results"]]
    assert words == [
        "correct", "compile", "runtime", "timeout", "correctness", "constraints",
    ]  # fmt: skip


def test_a_cache_of_kernel_tuners_own_is_read() -> None:
    """An older file without a version, with foreign parameters."""
    stored = {
        "device_name": "A100",
        "kernel_name": "convolution",
        "problem_size": [4096, 4096],
        "tune_params_keys": ["block_size_x", "layout"],
        "tune_params": {"block_size_x": [16], "layout": ["row", 1]},
        "cache": {
            "16,1": {"block_size_x": 16, "layout": 1, "time": 3.5},
            "16,row": {"block_size_x": 16, "layout": "row", "time": 3.0},
            "32,1": {"block_size_x": 32, "layout": 1, "time": "InvalidConfig"},
        },
    }
    runs = from_kernel_tuner(stored)
    assert runs.runs[Schedule.of(block_size_x=16, layout=1)].seconds == 0.0035
    assert runs.runs[Schedule.of(block_size_x=32, layout=1)].failure == "resources"
    assert len(runs.runs) == 2


@pytest.mark.parametrize(
    "stored",
    [{"schema_version": "9.0.0"}, {"cache": {}}, {"tune_params_keys": [], "cache": 3}],
)
def test_damaged_files_are_refused(stored: dict[str, Any]) -> None:
    """The error says what is wrong."""
    with pytest.raises(InvalidModel, match=r"damaged|version"):
        from_kernel_tuner(stored)
    with pytest.raises(InvalidModel, match=r"damaged|version"):
        from_t4(stored)


def test_what_a_run_measured_can_be_exported_and_hints(
    model: Model, runner: NullRunner, finished: tuple[TuningSession, Log]
) -> None:
    """A session's results, out and in again, suggest schedules and answer nothing."""
    _, log = finished
    found = runs_of(results_by_key(log).values(), "null")
    assert {runs.kernel for runs in found} == {k for k, _ in _runs_of_log(log)}
    known = {}
    for runs in found:
        again = from_kernel_tuner(to_kernel_tuner(runs, timestamp=NOW))
        known.update({f"{runs.kernel}/{n}": h for n, h in enumerate(again.as_hints())})
    second = session_of(model, known)
    assert _runs_of_log(run_to_end(second, runner))
    assert not any(state.loaded for state in second._run.kernels.values())


def _runs_of_log(log: Any) -> list[tuple[str, str]]:
    return [
        (item["kernel"], str(item["schedule"]))
        for batch, _ in log
        for item in batch["items"]
        if item["kind"] == "kernel"
    ]
