"""Every block of the pages about plans and the service runs as it stands."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests import shell
from tests.service.api.models import graph_onnx
from tests.service.api.test_process import ROOT, serving
from tests.service.conftest import NewDatabase
from tests.service.jobs.test_bucketing import normalised
from tests.waiting import PATIENCE_SECONDS, until

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS.parent / "examples"
PLANS = Path(__file__).parent / "stored" / "bundle-1.tar.zst"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
ADDRESS = "http://127.0.0.1:8321"
ELSEWHERE = {"README.md", "consume.md", "rules.md", "tuning.md"}
"""Pages whose blocks other tests run, or that show what takes an hour."""
FIXED = graph_onnx()
BENCHMARKS = "python -m benchmarks."


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in a language."""
    found = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    return [text for kind, text in found if kind == language]


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """The commands on the path, data in a folder of their own."""
    homes = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **{name: str(tmp_path / name) for name in homes},
    }


def run(
    text: str,
    folder: Path,
    environment: Mapping[str, str],
    model: bytes = FIXED,
) -> str:
    """Run a block in a folder that has a model; gives what it printed."""
    (folder / "model.onnx").write_bytes(model)
    return shell.run(text, folder, environment)


def test_no_block_escapes() -> None:
    """The pages with commands are those below, and those with tests of their own."""
    pages = {path.name for path in DOCS.glob("*.md") if blocks(path.name, "sh")}
    here = {"api.md", "operations.md", "planning.md", "strategies.md"}
    assert pages - ELSEWHERE == here
    assert {p.name for p in DOCS.glob("*.md") if blocks(p.name, "python")} == {"api.md"}


def test_the_page_about_http(tmp_path: Path, environment: Mapping[str, str]) -> None:
    """The model is handed in with curl, and in Python; both get one key."""
    (by_hand,), (in_python,) = blocks("api.md", "sh"), blocks("api.md", "python")
    with serving(tmp_path, "null:0") as (client, _):
        address = str(client.base_url).rstrip("/")
        assert ADDRESS in by_hand
        assert ADDRESS in in_python
        script = tmp_path / "client.py"
        script.write_text(in_python.replace(ADDRESS, address))
        first = run(by_hand.replace(ADDRESS, address), tmp_path, environment)
        told = run(f"PYTHONPATH={ROOT} python client.py", tmp_path, environment)
    assert told.split()[0] in first
    assert "never_tuned" in told
    assert "0 hits, 1 misses, 0 errors" in told


def test_the_page_about_builds(tmp_path: Path, environment: Mapping[str, str]) -> None:
    """What each build calls writes the plan, and one line says what was found."""
    found = BLOCK.findall((EXAMPLES / "build" / "README.md").read_text())
    ((_, text),) = found
    folder = tmp_path / "examples" / "build"
    folder.mkdir(parents=True)
    shutil.copy(EXAMPLES / "encoder.onnx", folder.parent)
    run(text, folder, environment)
    assert (folder / "encoder.plan.json").stat().st_size > 1000


def test_the_page_about_limits_and_ranges(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """Pins; a plan under a cap; one for ranges, which a lookup of sizes finds."""
    pinned, capped, ranged = blocks("planning.md", "sh")
    encoder = (EXAMPLES / "encoder.onnx").read_bytes()
    assert "objective" in run(pinned, tmp_path, environment, encoder)
    assert "--memory-cap" in capped
    assert "objective" in run(capped, tmp_path, environment)
    told = run(ranged, tmp_path, environment, normalised("batch", "seq"))
    assert "breakpoints  seq" in told
    assert "bucket" in told


def test_the_page_about_strategies(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """Groups and explanations are printed."""
    first, *others = blocks("strategies.md", "sh")
    assert "relu" in run(first, tmp_path, environment)
    assert all(text.startswith(BENCHMARKS) for text in others)


def test_the_page_for_operators_signs_bundles(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """A signed bundle is taken with the key that the first command printed."""
    _, signed = blocks("operations.md", "sh")
    make, *rest = signed.replace("PUBLIC", "$public").splitlines()
    first = [f"fuseplan bundle import {PLANS}", f"public=$({make.partition('#')[0]})"]
    told = run("\n".join([*first, *rest]), tmp_path, environment).splitlines()
    assert re.fullmatch(r"plans.tar.zst: [1-9]\d* plans, \d+ bytes", told[-2])
    assert told[-1].endswith(", 0 new")


def test_the_page_for_operators_starts_a_fleet(
    tmp_path: Path, environment: Mapping[str, str], postgres: NewDatabase
) -> None:
    """Each process of a fleet starts on one database, and ends when it is asked to."""
    fleet, _ = blocks("operations.md", "sh")
    variable, upgrade, *started = fleet.splitlines()
    name, _, shown = variable.removeprefix("export ").partition("=")
    assert shown.startswith("postgresql+psycopg://")
    inside = {**environment, name: postgres()}
    run(upgrade, tmp_path, inside)
    with ExitStack() as stack:
        running = [
            stack.enter_context(begun(line, tmp_path, inside)) for line in started
        ]
        for process, said in running:
            until(partial(has_started, process, said))
        for process, said in running:
            process.send_signal(signal.SIGTERM)
            # A server ends by the signal itself, once it has answered what it began.
            assert process.wait(PATIENCE_SECONDS) in {0, -signal.SIGTERM}, (
                said.read_text()
            )


def has_started(process: subprocess.Popen[bytes], said: Path) -> bool:
    """Whether a process says that it works; an error when it has ended."""
    assert process.poll() is None, said.read_text()
    return b"fuseplan: " in said.read_bytes()


@contextmanager
def begun(
    line: str, folder: Path, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process of a page, without a GPU, and what it says."""
    words = line.replace("cuda:0", "null:0").split()
    words += ["--port", "0"] if "serve" in words else []
    said = folder / f"{'-'.join(words[1:]).replace(':', '-')}.said"
    with (
        said.open("wb") as file,
        subprocess.Popen(words, env=environment, stderr=file, stdout=file) as process,
    ):
        try:
            yield process, said
        finally:
            process.kill()
