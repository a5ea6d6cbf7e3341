"""Tests of tuning: a worker beside the API, with times that a null device makes up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from service.errors import DeviceBusy
from tests.service.api.conftest import Start
from tests.service.api.models import graph_onnx
from tests.waiting import until
from tuner.search.stages import MAX_PARTITIONS

ONNX = {"Content-Type": "application/onnx"}
NULL = {"worker": True, "device": "null:0"}
ENDED = {"succeeded", "partial", "failed", "cancelled"}


def tune(client: TestClient, width: int = 64, **headers: str) -> httpx2.Response:
    """Ask for a tuned plan of the small model."""
    return client.post(
        "/v1/plans",
        content=graph_onnx(width=width),
        params={"target": "cpu", "mode": "tuned", "title": "small.onnx"},
        headers={**ONNX, **headers},
    )


def ended(client: TestClient, job: str) -> dict[str, Any]:
    """The job when it has ended."""

    def look() -> dict[str, Any]:
        return dict(client.get(f"/v1/jobs/{job}").json())

    until(lambda: look()["state"] in ENDED)
    return look()


def parse(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Server-sent events from the lines of a stream."""
    found: list[dict[str, Any]] = [{}]
    for line in lines:
        name, _, value = line.partition(": ")
        if not line:
            found.append({})
        elif name in {"id", "event", "data"}:
            found[-1][name] = json.loads(value) if name == "data" else value
    return [event for event in found if event]


def test_a_tuned_plan_is_found_stored_and_served(start: Start) -> None:
    """202 with the analytic plan, a job that ends, a measured plan under the key."""
    client = start(**NULL)
    answer = tune(client)
    told = answer.json()
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/v1/jobs/{told['job']}"
    assert answer.headers["Retry-After"]
    assert told["evidence"] == "analytic"
    job = ended(client, told["job"])
    assert job["state"] == "succeeded"
    assert job["error"] is None
    assert job["title"] == "small.onnx"
    assert job["progress"]["trials"] > 1
    plan = client.get(f"/v1/plans/{told['plan_key']}", params={"evidence": "measured"})
    assert plan.headers["Fuseplan-Evidence"] == "measured"
    assert plan.json()["measured"]["plan"]["seconds"] == pytest.approx(
        job["progress"]["best_seconds"]
    )


def test_the_second_submission_measures_nothing(start: Start) -> None:
    """200 with the stored measured plan, the same bytes each time, and no new job."""
    client = start(**NULL)
    ended(client, tune(client).json()["job"])
    before = client.get("/v1/cache-info").json()["measurements"]
    first, second = tune(client), tune(client)
    assert (first.status_code, first.json()["evidence"]) == (200, "measured")
    assert first.content == second.content
    assert client.get("/v1/cache-info").json()["measurements"] == before
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


def test_a_kernel_that_was_measured_costs_nothing(start: Start) -> None:
    """Another key with the same kernel takes its times from the store."""
    client = start(**NULL)
    ended(client, tune(client).json()["job"])
    other = client.post(
        "/v1/plans",
        content=graph_onnx(),
        params={
            "target": "cpu",
            "mode": "tuned",
            "options": '{"launch_mode": "graph"}',
        },
        headers=ONNX,
    ).json()
    job = ended(client, other["job"])
    assert job["plan_key"] == other["plan_key"]
    assert job["state"] == "succeeded"
    assert job["progress"]["trials"] == 0


def test_events_tell_the_whole_story(start: Start) -> None:
    """They are numbered from 1, end with `done`, and can be taken up anywhere."""
    client = start(**NULL)
    job = tune(client).json()["job"]
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        events = parse(stream.iter_lines())
    assert [event["id"] for event in events] == [
        str(number) for number in range(1, len(events) + 1)
    ]
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["state", "state"]
    assert {"trial", "resolve", "plan"} <= set(kinds)
    assert kinds[-1] == "done"
    assert events[-1]["data"]["state"] == "succeeded"
    assert events[-1]["data"]["evidence"] == "measured"
    with client.stream(
        "GET", f"/v1/jobs/{job}/events", headers={"Last-Event-ID": "3"}
    ) as stream:
        assert parse(stream.iter_lines()) == events[3:]


