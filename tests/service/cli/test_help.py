"""What the commands say about themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from service.cli import tuning
from service.cli.main import app
from tests.service.cli.conftest import Fuseplan
from tuner.search import stages

COMMANDS = [
    "serve",
    "worker",
    "plan",
    "tune",
    "run",
    "lookup",
    "strip",
    "export",
    "devices",
    "calibrate",
    "accuracy",
    "doctor",
    "demo",
]


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command, those inside of groups by all their words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*words, name))
        else:
            yield " ".join((*words, name))


@pytest.mark.parametrize("command", sorted(leaves(typer.main.get_command(app))))
def test_every_help_shows_an_example(fuseplan: Fuseplan, command: str) -> None:
    """The example calls the very command."""
    ended = fuseplan(*command.split(), "--help")
    assert ended.code == 0
    assert f"Example: fuseplan {command}" in ended.out


def test_all_promised_commands_are_there() -> None:
    """No command is missing."""
    found = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {*COMMANDS, "db"} <= set(found)


def test_help_is_quick() -> None:
    """No heavy module is loaded before a command needs it."""
    loaded = (
        "import sys; from service.cli import main; main(['--help']);"
        "sys.exit(' '.join({'numpy', 'onnx', 'fastapi', 'sqlalchemy', 'pydantic',"
        " 'httpx', 'tuner'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=False
    )
    assert ended.stderr.strip() == ""


def test_who_only_plans_loads_no_database() -> None:
    """What makes plans knows the values that are stored, and not where."""
    loaded = (
        "import sys; from service.jobs import planning;"
        "sys.exit(' '.join({'alembic', 'sqlalchemy'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=False
    )
    assert ended.stderr.strip() == ""


def test_what_help_says_of_partitions_is_what_the_tuner_does() -> None:
    """The numbers stand twice, so that help is quick."""
    told = (tuning.PARTITIONS, tuning.MAX_PARTITIONS)
    assert told == (stages.PARTITIONS, stages.MAX_PARTITIONS)
