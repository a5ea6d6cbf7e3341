"""Tests of requests that are made again with the same Idempotency-Key."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service.api.conftest import Start
from tests.service.api.models import graph_json
from tests.service.api.test_jobs import ENDED
from tests.waiting import until


def submit(
    client: TestClient, key: str, width: int = 64, **more: Any
) -> httpx.Response:
    """Hand in a model to be tuned, with a key."""
    told = {"graph": graph_json(width=width), "target": "cpu", "mode": "tuned", **more}
    return client.post("/v1/plans", json=told, headers={"Idempotency-Key": key})


@pytest.fixture
def tuned(start: Start) -> tuple[TestClient, str]:
    """A service, and a job of its that was cancelled."""
    client = start(worker=True, device="null:0")
    answer = submit(client, "build-17")
    assert answer.status_code == 202, answer.text
    job = answer.json()["job"]
    client.delete(f"/v1/jobs/{job}")
    until(lambda: client.get(f"/v1/jobs/{job}").json()["state"] in ENDED)
    return client, job


def test_a_repetition_makes_no_second_job(tuned: tuple[TestClient, str]) -> None:
    """It gets the job of the first request, although that has ended."""
    client, job = tuned
    again = submit(client, "build-17")
    assert again.status_code == 200
    assert again.json()["job"] == job
    assert again.json()["state"] == client.get(f"/v1/jobs/{job}").json()["state"]
    assert again.headers["Location"] == f"/v1/jobs/{job}"
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


def test_another_request_with_the_key_is_refused(
    tuned: tuple[TestClient, str],
) -> None:
    """Another model, another budget: each is told, and nothing is queued."""
    client, _ = tuned
    for answer in (
        submit(client, "build-17", width=128),
        submit(client, "build-17", budget_seconds=5),
        submit(client, "build-17", priority=1),
    ):
        assert answer.status_code == 422
        assert answer.json()["code"] == "idempotency-mismatch"
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


def test_another_key_is_another_request(tuned: tuple[TestClient, str]) -> None:
    """Unless the first one found what is asked for."""
    client, job = tuned
    other = submit(client, "build-18")
    found = client.get(f"/v1/jobs/{job}").json()["state"] == "succeeded"
    assert (other.json()["job"] is None) if found else (other.json()["job"] != job)
