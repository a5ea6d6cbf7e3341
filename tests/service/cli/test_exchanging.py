"""Kernel runs and packs: out of one database, and into another."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard

from service.cli import inputs, kernel_cache, main
from service.store import measurements
from tests.service.cli.conftest import Fuseplan, softmax_graph
from tuner import document

Json = dict[str, Any]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Json]:
    """A small model, tuned; its runs count although others disturbed them."""
    folder = tmp_path_factory.mktemp("tuned")
    model = folder / "softmax.json"
    model.write_text(json.dumps(softmax_graph()))
    words = ("--budget-seconds", "4", "--budget-trials", "3", "--json")
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        assert main(["tune", str(model), *words]) == 0
        known = _known()
        quiet = [
            kernel_cache.stored(key, "cpu", {**run, "contended": False})
            for key, run in known.items()
        ]
        with inputs.own_database() as database, database.write() as session:
            measurements.add(session, quiet, now=datetime.now(UTC))
    return folder / "data", json.loads(said.getvalue())


@pytest.fixture
def tuned(once: tuple[Path, Json], fuseplan: Fuseplan, tmp_path: Path) -> Json:
    """This machine has tuned the small model."""
    assert callable(fuseplan)
    folder, told = once
    shutil.copytree(folder, tmp_path / "data")
    return told


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Goes to a machine on which nothing was ever measured."""

    def go() -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))

    return go


def _known() -> Json:
    with inputs.own_database() as database, database.read() as session:
        until = measurements.last_id(session)
        return dict(measurements.known(session, "cpu", until=until))


def _mark(run: Json) -> tuple[str, str, str]:
    return run["kernel"], run["near"], str(sorted(run["schedule"].items()))


@pytest.mark.parametrize("form", ["kernel-tuner", "t4"])
def test_exported_runs_come_back(
    fuseplan: Fuseplan, model: Path, tuned: Json, tmp_path: Path, form: str
) -> None:
    """One file for each kernel; what comes in again is a hint, once, and no answer."""
    folder = tmp_path / "runs"
    ended = fuseplan("measurements", "export", "-f", form, "-o", folder, "--json")
    assert ended.code == 0, ended.err
    rows = ended.json["kernels"]
    assert tuned["tuning"]["trials"] > 0
    assert rows
    assert all(row["runs"] > 0 for row in rows)
    before = _known()
    for row in rows:
        words = ("measurements", "import", row["file"], "--kernel", row["kernel"])
        told = fuseplan(*words, "--json").json["files"][0]
        assert (told["runs"], told["new"]) == (row["runs"], row["runs"])
        assert fuseplan(*words, "--json").json["files"][0]["new"] == 0
    hints = [run for key, run in _known().items() if key not in before]
    assert {run["toolchain"] for run in hints} == {"imported"}
    assert {_mark(run) for run in hints} <= {_mark(run) for run in before.values()}
    again = fuseplan("measurements", "export", "-f", form, "-o", folder, "--json")
    assert again.json["kernels"] == rows


def test_a_cache_names_its_kernels_structure(
    fuseplan: Fuseplan, tuned: Json, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    """Our own caches need no word of the user; T4, which names nothing, does."""
    assert tuned
    folder = tmp_path / "runs"
    fuseplan("measurements", "export", "-o", folder)
    other = tmp_path / "t4"
    fuseplan("measurements", "export", "-f", "t4", "-o", other)
    elsewhere()
    path = next(folder.iterdir())
    assert fuseplan("measurements", "import", path).code == 0
    refused = fuseplan("measurements", "import", next(other.iterdir()))
    assert refused.code == 2
    assert "--kernel" in refused.err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfe", "is no text"),
        (b"[1, 2", "is not JSON"),
        (b"{}", "neither a Kernel Tuner cache nor T4 results"),
        (b'{"cache": {}, "schema_version": "9.0.0"}', "version '9.0.0'"),
        (b'{"results": [], "schema_version": "7.1.0"}', "version '7.1.0'"),
        (b'{"cache": {"1": 3}, "tune_params_keys": ["a"]}', "damaged"),
        (b'{"results": [{"configuration": 3}], "schema_version": "1.0.0"}', "damaged"),
    ],
)
def test_wrong_files_are_told(
    fuseplan: Fuseplan, tmp_path: Path, content: bytes, problem: str
) -> None:
    """The error names the file and what is wrong with it."""
    path = tmp_path / "runs.json"
    path.write_bytes(content)
    ended = fuseplan("measurements", "import", path)
    assert ended.code == 2
    assert str(path) in ended.err
    assert problem in ended.err


