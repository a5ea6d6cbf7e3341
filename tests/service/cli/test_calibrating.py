"""Plans for calibrated devices, and what the commands print of a calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cost_model.calibration import restore
from cost_model.catalog import cpu
from cost_model.refining import scaled
from cost_model.roofline import predict
from service.cli import calibrating
from tests.service.cli.conftest import Fuseplan
from tests.tuner.calibration.fakes import ModelTimer
from tuner.calibration.fit import calibrate_device

TRUTH = scaled(cpu(), "dram_bytes_per_second", 0.5)


class FakeRunner(ModelTimer):
    """A runner whose device takes half as much from memory."""

    def __init__(self, device: str) -> None:
        """Name the device."""
        super().__init__(TRUTH)
        self.device = device

    def __enter__(self) -> FakeRunner:
        """Nothing to start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""


@pytest.fixture
def calibration(fuseplan: Fuseplan, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command's answer on a machine without hardware."""
    monkeypatch.setattr("tuner.runtime.runner.Runner", FakeRunner)
    return fuseplan("calibrate", "--json").json


def test_a_calibration_is_told_with_its_residuals(calibration: Any) -> None:
    """Which numbers changed, how well they fit, and every sample."""
    assert calibration["base"] == "cpu"
    assert calibration["target"] == f"cpu@{calibration['digest'][:8]}"
    old, new = calibration["changed"]["dram_bytes_per_second"]
    assert new == pytest.approx(old / 2, rel=0.2)
    assert calibration["residuals"]["copy"]["samples"] > 10
    assert all(sample["predicted_seconds"] > 0 for sample in calibration["samples"])


def test_the_planner_uses_it_only_when_asked(
    fuseplan: Fuseplan, model: Path, calibration: Any
) -> None:
    """The calibrated device is another target with another key; `cpu` stays."""
    plain = fuseplan("plan", model, "--target", "cpu", "--json").json
    latest = fuseplan("plan", model, "--target", "cpu@latest", "--json").json
    named = fuseplan("plan", model, "--target", calibration["target"], "--json").json
    assert plain["target"] == {"id": "cpu", "digest": cpu().digest}
    assert latest["target"]["id"] == calibration["target"]
    assert latest["target"]["digest"] == calibration["digest"]
    assert latest["plan_key"] == named["plan_key"] != plain["plan_key"]


def test_a_run_is_priced_by_the_numbers_that_were_asked_for(
    fuseplan: Fuseplan, model: Path
) -> None:
    """The tuned plan rests on them, and is kept by its own key, not by `cpu`s."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tuner.runtime.runner.Runner", FakeRunner)
        named = fuseplan("calibrate", "--json").json["target"]
    words = ("--budget-seconds", 4, "--budget-trials", 3, "--json")
    tuned = fuseplan("tune", model, "--target", "cpu@latest", *words).json
    assert tuned["target"]["id"] == named
    found = fuseplan("lookup", model, "--target", named, "--require", "measured")
    assert found.code == 0
    plain = fuseplan("lookup", model, "--target", "cpu", "--require", "measured")
    assert plain.code != 0
    refused = fuseplan("tune", model, "--target", "sm_90", *words)
    assert refused.code == 2
    assert "is another device than cpu, which is cpu" in refused.out


def test_the_table_names_the_target(
    fuseplan: Fuseplan, calibration: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person reads how to plan for it."""
    ended = fuseplan("calibrate", "--seconds", 60)
    assert ended.code == 0
    assert f"--target {calibration['target']}" in ended.out


def test_an_unknown_calibration_is_an_error(fuseplan: Fuseplan, model: Path) -> None:
    """Nothing is planned with other numbers than those asked for."""
    ended = fuseplan("plan", model, "--target", "cpu@12345678")
    assert ended.code != 0
    assert "no such calibration" in ended.err


def test_flat_numbers_name_pipes() -> None:
    """Rates by pipe are shown one by one."""
    flat = calibrating._flat(cpu().numbers)
    assert flat["operations_per_second.fma32"] > 0
    assert "kind" not in flat


def test_stored_numbers_predict_the_same() -> None:
    """A device restored from its numbers gives the very same seconds."""
    fitted = calibrate_device(cpu(), ModelTimer(TRUTH), lambda: 0.0)
    device = fitted.calibration.device
    again = restore(cpu(), device.numbers)
    work = fitted.timed[-1].kernel.work
    assert predict(work, again) == predict(work, device)


def test_explain_names_delicate_numbers(fuseplan: Fuseplan, model: Path) -> None:
    """Every number of the device has an answer: a factor, never, or no time."""
    told = fuseplan("explain", model, "--sensitivity", "--time-limit", 5, "--json").json
    assert told["target"]["id"] == "cpu"
    names = {one["number"] for one in told["numbers"]}
    assert {"dram_bytes_per_second", "launch_seconds"} <= names
    ended = fuseplan("explain", model, "--sensitivity", "--time-limit", 1)
    assert ended.code == 0
    assert "changes at" in ended.out
