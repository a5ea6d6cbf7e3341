"""Tests that the containers' files name only what exists, as far as no engine goes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from sqlalchemy import make_url

from service.api import health
from service.cli.main import app
from service.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = {name: one for name, one in COMPOSE["services"].items() if "build" in one}


def filled(text: str) -> str:
    """A value with its variables replaced by their defaults."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def environment(service: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a service."""
    return {name: filled(value) for name, value in service["environment"].items()}


def test_every_service_is_there() -> None:
    """API, CPU worker, GPU worker under a profile, and the database."""
    assert set(COMPOSE["services"]) == {"api", "database", "worker-cpu", "worker-gpu"}
    assert COMPOSE["services"]["worker-gpu"]["profiles"] == ["gpu"]
    assert "healthcheck" in COMPOSE["services"]["database"]
    assert set(COMPOSE["volumes"]) == {"database"}


@pytest.mark.parametrize("name", OURS)
def test_a_container_starts_as_a_plain_process_would(name: str) -> None:
    """Its variables are settings with values that fit, and its command exists."""
    service = OURS[name]
    given = environment(service)
    known = {f"FUSEPLAN_{field.upper()}" for field in Settings.model_fields}
    assert set(given) <= known
    told = {key.removeprefix("FUSEPLAN_").lower(): v for key, v in given.items()}
    settings = Settings(**told)  # type: ignore[arg-type]
    assert make_url(settings.url).host in COMPOSE["services"]
    program, command, *words = service["command"]
    assert program == "fuseplan"
    with typer.main.get_command(app).make_context(  # parses, and runs nothing
        "fuseplan", [command, "--help"], resilient_parsing=True
    ):
        pass
    environ = {**os.environ, **given, "COLUMNS": "200"}
    source = "import sys; from service.cli import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", source, command, *words, "--help"],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert service["user"] != "0:0"


def test_health_checks_ask_what_exists() -> None:
    """The path of the API's check is a route."""
    check = " ".join(COMPOSE["services"]["api"]["healthcheck"]["test"])
    found = re.search(r"http://[\w.:]+(/\w+)", check)
    assert found is not None
    assert found.group(1) in {route.path for route in health.router.routes}  # type: ignore[attr-defined]


def test_stages_and_files_of_the_image_exist() -> None:
    """Every target is a stage, and every file that is copied is in the repository."""
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE))
    assert {one["build"]["target"] for one in OURS.values()} <= stages
    for line in re.findall(r"^COPY (.+)$", DOCKERFILE, flags=re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
    last_users = re.findall(r"^USER (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    assert set(last_users) == {"fuseplan"}
    for words in re.findall(r"^CMD (\[.+\])$", DOCKERFILE, flags=re.MULTILINE):
        assert yaml.safe_load(words)[0] == "fuseplan"


@pytest.mark.skipif(
    shutil.which("docker-compose") is None, reason="docker-compose is not installed"
)
@pytest.mark.parametrize("profile", ["", "gpu"])
def test_compose_accepts_the_file(profile: str) -> None:
    """For every profile."""
    flags = ["--profile", profile] if profile else []
    ended = subprocess.run(
        ["docker-compose", *flags, "config", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