def test_nothing_measured_is_nothing_to_export(
    fuseplan: Fuseplan, tmp_path: Path
) -> None:
    """A miss, with what to do about it; another word for a format is refused."""
    ended = fuseplan("measurements", "export", "-o", tmp_path / "runs")
    assert ended.code == 3
    assert "fuseplan tune" in ended.err
    assert fuseplan("measurements", "export", "-o", tmp_path, "-f", "csv").code == 2


def test_a_pack_brings_plans_and_runs(
    fuseplan: Fuseplan,
    model: Path,
    tuned: Json,
    tmp_path: Path,
    elsewhere: Callable[[], None],
) -> None:
    """On another machine the plan is found and its kernels are known."""
    path = tmp_path / "cpu.pack"
    made = fuseplan("pack", "create", model, "-o", path, "--json")
    assert made.code == 0, made.err
    assert [plan["key"] for plan in made.json["plans"]] == [tuned["plan_key"]]
    assert made.json["measurements"] > 0
    shown = fuseplan("pack", "show", path, "--json").json
    assert shown == {k: v for k, v in made.json.items() if k not in {"output", "bytes"}}
    assert not shown["stale"]
    elsewhere()
    words = ("tune", model, "--dry-run", "--json")
    assert fuseplan(*words).json["known_kernels"] == 0
    taken = fuseplan("pack", "apply", path, "--json").json
    assert (taken["plans_added"], taken["measurements_added"]) == (
        1,
        shown["measurements"],
    )
    again = fuseplan("pack", "apply", path, "--json").json
    assert (again["plans_added"], again["measurements_added"]) == (0, 0)
    assert fuseplan("lookup", model, "--require", "measured").code == 0
    assert fuseplan(*words).json["known_kernels"] > 0


def test_runs_of_another_toolchain_are_a_miss(
    fuseplan: Fuseplan,
    model: Path,
    tuned: Json,
    tmp_path: Path,
    elsewhere: Callable[[], None],
) -> None:
    """A pack of another compiler or code generator loads, and nothing is served."""
    assert tuned
    path = tmp_path / "cpu.pack"
    fuseplan("pack", "create", "-o", path)
    whole = _opened(path)
    whole["content"]["codegen_revision"] += 1
    for row in whole["content"]["measurements"]:
        row["result"]["toolchain"] = "0123456789abcdef"
    _close(path, whole)
    elsewhere()
    taken = fuseplan("pack", "apply", path)
    assert taken.code == 0
    assert "nothing of this pack is served" in taken.err
    dry = fuseplan("tune", model, "--dry-run", "--json").json
    assert dry["known_kernels"] == 0


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda whole: whole["content"].update(device="gpu"), "digest"),
        (lambda whole: whole.update(schema="fuseplan.pack/9"), "schema"),
        (lambda whole: whole.pop("content"), "no content"),
    ],
)
def test_a_damaged_pack_is_refused(
    fuseplan: Fuseplan, tmp_path: Path, damage: Callable[[Json], Any], problem: str
) -> None:
    """Nothing of it is taken over, and the error says why."""
    path = tmp_path / "cpu.pack"
    assert fuseplan("pack", "create", "-o", path).code == 0
    whole = _opened(path)
    damage(whole)
    path.write_bytes(zstandard.ZstdCompressor().compress(document.encode(whole)))
    ended = fuseplan("pack", "apply", path)
    assert ended.code == 4
    assert problem in ended.err
    path.write_bytes(b"no pack at all")
    assert fuseplan("pack", "show", path).code == 4


@pytest.mark.parametrize(
    "row",
    [
        {"key": "k", "result": {"seconds": "fast"}},
        {"key": "k", "result": 3},
        {"result": {}},
    ],
)
def test_a_damaged_run_of_a_pack_is_refused(
    fuseplan: Fuseplan, tmp_path: Path, row: Json
) -> None:
    """A digest that fits does not make a run sound."""
    path = tmp_path / "cpu.pack"
    fuseplan("pack", "create", "-o", path)
    whole = _opened(path)
    whole["content"]["measurements"] = [row]
    _close(path, whole)
    assert fuseplan("pack", "apply", path).code == 4


def _opened(path: Path) -> Json:
    with zstandard.ZstdDecompressor().stream_reader(path.read_bytes()) as stream:
        whole: Json = json.loads(stream.read())
    return whole


def _close(path: Path, whole: Json) -> None:
    """Write a pack back with the digest of what it holds now."""
    whole["digest"] = document.digest(document.encode(whole["content"]))
    path.write_bytes(zstandard.ZstdCompressor().compress(document.encode(whole)))
