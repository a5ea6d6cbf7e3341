"""Commands that need no device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.service.cli.conftest import EXAMPLES, Fuseplan, softmax_graph
from tests.tuner.frontend.models import model as onnx_model
from tests.tuner.frontend.models import node, value

FIELDS = {
    "plan_key",
    "digest",
    "target",
    "evidence",
    "objective_seconds",
    "bound_seconds",
    "gap",
    "candidate_space",
    "traffic_bytes",
    "kernels",
    "prepare",
    "baselines",
    "peak_memory_bytes",
    "timing",
}
KERNEL_FIELDS = {
    "name",
    "family",
    "nodes",
    "inputs",
    "outputs",
    "estimate",
    "evidence",
    "registers",
}


@pytest.mark.parametrize("target", ["cpu", "sm_90", "ideal"])
def test_plan_prints_the_joined_view(
    fuseplan: Fuseplan, model: Path, target: str
) -> None:
    """All promised fields, in the user's names, for every kind of target."""
    plan = fuseplan("plan", model, "--target", target, "--json").json
    assert set(plan) >= FIELDS
    assert all(set(kernel) >= KERNEL_FIELDS for kernel in plan["kernels"])
    assert set(plan["timing"]) == {"import_seconds", "plan_seconds"}
    assert {"masked", "softmax"} == {n for k in plan["kernels"] for n in k["nodes"]}
    assert "weights" in plan["kernels"][-1]["outputs"]


def test_plan_is_one_kernel_for_a_person(fuseplan: Fuseplan, model: Path) -> None:
    """The table names the kernel, its nodes and what it was compared with."""
    ended = fuseplan("plan", model, "--groups")
    assert ended.code == 0
    assert "masked, softmax" in ended.out
    assert "gap" in ended.out
    assert "k0 reduction: masked, softmax" in ended.out
    assert re.search(r"^  ops     .*reduce_max.* exp ", ended.out, re.MULTILINE)
    assert re.search(r"^  writes  weights f32\[", ended.out, re.MULTILINE)
    assert "ends    weights the graph delivers it" in ended.out
    for word in ("inductor", "xla", "tvm", "unfused"):
        assert re.search(rf"^  {word} ", ended.out, re.MULTILINE)
    assert "algebraic simplification" in ended.out


def test_a_group_says_how_often_it_is_launched(
    fuseplan: Fuseplan, tmp_path: Path
) -> None:
    """The price of one launch beside that of two, or what stands against two."""
    for rows, told in (
        (1, r"two, rows in \d+ parts: one would cost \+\d+\.\d\d µs"),
        (4096, r"one: \d+ blocks keep \d+ multiprocessors busy"),
    ):
        path = tmp_path / f"{rows}.onnx"
        sums = [node("ReduceSum", "x axes", "y", keepdims=0)]
        inputs = [value("x", [rows, 1 << 20])]
        proto = onnx_model(sums, inputs, "y", {"axes": np.array([1])})
        path.write_bytes(proto.SerializeToString())
        ended = fuseplan("plan", path, "--target", "sm_90", "--groups")
        assert re.search(rf"^  launch  {told}$", ended.out, re.MULTILINE), ended.out


def test_plan_says_what_each_level_brings(fuseplan: Fuseplan, model: Path) -> None:
    """Launches, chains, and the graph after each level; groups when asked."""
    plan = fuseplan("plan", model, "--target", "sm_90", "--groups", "--json").json
    profile = plan["profile"]
    assert 0 < profile["launch_share"] <= 1
    kernels = [profile[k]["kernels"] for k in ("imported", "simplified", "fused")]
    assert kernels == sorted(kernels, reverse=True)
    assert profile["fused"]["kernels"] == len(plan["kernels"])
    assert profile["simplified"]["kernels"] == plan["baselines"]["unfused"]["kernels"]
    assert [g["kernel"] for g in plan["groups"]] == [k["name"] for k in plan["kernels"]]
    assert all(g["inputs"] and g["outputs"] and g["ends"] for g in plan["groups"])


def test_equal_questions_have_equal_answers(fuseplan: Fuseplan, model: Path) -> None:
    """Key and digest are the same each time; only the clock's figures differ."""
    first = fuseplan("plan", model, "--json").json
    second = fuseplan("plan", model, "--json").json
    assert first["plan_key"] == second["plan_key"]
    assert first["digest"] == second["digest"]


