"""What a job timed as wholes, as JSON."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from tests.service.api.conftest import settings
from tests.service.dashboard import samples
from tests.service.dashboard.samples import store_job
from tests.service.tables import furnish


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with a job that ended and one that has not run a plan whole."""
    folder = tmp_path_factory.mktemp("contests")
    app = create_app(settings(furnish(folder)))
    with TestClient(app) as opened:
        store_job(app.state.context.database, name="1")
        store_job(app.state.context.database, name="2", state="running", minutes=1)
        yield opened


def test_a_contest_is_what_the_run_told(client: TestClient) -> None:
    """Every plan with its price, its kernels and its run; every operator."""
    told = client.get("/v1/jobs/000000000001/contest").json()
    body = samples.plan_body()
    assert [row["labels"] for row in told["plans"]] == [
        row["labels"] for row in samples.contest_rows(body)
    ]
    assert told["plans"][2]["whole"]["failure"] == "crash"
    assert told["operators"] == samples.operator_rows(body)


def test_there_is_none_before_a_plan_ran(client: TestClient) -> None:
    """Empty lists, not an error; a job that nobody knows is one."""
    told = client.get("/v1/jobs/000000000002/contest")
    assert (told.status_code, told.json()) == (200, {"plans": [], "operators": []})
    assert client.get("/v1/jobs/nobody/contest").status_code == 404
