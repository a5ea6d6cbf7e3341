"""The stand-alone test of a machine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner import selftest
from tuner.errors import VerificationFailed
from tuner.kernel.lower import lower
from tuner.runtime.bench import Bench
from tuner.runtime.cuda import device_count
from tuner.runtime.null import NullBackend
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.requests import MeasureRequest
from tuner.selftest import alone, models
from tuner.selftest.stages import Extent
from tuner.selftest.subjects import Subject, behaviours, not_newer, suite, target

ROOT = Path(__file__).parents[2]

BLOCKING = """
import importlib.abc
import sys

ALLOWED = {"cost_model", "tuner", "numpy", "onnx", "google", "ml_dtypes",
           "typing_extensions", "cupy", "_sysconfigdata__linux_x86_64-linux-gnu",
           *sys.stdlib_module_names}


class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ImportError(f"{name} is blocked")
        return None


sys.meta_path.insert(0, Block())
"""


def _stages(report: Path) -> dict[str, Any]:
    content = json.loads(report.read_text())
    return {stage["name"]: stage for stage in content["stages"]}


def test_it_needs_numpy_and_onnx_alone(tmp_path: Path) -> None:
    """With every other import blocked, in children too, the null device passes all."""
    report = tmp_path / "report.json"
    (tmp_path / "sitecustomize.py").write_text(BLOCKING)
    words = ["--device", "null", "--copy-bytes", "65536", "--kernels", "5"]
    done = subprocess.run(
        [sys.executable, "-m", "tuner.selftest", *words, "--report", str(report)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == selftest.OK, done.stdout + done.stderr
    stages = _stages(report)
    assert stages["environment"]["found"]["optional"] in ([], ["cupy"])
    assert list(stages)[1:4] == ["device", "raw kernel", "copy"]
    assert sum(name.startswith("model: ") for name in stages) == 4
    assert stages["model: encoder"]["found"]["library_calls"] == 0
    assert stages["calibration"]["found"]["numbers"]["dram_bytes_per_second"] > 0
    assert all(stage["ok"] for stage in stages.values())


@pytest.mark.usefixtures("opencl")
def test_it_passes_on_the_cpu(tmp_path: Path) -> None:
    """Kernels and models are verified; faults cost a child, and the device goes on."""
    report = tmp_path / "report.json"
    words = ["--kernels", "2", "--copy-bytes", "65536", "--calibration", "0"]
    assert selftest.main([*words, "--report", str(report)]) == selftest.OK
    stages = _stages(report)
    assert list(stages)[2:6] == [
        "raw kernel",
        "fault: out of bounds",
        "fault: endless loop",
        "copy",
    ]
    assert stages["copy"]["found"]["bytes_per_second"] > 0
    wild = stages["fault: out of bounds"]["found"]
    hung = stages["fault: endless loop"]["found"]
    assert (wild["noticed_as"], hung["noticed_as"]) == ("runtime", "timeout")
    assert wild["children_lost"] == hung["children_lost"] == 1
    assert wild["works_afterwards"]
    assert hung["works_afterwards"]
    assert stages["model: encoder"]["found"]["max_rel_error"] < 1e-4
    assert stages["peer: numpy"]["found"]["softmax"]["seconds"] > 0


def test_the_suite_holds_every_family_in_both_languages() -> None:
    """What runs on a GPU runs on a processor: the same kernels, in the same order."""
    sides = [list(suite(target(device))) for device in ("cuda", "cpu")]
    assert [s.name for s in sides[0]] == [s.name for s in sides[1]]
    families = {lower(subject.graph).family for subject in sides[0]}
    assert {"pointwise", "reduction", "contraction"} <= families
    assert all(subject.source.language == "cuda" for subject in sides[0])


def _in_parts(device: str) -> list[Subject]:
    return [s for s in suite(target(device)) if " in parts " in s.name]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_suite_holds_reductions_in_two_launches(device: str) -> None:
    """Rows and columns, whose last part is shorter, of floats and whole numbers."""
    found = _in_parts(device)
    assert len(found) == 12
    for subject in found:
        first, second = subject.source.launches
        assert first.text == second.text
        assert subject.source.scratch
        graphs = zip(subject.launched, (first, second), strict=True)
        for graph, launch in graphs:
            assert {a.tensor for a in launch.arguments} == {
                *graph.inputs,
                *graph.outputs,
            }


def test_the_null_device_does_both_launches() -> None:
    """What the first gives, the second puts together; one that is wrong is noticed."""
    subject = _in_parts("cpu")[0]
    known = behaviours(subject.source, subject.launched)
    assert len(known) == 2
    asked = MeasureRequest(graph=subject.graph, source=subject.source)
    assert not Bench(NullBackend(known)).measure(asked).failure
    first, second = known
    idle = {first: known[first], second: lambda _: None}
    with pytest.raises(VerificationFailed):
        Bench(NullBackend(idle)).measure(asked)


def test_kernels_in_two_launches_are_verified_on_the_cpu(
    opencl: OpenCLBackend,
) -> None:
    """The small ones of every type, and one of the large."""
    found = _in_parts("cpu")
    for subject in (*found[:6], found[6]):
        asked = MeasureRequest(graph=subject.graph, source=subject.source)
        measured = Bench(opencl).measure(asked)
        assert not measured.failure, (subject.name, measured.message)


def test_a_models_long_reduction_is_two_launches() -> None:
    """A step is launched as a plan would, and the null device follows."""
    model = models.read("losses")
    program = models.program_of(model, target("cuda"))
    split = [s for s in program.steps if s.source is not None and s.source.before]
    assert split
    for step in split:
        assert step.source is not None
        source, graphs = models.generated(step.graph, target("cuda"))
        assert source.text == step.source.text
        assert len(behaviours(source, graphs)) == 2
        assert set(step.source.scratch) <= set(program.types)
    assert alone.ask("null", "model", "losses", 240.0)["max_rel_error"] < 1e-4


@pytest.mark.parametrize(
    ("there", "taken"),
    [("sm_75", 75), ("sm_86", 86), ("sm_87", 86), ("sm_103", 100), ("sm_121", 120)],
)
def test_schedules_are_those_of_a_gpu_that_is_not_newer(there: str, taken: int) -> None:
    """A GPU that the catalogue does not know takes what an older one can do."""
    found = not_newer(there)
    assert found.architecture == f"sm_{taken}"
    kernels = [s.source.text for s in suite(found) if s.name.startswith("product f16")]
    assert all(("mma_" in text) == (taken >= 80) for text in kernels)


def test_a_child_that_dies_or_hangs_is_an_answer() -> None:
    """Its end is told with the last words; nothing waits for ever."""
    lost = alone.ask("null", "model", "/nowhere.onnx", 60.0)
    assert lost["failure"] == "runtime"
    assert "FileNotFoundError" in lost["message"]
    late = alone.ask("null", "model", "encoder", 0.01)
    assert late["failure"] == "timeout"


def test_a_peer_that_is_not_installed_says_so() -> None:
    """The library's own complaint is the message."""
    if importlib.util.find_spec("jax") is not None:
        pytest.skip("JAX is installed")
    assert "jax" in alone.ask("cpu", "peer", "jax", 60.0)["message"]


def test_models_of_a_folder_are_run(tmp_path: Path) -> None:
    """The smallest files are taken; what is computed elsewhere is seen as wrong."""
    for name, build in models.BUILT.items():
        (tmp_path / f"{name}.onnx").write_bytes(build().SerializeToString())
    found = models.names(tmp_path)
    assert len(found) == 4
    assert alone.ask("null", "model", found[0], 120.0)["max_rel_error"] < 1e-5


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
    assert test.run(Extent(copy_bytes=1 << 16, kernels=1)) == selftest.OK
    assert any("left out" in line for line in said)
