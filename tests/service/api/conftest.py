"""An application to ask, with and without a worker beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests.service.tables import furnish

Start = Callable[..., TestClient]


def settings(folder: Path, **given: object) -> Settings:
    """Settings that keep everything in one folder."""
    told = {
        "data_home": folder,
        "worker": False,
        "event_poll_seconds": 0.02,
        "planner_processes": 0,  # they have tests of their own
    }
    return Settings(**{**told, **given})  # type: ignore[arg-type]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an application with the settings given."""
    started: list[TestClient] = []
    furnish(tmp_path)

    def start_(**given: object) -> TestClient:
        client = TestClient(
            create_app(settings(tmp_path, **given)), raise_server_exceptions=False
        )
        client.__enter__()
        started.append(client)
        return client

    yield start_
    for client in started:
        client.__exit__(None, None, None)


@pytest.fixture
def client(start: Start) -> TestClient:
    """An application without a worker."""
    return start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One application for tests that only read."""
    folder = furnish(tmp_path_factory.mktemp("service"))
    app = create_app(settings(folder))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
