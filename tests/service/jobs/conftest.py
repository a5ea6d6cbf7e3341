"""Databases for the tests of jobs, and who puts jobs into them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.app import new_id, now
from service.jobs.engine import JobQueue
from service.jobs.planning import Planner, Question
from service.jobs.submission import Ask, Submissions
from service.settings import Settings
from service.store import Database, connect, devices
from service.store.devices import StoredDevice
from tests.service.api.models import graph_onnx
from tests.service.tables import place


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Address of a database with all tables, the job engine's too."""
    place(tmp_path / "fuseplan.db")
    return f"sqlite:///{tmp_path / 'fuseplan.db'}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """An open database."""
    opened = connect(url)
    yield opened
    opened.close()


@pytest.fixture
def settings(url: str, tmp_path: Path) -> Settings:
    """Settings for a null device."""
    return Settings(data_home=tmp_path, database_url=url, device="null:0")


@pytest.fixture
def submissions(settings: Settings, database: Database) -> Iterator[Submissions]:
    """Takes jobs for a processor that a worker once offered."""
    with database.write() as session:
        devices.put(
            session,
            StoredDevice(
                name="cpu",
                host="elsewhere",
                target="cpu",
                queues=("tune.cpu",),
                facts={},
                seen_at=datetime(2026, 1, 1, tzinfo=UTC),
            ),
        )
    queue = JobQueue(database)
    yield Submissions(
        settings=settings,
        database=database,
        planner=Planner(plan_seconds=5),
        queue=queue,
        clock=now,
        new_id=new_id,
    )
    queue.close()


def ask(width: int = 64) -> Ask:
    """The small model, to be tuned."""
    data = graph_onnx(width=width)
    question = Question(data=data, form="onnx", target="cpu", options={})
    return Ask(question=question, mode="tuned", budget_seconds=5, budget_trials=20)


def queued(submissions: Submissions, width: int = 64) -> str:
    """A job that waits."""
    answer = submissions.submit(ask(width))
    assert answer.job is not None
    return answer.job.id
