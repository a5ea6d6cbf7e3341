"""Exported plans are built and run by others: CMake, a C compiler, nvcc."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.service.cli.conftest import Fuseplan, softmax_graph
from tests.tuner.frontend.models import model as onnx_model
from tests.tuner.frontend.models import node, value
from tuner.errors import DeviceUnavailable
from tuner.runtime.opencl import devices

SDK = Path(__file__).parent / "opencl_sdk"
LIBRARIES = Path(sys.prefix) / "lib"
GUIDE = Path(__file__).parents[3] / "docs" / "consume.md"

needs_cmake = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("cc") is None,
    reason="CMake and a C compiler build what was exported",
)
needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc compiles the exported kernels"
)


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """A shell in which CMake finds an OpenCL SDK, and its loader a device."""
    try:
        devices()
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    found = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CMAKE_INCLUDE_PATH": str(SDK),
        "CMAKE_LIBRARY_PATH": str(LIBRARIES),
        "CFLAGS": "-Wall -Wextra -Werror",
        "LD_LIBRARY_PATH": str(LIBRARIES),
    }
    runtime = LIBRARIES / "libintelocl.so"
    if runtime.exists():
        (tmp_path / "vendors").mkdir()
        (tmp_path / "vendors" / "one.icd").write_text(f"{runtime}\n")
        found["OCL_ICD_VENDORS"] = str(tmp_path / "vendors")
    return found


def _run(
    words: list[object], environment: Mapping[str, str], code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def _build(folder: Path, environment: Mapping[str, str]) -> None:
    _run(["cmake", "-B", folder / "build", "-S", folder], environment)
    _run(["cmake", "--build", folder / "build"], environment)


def _chain() -> onnx.ModelProto:
    """Several kernels with weights, constants, two outputs, and odd sizes."""
    rng = np.random.default_rng(3)
    return onnx_model(
        [
            node("Add", "x bias", "a"),
            node("LayerNormalization", "a scale shift", "n", axis=-1),
            node("Relu", "n", "r"),
            node("ReduceSum", "r axes", "s", keepdims=0),
            node("Softmax", "s", "y", axis=-1),
        ],
        [value("x", [8, 33, 70])],
        [value("y", [8, 70]), value("r", [8, 33, 70])],
        {
            "bias": rng.standard_normal(70).astype(np.float32),
            "scale": rng.standard_normal(70).astype(np.float32),
            "shift": rng.standard_normal(70).astype(np.float32),
            "axes": np.array([1]),
        },
    )


def _reference(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


@needs_cmake
def test_the_c_host_computes_what_the_model_says(
    fuseplan: Fuseplan, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """Built by CMake, run in its own process, it agrees with ONNX Runtime."""
    proto = _chain()
    path, folder = tmp_path / "chain.onnx", tmp_path / "out"
    path.write_bytes(proto.SerializeToString())
    assert fuseplan("export", path, "-f", "opencl", "-o", folder).code == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert not manifest["library_calls"]
    assert len(manifest["steps"]) > 1
    _build(folder, environment)
    given, found = tmp_path / "given", tmp_path / "found"
    given.mkdir()
    found.mkdir()
    x = np.random.default_rng(0).standard_normal((8, 33, 70)).astype(np.float32)
    (number,) = manifest["inputs"]
    x.tofile(given / f"{manifest['buffers'][number]['tensor']}.bin")
    _run([folder / "build" / "run_plan", folder, given, found], environment)
    for number, true in zip(
        manifest["outputs"], _reference(proto, {"x": x}), strict=True
    ):
        buffer = manifest["buffers"][number]
        ours = np.fromfile(found / f"{buffer['tensor']}.bin", np.float32)
        assert np.allclose(ours.reshape(true.shape), true, atol=1e-5)


def _norm(elements: int) -> onnx.ModelProto:
    return onnx_model(
        [node("ReduceL2", "x", "y", keepdims=0)],
        [value("x", [elements])],
        [value("y", [])],
    )


@needs_cmake
def test_a_kernel_of_two_launches_is_two_steps(
    fuseplan: Fuseplan, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """Two entries of one file, and memory between them; the C host needs no more."""
    proto = _norm(3_000_017)
    path, folder = tmp_path / "norm.onnx", tmp_path / "out"
    path.write_bytes(proto.SerializeToString())
    assert fuseplan("export", path, "-f", "opencl", "-o", folder).code == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    first, second = manifest["steps"]
    assert (first["name"], second["name"]) == ("k0.0", "k0")
    assert first["file"] == second["file"]
    assert first["entry"] != second["entry"]
    (between,) = {*first["arguments"]} & {*second["arguments"]}
    assert manifest["buffers"][between]["kind"] == "arena"
    _build(folder, environment)
    given, found = tmp_path / "given", tmp_path / "found"
    given.mkdir()
    found.mkdir()
    x = np.random.default_rng(0).standard_normal(3_000_017).astype(np.float32)
    (number,) = manifest["inputs"]
    x.tofile(given / f"{manifest['buffers'][number]['tensor']}.bin")
    _run([folder / "build" / "run_plan", folder, given, found], environment)
    (number,) = manifest["outputs"]
    name = manifest["buffers"][number]["tensor"]
    ours = np.fromfile(found / f"{name}.bin", np.float32)
    assert np.allclose(ours, np.linalg.norm(x.astype(np.float64)), rtol=1e-5)


@needs_cmake
def test_the_c_host_says_what_is_missing(
    fuseplan: Fuseplan, tmp_path: Path, environment: Mapping[str, str], model: Path
) -> None:
    """Too short an input is named with its right size; a wrong call shows the usage."""
    folder = tmp_path / "out"
    assert fuseplan("export", model, "-f", "opencl", "-o", folder).code == 0
    _build(folder, environment)
    program = folder / "build" / "run_plan"
    assert "usage" in _run([program], environment, code=2).stderr
    (tmp_path / "t0.bin").write_bytes(b"short")
    said = _run([program, folder, tmp_path, tmp_path], environment, code=1).stderr
    assert "t0.bin: must be there with 65536 bytes" in said
    for kernel in (folder / "kernels").iterdir():
        kernel.unlink()
    said = _run([program, folder, tmp_path, tmp_path], environment, code=1).stderr
    assert "cannot be read" in said


@needs_cmake
def test_library_calls_are_the_hosts_to_make(
    fuseplan: Fuseplan, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """They are listed with an ONNX model that the library runs; `run_plan` refuses."""
    proto = onnx_model(
        [node("TopK", "x k", "v i"), node("Relu", "v", "y")],
        [value("x", [4, 16])],
        [value("y", [4, 3])],
        {"k": np.array([3])},
    )
    path, folder = tmp_path / "top.onnx", tmp_path / "out"
    path.write_bytes(proto.SerializeToString())
    assert fuseplan("export", path, "-f", "opencl", "-o", folder).code == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    (name,) = manifest["library_calls"]
    step = next(s for s in manifest["steps"] if s["name"] == name)
    part = onnx.load(folder / step["model"])
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    top = _reference(part, {part.graph.input[0].name: x})[0]
    assert np.array_equal(np.maximum(top, 0), _reference(proto, {"x": x})[0])
    _build(folder, environment)
    words = [folder / "build" / "run_plan", folder, tmp_path, tmp_path]
    assert f"{name}: a library call" in _run(words, environment, code=3).stderr


def test_an_export_takes_away_what_the_last_one_left(
    fuseplan: Fuseplan, tmp_path: Path, model: Path
) -> None:
    """A folder holds one plan; what is a library call is told; other files stay."""
    proto = onnx_model(
        [node("TopK", "x k", "v i"), node("Relu", "v", "y")],
        [value("x", [4, 16])],
        [value("y", [4, 3])],
        {"k": np.array([3])},
    )
    path, folder = tmp_path / "top.onnx", tmp_path / "out"
    path.write_bytes(proto.SerializeToString())
    first = fuseplan("export", path, "-f", "opencl", "-o", folder)
    assert "library calls, which your host must make" in first.out
    assert "TopK" in first.out
    (folder / "kernels").mkdir(exist_ok=True)
    (folder / "kernels" / "notes.txt").write_text("mine")
    told = fuseplan("export", model, "-f", "opencl", "-o", folder, "--json").json
    assert told["library_calls"] == 0
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert there == {*told["files"], "kernels/notes.txt"}


@needs_cmake
@needs_nvcc
def test_nvcc_compiles_what_is_exported(
    fuseplan: Fuseplan, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """Every kernel becomes a cubin for the plan's target; the host's C compiles."""
    path, folder = tmp_path / "chain.onnx", tmp_path / "out"
    path.write_bytes(_chain().SerializeToString())
    assert fuseplan("export", path, "-t", "sm_90", "-o", folder).code == 0
    _build(folder, environment)
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {Path(s["file"]).stem for s in manifest["steps"]}
    made = {path.stem for path in (folder / "build" / "kernels").glob("*.cubin")}
    assert made == files
    warnings = ["-Xcompiler", "-Wall,-Wextra,-Werror"]
    source, made_of = folder / "host" / "device_cuda.c", tmp_path / "device_cuda.o"
    _run(["nvcc", *warnings, "-c", source, "-o", made_of], environment)


def test_weights_that_are_left_out_are_asked_for(
    fuseplan: Fuseplan, tmp_path: Path
) -> None:
    """Without values there is a model that prepares them, and no data is invented."""
    graph = softmax_graph()
    kind = {"dtype": "f32", "shape": [256]}
    graph["weights"] = [{"name": "a", **kind}, {"name": "b", **kind}]
    graph["nodes"] += [
        {"name": n, "op": op, "domain": "", "inputs": i, "outputs": [o]}
        | {"attributes": {}}
        for n, op, i, o in (
            ("both", "Mul", ["a", "b"], "ab"),
            ("scaled", "Mul", ["weights", "ab"], "y"),
        )
    ]
    graph["outputs"] = ["y"]
    path, folder = tmp_path / "light.json", tmp_path / "out"
    path.write_text(json.dumps(graph))
    assert fuseplan("export", path, "-o", folder).code == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    prepare = manifest["prepare"]
    made = {b["tensor"] for b in manifest["buffers"] if b["kind"] == "weight"}
    assert made == set(prepare["outputs"])
    assert not (folder / "data.bin").exists()
    part = onnx.load(folder / prepare["model"])
    feeds = {n: np.full(256, 3, np.float32) for n in prepare["inputs"]}
    assert np.all(_reference(part, feeds)[0] == 9)


def test_a_stored_plan_is_exported_without_its_model(
    fuseplan: Fuseplan, model: Path, tmp_path: Path
) -> None:
    """By its key, a plan of the database has the same steps, buffers and sources."""
    from fastapi.testclient import TestClient  # noqa: PLC0415 - slow, rarely needed

    from service.app import create_app  # noqa: PLC0415
    from tests.service.api.conftest import settings  # noqa: PLC0415

    graph = json.loads(model.read_text())
    chosen = {
        "name": "chosen",
        "op": "RandomNormalLike",
        "domain": "",
        "outputs": ["best"],
    }
    graph["nodes"].append({**chosen, "inputs": ["weights"], "attributes": {}})
    graph["outputs"] = ["best"]
    model.write_text(json.dumps(graph))
    with TestClient(create_app(settings(tmp_path / "data"))) as client:
        asked = {"graph": graph, "target": "sm_90"}
        key = client.post("/v1/plans", json=asked).json()["plan_key"]
    one, other = tmp_path / "by-key", tmp_path / "by-model"
    assert fuseplan("export", key, "-o", one).code == 0
    assert fuseplan("export", model, "-t", "sm_90", "-o", other).code == 0
    found, full = (json.loads((f / "manifest.json").read_text()) for f in (one, other))
    (name,) = found["library_calls"]
    for manifest in (found, full):
        step = next(s for s in manifest["steps"] if s["name"] == name)
        assert (step["model"] is None) == (manifest is found)
        step["model"] = None
    for part in ("steps", "buffers", "inputs", "outputs", "arena_bytes"):
        names = {"names": []} if part == "buffers" else {}
        rows = full[part]
        assert found[part] == ([{**row, **names} for row in rows] if names else rows)
    assert not (one / "library").exists()
    kernels = [sorted(p.name for p in (f / "kernels").iterdir()) for f in (one, other)]
    assert kernels[0] == kernels[1]
    assert fuseplan("export", "0" * 64, "-o", one).code == 3


def test_an_unknown_format_is_named(
    fuseplan: Fuseplan, model: Path, tmp_path: Path
) -> None:
    """It says which formats there are."""
    ended = fuseplan("export", model, "-f", "metal", "-o", tmp_path / "out")
    assert ended.code == 2
    assert "cuda, opencl" in ended.err


@needs_cmake
@needs_nvcc
def test_every_block_of_the_guide_runs(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    """A reader who copies the blocks of the guide gets what it says."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 4
    folder = tmp_path / "reader"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=folder,
        env={**environment, "XDG_DATA_HOME": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
