"""The stand-alone test of a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner import selftest
from tuner.runtime.cuda import device_count

ROOT = Path(__file__).parents[2]

BLOCKING = """
import importlib.abc
import sys

ALLOWED = {"cost_model", "tuner", "numpy", "onnx", "google", "ml_dtypes",
           "typing_extensions", "cupy", *sys.stdlib_module_names}


class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ImportError(f"{name} is blocked")
        return None


sys.meta_path.insert(0, Block())
from tuner.selftest import main
sys.exit(main(sys.argv[1:]))
"""


def _stages(report: Path) -> dict[str, Any]:
    content = json.loads(report.read_text())
    return {stage["name"]: stage for stage in content["stages"]}


def test_it_needs_numpy_and_onnx_alone(tmp_path: Path) -> None:
    """With every other import blocked, the null device passes all stages."""
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            BLOCKING,
            "--device",
            "null",
            "--copy-bytes",
            "65536",
            "--report",
            str(report),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == selftest.OK, done.stdout + done.stderr
    stages = _stages(report)
    assert list(stages) == [
        "environment",
        "device",
        "raw kernel",
        "pointwise kernel",
        "row kernel",
        "copy",
    ]
    assert all(stage["ok"] for stage in stages.values())


@pytest.mark.usefixtures("opencl")
def test_it_passes_on_the_cpu(tmp_path: Path) -> None:
    """On a machine with OpenCL, hand-written and generated kernels are verified."""
    report = tmp_path / "report.json"
    arguments = ["--device", "cpu", "--copy-bytes", "65536", "--report", str(report)]
    assert selftest.main(arguments) == selftest.OK
    stages = _stages(report)
    assert stages["row kernel"]["found"]["max_rel_error"] < 1e-5
    assert stages["copy"]["found"]["bytes_per_second"] > 0


@pytest.mark.skipif(device_count() > 0, reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No GPU is exit code 5, one clear line, and a report that ends there."""
    report = tmp_path / "report.json"
    code = selftest.main(["--device", "cuda", "--report", str(report)])
    assert code == selftest.UNAVAILABLE
    said = capsys.readouterr().out
    assert "device: FAILED" in said
    assert "Traceback" not in said
    assert list(_stages(report)) == ["environment", "device"]


def test_an_unknown_device_is_unavailable() -> None:
    """A name that is no device ends alike."""
    assert selftest.main(["--device", "tpu"]) == selftest.UNAVAILABLE


def test_a_spent_budget_leaves_stages_out(tmp_path: Path) -> None:
    """When the time is up, what is left is named, and nothing hangs."""
    said: list[str] = []
    test = selftest.SelfTest("null", budget_seconds=0.0, report=None, say=said.append)
    assert test.run(1 << 16) == selftest.OK
    assert any("left out" in line for line in said)
