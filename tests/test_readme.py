"""Every block of the README runs as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.shell import run
from tests.waiting import address_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
PORT = "8321"
BUDGET = re.compile(r"--budget-seconds \d+")
"""What a reader may give a search; that it ends is seen after a shorter one, too."""
SHORT_BUDGET = "--budget-seconds 1"


def commands(block: str) -> list[str]:
    """Commands of a block, continued lines joined, comments gone."""
    joined = block.replace("\\\n", " ")
    lines = (line.partition("  #")[0].strip() for line in joined.splitlines())
    return [line for line in lines if line]


def block_with(text: str) -> list[str]:
    """Commands of the block that holds a text."""
    (found,) = [block for block in BLOCKS if text in block]
    return commands(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, and a model of the reader's own."""
    path = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", path / "examples")
    shutil.copy(ROOT / "examples" / "encoder.onnx", path / "model.onnx")
    return path


@pytest.fixture(scope="module")
def environment(folder: Path) -> Mapping[str, str]:
    """The commands on the path, data in a folder of their own."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_STATE_HOME": str(folder / "state"),
    }


def test_there_are_three_blocks() -> None:
    """No block escapes the tests below."""
    assert len(BLOCKS) == 3


def test_the_two_commands_are_targets(environment: Mapping[str, str]) -> None:
    """`make` knows both commands of the first screen."""
    for command in block_with("make demo"):
        run(f"{command} --dry-run", ROOT, environment)


@pytest.mark.parametrize("command", block_with("fuseplan plan"))
def test_a_command_runs(
    command: str, folder: Path, environment: Mapping[str, str]
) -> None:
    """Each command of the command-line block ends well, a search within its budget."""
    run(BUDGET.sub(SHORT_BUDGET, command), folder, environment)


@pytest.fixture(scope="module")
def service(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The service of the block, on a free port; gives that."""
    said = folder / "service.said"
    with (
        said.open("wb") as file,
        subprocess.Popen(
            ["fuseplan", "serve", "--port", "0"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=file,
        ) as process,
    ):
        try:
            yield address_of(process, said).rpartition(":")[2]
        finally:
            process.kill()


def test_the_requests_are_answered(
    service: str, folder: Path, environment: Mapping[str, str]
) -> None:
    """The requests of the HTTP block get a plan."""
    asked = [c for c in block_with("fuseplan serve") if c.startswith("curl")]
    assert asked
    for command in asked:
        assert PORT in command
        printed = run(command.replace(PORT, service), folder, environment)
        assert '"plan_key"' in printed
