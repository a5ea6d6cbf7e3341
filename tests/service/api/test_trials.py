"""Trials, thinned curves, and the cache as a list."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import pairwise

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from service.api.thinning import places
from service.app import create_app
from service.store.events import EventRow
from tests.service.api.conftest import settings
from tests.service.dashboard.samples import store_job
from tests.service.tables import furnish

KEY, JOB = "1" * 64, "000000000001"
MANY = "000000000002"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with a job of 60 trials and one of 3000."""
    folder = tmp_path_factory.mktemp("trials")
    app = create_app(settings(furnish(folder)))
    with TestClient(app) as opened:
        database = app.state.context.database
        store_job(database, name="1")
        store_job(database, name="2", trials=3000, minutes=1)
        yield opened


def test_pages_hold_every_trial_once(client: TestClient) -> None:
    """Page by page, in order, until the cursor is null."""
    seen, cursor = [], 0
    while cursor is not None:
        page = client.get(f"/v1/jobs/{JOB}/trials?limit=7&cursor={cursor}").json()
        seen += [one["trial"] for one in page["trials"]]
        cursor = page["next"]
        assert page["total"] == 60
    assert seen == list(range(1, 61))


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("family=reduction", 20),
        ("failure=compile", 3),
        ("failure=any", 3),
        ("failure=none", 57),
        ("kernel=pointwise:def&failure=none", 19),
        ("kernel=nobody", 0),
    ],
)
def test_filters_add_up(client: TestClient, query: str, count: int) -> None:
    """Each filter is the database's work, and filters combine."""
    page = client.get(f"/v1/jobs/{JOB}/trials?{query}").json()
    assert page["total"] == len(page["trials"]) == count
    assert page["failures"] == {"compile": 3}


def test_a_sample_is_even_and_ends_with_the_last(client: TestClient) -> None:
    """At most as many as asked for, from the first trial to the last one."""
    page = client.get(f"/v1/jobs/{MANY}/trials?sample=100").json()
    numbers = [one["trial"] for one in page["trials"]]
    assert (len(numbers), numbers[0], numbers[-1]) == (100, 1, 3000)
    steps = {b - a for a, b in pairwise(numbers)}
    assert steps <= {30, 31}


def test_csv_holds_everything(client: TestClient) -> None:
    """One line a trial, whatever the page size, as a file to be saved."""
    answer = client.get(f"/v1/jobs/{MANY}/trials?format=csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 3000
    assert rows[0]["trial"] == "1"


def test_a_trial_has_its_samples(client: TestClient) -> None:
    """Every timed run, and how far the result was off."""
    listed = client.get(f"/v1/jobs/{JOB}/trials?limit=3").json()["trials"]
    trial = client.get(f"/v1/jobs/{JOB}/trials/{listed[2]['number']}").json()
    assert trial["samples"] == [31e-6, 30e-6, 33e-6, 30.5e-6]
    assert trial["max_abs_error"] == pytest.approx(1e-7)
    assert client.get(f"/v1/jobs/{JOB}/trials/999999").status_code == 404


def test_history_is_small_and_keeps_the_extremes(client: TestClient) -> None:
    """3000 trials in 200 points, with both ends and the decisions between."""
    history = client.get(f"/v1/jobs/{MANY}/history?points=200").json()
    assert history["total"] == 3000
    assert len(history["points"]) <= 200
    assert (history["points"][0][0], history["points"][-1][0]) == (1, 3000)
    assert [mark["kind"] for mark in history["marks"]] == ["resolve", "plan"]
    assert history["whole_seconds"]["plan"] > 0
    rest = client.get(f"/v1/jobs/{MANY}/events?after={history['after']}").text
    assert "event: trial" not in rest


@given(
    best=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=300),
    limit=st.integers(4, 100),
)
def test_thinning_keeps_ends_and_extremes(best: list[float], limit: int) -> None:
    """The least and the greatest value, the first and the last point are never lost."""
    kept = places(best, limit)
    assert len(kept) <= max(limit, 4)
    assert (kept[0], kept[-1]) == (0, len(best) - 1)
    values = [best[place] for place in kept]
    assert (min(values), max(values)) == (min(best), max(best))
    assert list(kept) == sorted(set(kept))


def test_a_thinned_curve_lies_on_the_whole_one(client: TestClient) -> None:
    """Each point that is kept tells what its trial told; the best is among them."""
    few = client.get(f"/v1/jobs/{MANY}/history?points=60").json()["points"]
    cursor, best = 0, {}
    while cursor is not None:
        page = client.get(f"/v1/jobs/{MANY}/trials?limit=1000&cursor={cursor}").json()
        best.update({one["trial"]: one["best_seconds"] for one in page["trials"]})
        cursor = page["next"]
    assert [point[2] for point in few] == pytest.approx(
        [best[int(point[0])] for point in few], rel=1e-5
    )
    assert min(point[2] for point in few) == pytest.approx(min(best.values()), rel=1e-5)


def test_history_reads_few_events_whole(client: TestClient) -> None:
    """Of 3000 trials no more are decoded than are drawn, and the decisions."""
    decoded = 0

    def hear(_row: EventRow, _context: object) -> None:
        nonlocal decoded
        decoded += 1

    event.listen(EventRow, "load", hear)
    try:
        shown = client.get(f"/v1/jobs/{MANY}/history?points=200").json()
    finally:
        event.remove(EventRow, "load", hear)
    assert 0 < decoded <= 200 + 2 * (1 + len(shown["marks"]))


def test_the_cache_is_listed_page_by_page(client: TestClient) -> None:
    """Newest keys first, each once, with what found them."""
    first = client.get("/v1/plans?limit=1").json()
    assert [one["key"] for one in first["plans"]] == ["2" * 64]
    second = client.get(f"/v1/plans?limit=1&cursor={first['next']}").json()
    assert [one["key"] for one in second["plans"]] == [KEY]
    assert second["next"] is None
    assert second["plans"][0]["title"] == "encoder.onnx"
    assert client.get("/v1/plans?target=h200").json()["plans"] == []


def test_provenance_names_every_revision(client: TestClient) -> None:
    """What the key stands for, what is given out, and which job found it."""
    told = client.get(f"/v1/plans/{KEY}/revisions").json()
    assert told["target"] == "cpu"
    assert told["revisions"][-1]["job"] == JOB
    assert told["served"]["measured"] == told["revisions"][-1]["digest"]
    missing = client.get(f"/v1/plans/{'e' * 64}/revisions")
    assert missing.status_code == 404
    assert missing.json()["reason"] == "unknown"