def test_equal_submissions_share_a_job(start: Start) -> None:
    """Many submitters at once get one job and one key."""
    client = start(**NULL)
    with ThreadPoolExecutor(8) as pool:
        answers = [one.json() for one in pool.map(lambda _: tune(client), range(8))]
    jobs = {answer["job"] for answer in answers if answer["job"]}
    assert len(jobs) == 1
    assert len({answer["plan_key"] for answer in answers}) == 1
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1
    ended(client, jobs.pop())


def test_a_client_may_wait(start: Start) -> None:
    """With `Prefer: wait` the measured plan comes in the same request."""
    client = start(**NULL)
    answer = tune(client, Prefer="wait=60")
    assert (answer.status_code, answer.json()["evidence"]) == (200, "measured")


def test_a_waiting_job_is_cancelled_at_once(start: Start) -> None:
    """It ends as cancelled, keeps its analytic plan, and can be asked for again."""
    with_worker = start(**NULL)
    ended(with_worker, tune(with_worker, width=32).json()["job"])
    with_worker.__exit__(None, None, None)
    client = start()
    told = tune(client).json()
    cancelled = client.delete(f"/v1/jobs/{told['job']}")
    assert cancelled.status_code == 202
    assert cancelled.json()["state"] == "cancelled"
    again = client.delete(f"/v1/jobs/{told['job']}")
    assert (again.status_code, again.json()["code"]) == (409, "job-ended")
    assert client.get(f"/v1/plans/{told['plan_key']}").status_code == 200
    missing = client.get(
        f"/v1/plans/{told['plan_key']}", params={"evidence": "measured"}
    )
    assert missing.json()["reason"] == "failed"
    assert tune(client).json()["job"] != told["job"]


def test_a_worker_takes_up_what_was_queued_without_it(start: Start) -> None:
    """Jobs that were queued while no worker ran are done when one starts."""
    first = start(**NULL)
    ended(first, tune(first, width=32).json()["job"])
    first.__exit__(None, None, None)
    api = start()
    job = tune(api).json()["job"]
    assert api.get(f"/v1/jobs/{job}").json()["state"] == "queued"
    again = start(**NULL)
    assert ended(again, job)["state"] == "succeeded"


def test_jobs_are_listed_page_by_page(start: Start) -> None:
    """Pages follow each other by cursor, and can be filtered by state."""
    client = start(**NULL)
    jobs = [tune(client, width=32 + n).json()["job"] for n in range(3)]
    for job in jobs:
        ended(client, job)
    first = client.get("/v1/jobs", params={"limit": 2}).json()
    rest = client.get("/v1/jobs", params={"limit": 2, "cursor": first["next"]}).json()
    listed = [job["id"] for job in (*first["jobs"], *rest["jobs"])]
    assert listed == jobs[::-1]
    assert rest["next"] is None
    assert client.get("/v1/jobs", params={"state": "failed"}).json()["jobs"] == []


def test_a_device_is_measured_on_by_one_worker(start: Start) -> None:
    """A second worker for the same device is refused with the reason."""
    start(**NULL)
    with pytest.raises(DeviceBusy, match="measures on it already"):
        start(**NULL)


def test_a_job_may_time_kernels_with_cold_caches(start: Start) -> None:
    """It is asked for beside the budget, and the job tells it."""
    client = start(**NULL)
    asked = {"target": "cpu", "mode": "tuned", "cache": "cold"}
    answer = client.post(
        "/v1/plans", content=graph_onnx(), params=asked, headers=ONNX
    ).json()
    job = ended(client, answer["job"])
    assert (job["state"], job["cache"]) == ("succeeded", "cold")
    wrong = {**asked, "cache": "hot"}
    refused = client.post("/v1/plans", content=graph_onnx(), params=wrong, headers=ONNX)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["where"].endswith("cache")


def test_a_job_may_run_more_partitions_whole(start: Start) -> None:
    """Up to a limit that the refusal names; the job tells what was asked."""
    client = start(**NULL)
    asked = {"target": "cpu", "mode": "tuned", "partitions": 5}
    answer = client.post(
        "/v1/plans", content=graph_onnx(), params=asked, headers=ONNX
    ).json()
    job = ended(client, answer["job"])
    assert (job["state"], job["partitions"]) == ("succeeded", 5)
    for wrong in (0, MAX_PARTITIONS + 1):
        refused = client.post(
            "/v1/plans",
            content=graph_onnx(),
            params={**asked, "partitions": wrong},
            headers=ONNX,
        )
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["where"].endswith("partitions")
        assert str(MAX_PARTITIONS if wrong else 1) in error["problem"]
