"""Commands that use a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.service.cli.conftest import EXAMPLES, Fuseplan


def test_run_verifies_a_plan(fuseplan: Fuseplan, model: Path) -> None:
    """The whole plan agrees with ONNX Runtime, and says how far it is off."""
    ended = fuseplan("run", model, "--device", "cpu", "--verify", "--json")
    assert ended.code == 0
    report = ended.json
    assert report["verified"] is True
    assert 0 <= report["max_abs_error"] < 1e-4
    assert report["seconds"] > 0
    assert report["peak_memory_bytes"] >= 2 * 64 * 256 * 4


def test_run_takes_a_stored_plan(
    fuseplan: Fuseplan, model: Path, tmp_path: Path
) -> None:
    """A plan in canonical ids runs with its own kernels."""
    folder = tmp_path / "kernels"
    fuseplan("export", model, "-o", folder)
    body = json.loads((folder / "manifest.json").read_text())["plan"]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(body))
    ended = fuseplan("run", model, "--plan", path, "--verify", "--json")
    assert ended.code == 0
    assert ended.json["verified"] is True
    path.write_text(json.dumps({**body, "plan_key": "0" * 64}))
    assert fuseplan("run", model, "--plan", path).code == 2
    path.write_text("{}")
    assert fuseplan("run", model, "--plan", path).code == 2


def test_a_light_model_needs_a_seed(fuseplan: Fuseplan) -> None:
    """Weights that were left out are filled only when the user says so."""
    ended = fuseplan("run", EXAMPLES / "encoder.onnx")
    assert ended.code == 2
    assert "--random-weights" in ended.err


@pytest.mark.parametrize(("device", "code"), [("cuda:99", 5), ("moon", 2)])
def test_absent_devices_are_told(
    fuseplan: Fuseplan, model: Path, device: str, code: int
) -> None:
    """A GPU that is not there is no usage error, a word that is no device is."""
    assert fuseplan("run", model, "--device", device).code == code


def test_tune_without_a_service(fuseplan: Fuseplan, model: Path) -> None:
    """A budget of a few runs gives a plan, and what the search has cost."""
    ended = fuseplan(
        *("tune", model, "--device", "cpu"),
        *("--budget-seconds", 4, "--budget-trials", 3, "--json"),
    )
    assert ended.code == 0
    assert 1 <= ended.json["tuning"]["trials"] <= 3
    assert ended.json["kernels"][0]["nodes"] == ["masked", "softmax"]
