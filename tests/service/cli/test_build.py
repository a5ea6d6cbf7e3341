"""Tests of the commands for builds: fetch, lock, bundle, token; and of the examples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.service.cli.conftest import EXAMPLES, Fuseplan

BUILD = EXAMPLES / "build"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for what builds keep."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSEPLAN_SERVER", raising=False)
    return tmp_path


@pytest.fixture
def plan(fuseplan: Fuseplan, model: Path, home: Path) -> dict[str, Any]:
    """The analytic plan of the small model, stored in this machine's database."""
    from fastapi.testclient import TestClient  # noqa: PLC0415 - slow, rarely needed

    from service.app import create_app  # noqa: PLC0415
    from tests.service.api.conftest import settings  # noqa: PLC0415
    from tests.service.tables import furnish  # noqa: PLC0415

    with TestClient(create_app(settings(furnish(home / "data")))) as client:
        graph = json.loads(model.read_text())
        answer = client.post("/v1/plans", json={"graph": graph, "target": "sm_90"})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_build_without_a_cache_plans_for_itself(
    fuseplan: Fuseplan, model: Path, home: Path
) -> None:
    """Nothing is there and nobody answers: the build goes on, and says so in a line."""
    place = home / "out" / "plan.json"
    dead = ["--server", "http://127.0.0.1:9"]
    ended = fuseplan("fetch", model, "-t", "sm_90", "-o", place, *dead)
    assert ended.code == 0, ended.err
    assert json.loads(place.read_text())["source"] == "analytic"
    lines = [line for line in ended.err.splitlines() if line.startswith("fuseplan:")]
    assert len(lines) == 1
    assert "1 errors" in lines[0]
    offline = fuseplan("fetch", model, "-t", "sm_90", "--offline", "-o", place)
    why = "kept nowhere here and no service asked"
    assert f"1 not (1 {why}), 0 errors" in offline.err
    strict = fuseplan("fetch", model, "-t", "sm_90", "--offline", "--strict")
    assert strict.code == 3
    assert "give a --bundle or a --server" in strict.err


@pytest.mark.parametrize("address", ["http://plans:port", "http://[", "plans"])
def test_what_is_no_address_fails_no_build(
    fuseplan: Fuseplan, model: Path, home: Path, address: str
) -> None:
    """A wrong server is an error of the cache: told in the line, and the build ends."""
    place = home / "plan.json"
    ended = fuseplan("fetch", model, "-t", "sm_90", "-o", place, "--server", address)
    assert ended.code == 0, ended.err
    assert json.loads(place.read_text())["source"] == "analytic"
    assert "1 errors" in ended.err


def test_a_damaged_bundle_fails_no_build(
    fuseplan: Fuseplan, model: Path, home: Path
) -> None:
    """It is told as an error; a damaged lock is a mistake, and ends the build."""
    place = home / "plan.json"
    damaged = home / "p.tar.zst"
    damaged.write_bytes(b"damaged")
    words = ["fetch", model, "-t", "sm_90", "--offline", "-o", place]
    ended = fuseplan(*words, "--bundle", damaged, "--bundle", home / "none")
    assert ended.code == 0, ended.err
    assert json.loads(place.read_text())["source"] == "analytic"
    assert "2 errors" in ended.err
    refused = fuseplan(*words, "--lock", damaged)
    assert refused.code == 2
    assert "fuseplan lock" in refused.err


def test_lock_bundle_and_fetch_belong_together(
    fuseplan: Fuseplan, model: Path, home: Path, plan: dict[str, Any]
) -> None:
    """What was locked and exported is found offline, byte for byte."""
    lock, bundle, out = home / "fuseplan.lock", home / "p.tar.zst", home / "plan.json"
    least = ["--require", "analytic"]
    locked = fuseplan("lock", model, "-t", "sm_90", "-o", lock, "--json", *least)
    assert locked.code == 0, locked.err
    assert locked.json["plans"][plan["plan_key"]]["digest"] == plan["digest"]
    exported = fuseplan("bundle", "export", "--lock", lock, "-o", bundle, "--json")
    assert exported.json["plans"] == [plan["plan_key"]]
    flags = ["--lock", lock, "--bundle", bundle, "--offline"]
    ended = fuseplan("fetch", model, "-t", "sm_90", "-o", out, *flags)
    assert ended.code == 0, ended.err
    told = json.loads(out.read_text())
    assert (told["source"], told["digest"]) == ("lock", plan["digest"])
    assert "1 found (1 locked)" in ended.err


