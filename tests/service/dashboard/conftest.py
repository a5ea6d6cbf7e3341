"""An application whose database holds jobs and plans, without a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.store import Database
from tests.service.api.conftest import settings
from tests.service.dashboard.samples import store_job
from tests.service.tables import furnish


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An application that nobody used yet."""
    folder = furnish(tmp_path_factory.mktemp("empty"))
    with TestClient(create_app(settings(folder))) as client:
        yield client


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An application with one job in each interesting state."""
    folder = furnish(tmp_path_factory.mktemp("used"))
    app = create_app(settings(folder))
    with TestClient(app) as client:
        database: Database = app.state.context.database
        store_job(database, name="1", minutes=0)
        store_job(database, name="2", state="failed", minutes=1)
        store_job(database, name="3", state="running", minutes=2)
        store_job(database, name="4", layers=40, minutes=3, title="deep <b>model</b>")
        yield client