def test_open_dimensions_are_named(fuseplan: Fuseplan, tmp_path: Path) -> None:
    """Without a size the dimension is named; with one the plan comes."""
    path = tmp_path / "open.json"
    path.write_text(json.dumps(softmax_graph("batch")))
    ended = fuseplan("plan", path)
    assert ended.code == 2
    assert "batch" in ended.err
    assert "--shape batch=1" in ended.err
    assert fuseplan("plan", path, "--shape", "batch=8").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--target", "moon"], 2),
        (["--options", '{"mode": "dreaming"}'], 2),
        (["--options", '{"memory_cap_bytes": 1}'], 8),
        (["--legality", "none"], 2),
        (["--shape", "batch"], 2),
        (["--options", '{"pins": [{"fuse": true, "nodes": ["a", "b"]}]}'], 2),
    ],
)
def test_wrong_wishes_are_refused(
    fuseplan: Fuseplan, model: Path, words: list[str], code: int
) -> None:
    """Each ends with its own code and a problem document."""
    ended = fuseplan("plan", model, *words, "--json")
    assert ended.code == code
    assert ended.json["detail"]


@pytest.mark.parametrize(
    ("data", "code"), [(b"", 4), (b"garbage", 4), (b'{"schema": 1}', 4)]
)
def test_what_is_no_model_is_refused(
    fuseplan: Fuseplan, tmp_path: Path, data: bytes, code: int
) -> None:
    """Empty, cut off or wrong files give 4."""
    path = tmp_path / "model"
    path.write_bytes(data)
    assert fuseplan("plan", path).code == code


def test_a_missing_file_is_a_usage_error(fuseplan: Fuseplan, tmp_path: Path) -> None:
    """The path is named."""
    ended = fuseplan("plan", tmp_path / "nowhere.onnx")
    assert ended.code == 2
    assert "nowhere.onnx" in ended.err


def test_strip_keeps_the_plan(fuseplan: Fuseplan, tmp_path: Path) -> None:
    """A light model has the key of the whole one."""
    light = tmp_path / "light.onnx"
    done = fuseplan("strip", EXAMPLES / "encoder.onnx", "-o", light, "--json").json
    assert done["bytes"] == light.stat().st_size


def test_lookup_misses_with_three(fuseplan: Fuseplan) -> None:
    """A key that nobody stored is a miss, and no database is made for it."""
    ended = fuseplan("lookup", "0" * 64, "--json")
    assert ended.code == 3
    assert ended.json["code"] == "cache-miss"


def test_lookup_of_a_model_falls_back(fuseplan: Fuseplan, model: Path) -> None:
    """Nothing stored: the analytic plan, unless a measured one is required."""
    ended = fuseplan("lookup", model, "--json")
    assert ended.code == 0
    assert ended.json["source"] == "analytic"
    assert fuseplan("lookup", model, "--require", "measured").code == 3


def test_lookup_survives_a_dead_service(fuseplan: Fuseplan, model: Path) -> None:
    """A build goes on without its cache; a lookup by key says that it is gone."""
    dead = "http://127.0.0.1:9"
    ended = fuseplan("lookup", model, "--server", dead, "--json")
    assert ended.code == 0
    assert ended.json["source"] == "analytic"
    assert "planning without the cache" in ended.err
    assert fuseplan("lookup", "0" * 64, "--server", dead).code == 7


def test_export_writes_sources_and_a_manifest(
    fuseplan: Fuseplan, model: Path, tmp_path: Path
) -> None:
    """Every kernel's text is there, under the name that the manifest gives."""
    folder = tmp_path / "kernels"
    assert fuseplan("export", model, "-t", "sm_90", "-o", folder).code == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    (step,) = manifest["steps"]
    assert f"{step['entry']}(" in (folder / step["file"]).read_text()


def test_explain_prices_the_other_choice(fuseplan: Fuseplan, model: Path) -> None:
    """Two nodes of one kernel: keeping them apart costs more under the model."""
    told = fuseplan("explain", model, "masked", "softmax", "--json").json
    assert told["fused"] is True
    assert told["kernels"]["masked"] == ["k0"]
    assert told["other_objective_seconds"] > told["objective_seconds"]
    ended = fuseplan("explain", model, "masked", "softmax")
    assert "share k0" in ended.out
    assert re.search(r"moves \+\d+ bytes, launches \+1 kernels", ended.out)
    assert re.search(r"there \(\d+ registers, .* here \(\d+ registers, ", ended.out)
    assert fuseplan("explain", model, "masked", "nobody").code == 2
    assert fuseplan("explain", model, "masked").code == 2


def test_explain_goes_through_all_edges(fuseplan: Fuseplan, model: Path) -> None:
    """Without nodes: each edge, fused or cut, with a reason."""
    told = fuseplan("explain", model, "--json").json
    (edge,) = told["edges"]
    assert (edge["from"], edge["to"]) == ("masked", "softmax")
    assert edge["fused"] is True
    assert edge["kernels"] == ["k0"]
    assert edge["reason"].endswith("need not be read")
    ended = fuseplan("explain", model)
    assert "masked -> softmax  fused in k0" in ended.out
    assert "1 of 1 edges are fused." in ended.out