def test_a_bundle_is_imported_into_another_database(
    fuseplan: Fuseplan,
    home: Path,
    plan: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan can be looked up there."""
    bundle = home / "p.tar.zst"
    fuseplan("bundle", "export", "-o", bundle)
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "other"))
    taken = fuseplan("bundle", "import", bundle, "--json")
    assert taken.json["added"] == [plan["plan_key"]]
    found = fuseplan("lookup", plan["plan_key"], "--json")
    assert found.json["digest"] == plan["digest"]
    bundle.write_bytes(b"damaged")
    refused = fuseplan("bundle", "import", bundle, "--json")
    assert (refused.code, refused.json["code"]) == (4, "bad-bundle")


def test_what_was_locked_here_is_fetched_here(
    fuseplan: Fuseplan, model: Path, home: Path, plan: dict[str, Any]
) -> None:
    """On one machine a lock is enough: no bundle and no service are needed."""
    lock, out = home / "fuseplan.lock", home / "plan.json"
    least = ["--require", "analytic"]
    assert fuseplan("lock", model, "-t", "sm_90", "-o", lock, *least).code == 0
    words = ["fetch", model, "-t", "sm_90", "-o", out, *least, "--offline", "--strict"]
    ended = fuseplan(*words, "--lock", lock)
    assert ended.code == 0, ended.err
    told = json.loads(out.read_text())
    assert (told["source"], told["digest"]) == ("lock", plan["digest"])


def test_what_is_not_stored_cannot_be_locked(
    fuseplan: Fuseplan, model: Path, home: Path
) -> None:
    """Locking is not guessing: exit 3, and no file."""
    ended = fuseplan("lock", model, "-t", "sm_90", "-o", home / "l", "--offline")
    assert ended.code == 2  # no such option: a lock is made where plans are
    ended = fuseplan("lock", model, "-t", "sm_90", "-o", home / "l")
    assert ended.code == 3
    assert not (home / "l").exists()


@pytest.mark.parametrize(
    ("least", "cure"),
    [("measured", "--require analytic"), ("analytic", "handed in")],
)
def test_who_cannot_lock_is_told_what_would_help(
    fuseplan: Fuseplan, model: Path, home: Path, least: str, cure: str
) -> None:
    """The model is named; less is offered only where there is less."""
    words = ["lock", model, "-t", "sm_90", "-o", home / "l", "--require", least]
    said = fuseplan(*words).err
    assert str(model) in said
    assert f"no {least} plan" in said
    assert cure in said
    assert ("take less" in said) == (least != "analytic")
    assert "_" not in said.replace(str(model), "")


def test_tokens_are_made_listed_and_revoked(fuseplan: Fuseplan, home: Path) -> None:
    """The text is shown once and is nowhere in the database."""
    made = fuseplan("token", "create", "ci", "--scope", "plans:read", "--json")
    text = made.json["token"]
    again = fuseplan("token", "create", "ci", "--json")
    wrong = fuseplan("token", "create", "x", "--scope", "all", "--json")
    assert (again.code, again.json["code"]) == (2, "token-exists")
    assert wrong.code == 2
    assert fuseplan("token", "list", "--json").json["tokens"][0]["state"] == "valid"
    assert fuseplan("token", "list").code == 0
    assert fuseplan("token", "revoke", "ci").code == 0
    assert fuseplan("token", "list", "--json").json["tokens"][0]["state"] == "ended"
    assert fuseplan("token", "revoke", "nobody", "--json").json["code"] == (
        "token-not-found"
    )
    for file in (home / "data" / "fuseplan").glob("fuseplan.db*"):
        assert text.encode() not in file.read_bytes()


@pytest.fixture
def command(home: Path) -> Path:
    """The command as a build calls it, by its name on the PATH."""
    folder = home / "bin"
    folder.mkdir()
    script = folder / "fuseplan"
    source = "import sys; from service.cli import main; sys.exit(main())"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{source}' \"$@\"\n")
    script.chmod(0o755)
    return script


def run(command: Path, words: list[str], folder: Path) -> str:
    """Run a build tool; gives what it said."""
    environment = {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(EXAMPLES.parent),
        "XDG_DATA_HOME": str(command.parents[1] / "data"),
    }
    ended = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def copied(home: Path) -> Path:
    """The examples in a folder that may be written."""
    folder = home / "examples" / "build"
    shutil.copytree(BUILD, folder)
    shutil.copy(EXAMPLES / "encoder.onnx", folder.parent)
    return folder


def is_plan(path: Path) -> bool:
    """Whether a file holds a plan in the model's own names."""
    told = json.loads(path.read_text())
    return told["schema"] == "fuseplan.plan/1" and bool(told["kernels"])


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_the_make_example_runs(home: Path, command: Path) -> None:
    """One plan, one line, and nothing to do the second time."""
    folder = copied(home) / "make"
    said = run(command, ["make"], folder)
    assert is_plan(folder / "encoder.plan.json")
    assert said.count("fuseplan: ") == 1
    assert "fetch" not in run(command, ["make"], folder)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_the_cmake_example_runs(home: Path, command: Path) -> None:
    """Configured and built out of the source tree."""
    folder = copied(home) / "cmake"
    run(command, ["cmake", "-S", ".", "-B", "out"], folder)
    run(command, ["cmake", "--build", "out"], folder)
    assert is_plan(folder / "out" / "encoder.plan.json")


def test_the_bazel_example_runs(
    fuseplan: Fuseplan, home: Path, command: Path, plan: dict[str, Any]
) -> None:
    """The rule's command, run as Bazel does: only declared files, in a sandbox."""
    rules: list[dict[str, Any]] = []
    text = (BUILD / "bazel" / "BUILD.bazel").read_text()
    exec(text, {"genrule": lambda **rule: rules.append(rule)})
    [rule] = rules
    sandbox = home / "sandbox"
    sandbox.mkdir()
    shutil.copy(EXAMPLES / "encoder.onnx", sandbox)
    lock = sandbox / "fuseplan.lock"
    lock.write_text('{"schema": "fuseplan.lock/1", "toolchain": {}, "plans": {}}')
    fuseplan("bundle", "export", "-o", sandbox / "plans.tar.zst")
    assert sorted(rule["srcs"]) == sorted(one.name for one in sandbox.iterdir())
    words = rule["cmd"].replace("$@", rule["outs"][0])
    for source in rule["srcs"]:
        words = words.replace(f"$(location {source})", source)
    assert "$" not in words
    said = run(command, ["sh", "-c", words], sandbox)
    assert is_plan(sandbox / rule["outs"][0])
    assert "1 not (1 not in the lock)" in said
