"""Pins, eviction, cuts, revisions, queue, timeline and drift over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.access import needed_scope
from service.api.fleet import MAX_STEPS
from service.app import create_app
from service.jobs import cutting, explaining
from service.store import Database, accuracy, jobs, plans
from service.store.accuracy import AccuracyRun
from service.store.events import EventDraft
from service.store.plans import PlanRevision
from tests.service.api.conftest import settings
from tests.service.dashboard import samples
from tests.service.dashboard.samples import STARTED, store_job
from tests.service.tables import furnish
from tuner.document import encode

KEY, OTHER = "1" * 64, "2" * 64


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with a measured plan, whose clock stands an hour after the first."""
    folder = furnish(tmp_path_factory.mktemp("keeping"))
    app = create_app(settings(folder))
    with TestClient(app) as opened:
        store_job(app.state.context.database, name="1", layers=1)
        yield opened


def database(client: TestClient) -> Database:
    """The database behind a client."""
    found: Database = client.app.state.context.database  # type: ignore[attr-defined]
    return found


def stand_still(client: TestClient, moment: datetime) -> None:
    """Let the service's clock stand at a moment."""
    context: Any = client.app.state.context  # type: ignore[attr-defined]
    object.__setattr__(context, "clock", lambda: moment)


def faster(body: dict[str, Any]) -> PlanRevision:
    """A plan that is better than the stored one."""
    better = {**body, "objective_seconds": body["objective_seconds"] / 2}
    return PlanRevision(
        evidence="measured",
        body=encode(better),
        seconds=better["objective_seconds"],
        objective_seconds=better["objective_seconds"],
        bound_seconds=body["bound_seconds"],
        kernels=len(body["kernels"]),
    )


def publish(client: TestClient, revision: PlanRevision) -> None:
    """Store a plan as a job does."""
    with database(client).write() as session:
        plans.publish(session, KEY, revision, now=STARTED)


def served(client: TestClient) -> str:
    """Digest of the plan that is given out."""
    provenance = client.get(f"/v1/plans/{KEY}/revisions").json()
    return str(provenance["served"].get("measured", ""))


def test_a_pinned_plan_stays(client: TestClient) -> None:
    """A better plan goes to the history only, until the key is let go."""
    before = served(client)
    pinned = client.put(f"/v1/plans/{KEY}/pin").json()
    assert (pinned["pinned"], pinned["actor"]) == (True, "local")
    assert client.get("/v1/plans").json()["plans"][0]["pinned"] is True
    publish(client, faster(samples.plan_body(layers=1)))
    assert served(client) == before
    assert len(client.get(f"/v1/plans/{KEY}/revisions").json()["revisions"]) == 2
    assert client.delete(f"/v1/plans/{KEY}/pin").json()["pinned"] is False
    again = samples.plan_body(layers=1)
    again["objective_seconds"] /= 2
    publish(client, faster(again))
    assert served(client) != before


def test_a_pinned_plan_is_not_evicted(client: TestClient) -> None:
    """The refusal says what to do, and the plan is still there."""
    client.put(f"/v1/plans/{KEY}/pin")
    refused = client.delete(f"/v1/plans/{KEY}")
    assert (refused.status_code, refused.json()["code"]) == (409, "plan-pinned")
    assert f"DELETE /v1/plans/{KEY}/pin" in refused.json()["hint"]
    assert served(client)


def test_an_evicted_plan_is_missed_with_its_reason(client: TestClient) -> None:
    """Lookups say `evicted`, the history stays, and a new plan is given out again."""
    assert client.delete(f"/v1/plans/{KEY}").json() == {"key": KEY, "plans": 1}
    lookup = client.post("/v1/plans:lookup", json={"keys": [KEY]}).json()
    assert lookup["missing"] == [{"key": KEY, "reason": "evicted"}]
    assert client.get(f"/v1/plans/{KEY}/cuts").status_code == 404
    assert client.delete(f"/v1/plans/{KEY}").status_code == 404
    assert client.put(f"/v1/plans/{KEY}/pin").status_code == 404
    publish(client, faster(samples.plan_body(layers=1)))
    assert served(client)


def test_changes_of_the_cache_are_audited(client: TestClient) -> None:
    """Who pinned, let go and evicted what stands in the audit, once each."""
    for method, path in (("put", "/pin"), ("delete", "/pin"), ("delete", "/pin")):
        getattr(client, method)(f"/v1/plans/{KEY}{path}")
    client.delete(f"/v1/plans/{KEY}")
    events = client.get("/v1/audit").json()["events"]
    told = [(event["action"], event["subject"]) for event in events]
    assert told == [
        ("plan.evict", KEY),
        ("plan.unpin", KEY),
        ("plan.pin", KEY),
    ]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_changing_the_cache_needs_a_scope(method: str) -> None:
    """Who may only read can neither pin nor evict."""
    assert needed_scope(method, f"/v1/plans/{KEY}/pin") == "plans:write"
    assert needed_scope("DELETE", f"/v1/plans/{KEY}") == "plans:write"
    assert needed_scope("GET", f"/v1/plans/{KEY}/pin") == "plans:read"


@pytest.mark.parametrize("path", ["pin", "cuts", "revisions/1/diff/2"])
def test_questions_about_an_unknown_key_are_misses(
    client: TestClient, path: str
) -> None:
    """A key that nobody asked for is a 404 with a reason."""
    answer = client.get(f"/v1/plans/{OTHER}/{path}")
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown")


def test_every_cut_has_the_price_of_its_explanation(client: TestClient) -> None:
    """A list of cuts says of each what `explain` says of its two kernels."""
    body = samples.plan_body(layers=1)
    body["kernels"][5]["inputs"].append(body["kernels"][2]["outputs"][0])
    told = cutting.cuts(body)
    assert len(told) == len(body["kernels"])
    by_name = {kernel["name"]: kernel for kernel in body["kernels"]}
    view = explaining._View(body=body)
    for cut in told:
        other = explaining._join(view, by_name[cut["a"]], by_name[cut["b"]])["other"]
        for name in ("extra_bytes", "extra_launches", "extra_seconds"):
            assert cut[name] == pytest.approx(other[name])
    assert len(client.get(f"/v1/plans/{KEY}/cuts").json()["cuts"]) == 11


def test_two_revisions_of_a_key_are_compared(client: TestClient) -> None:
    """Before and after tuning: the same kernels, another time."""
    publish(client, faster(samples.plan_body(layers=1)))
    told = client.get(f"/v1/plans/{KEY}/revisions/1/diff/2").json()
    assert (
        told["totals"]["objective_seconds"]["b"]
        < (told["totals"]["objective_seconds"]["a"])
    )
    assert told["kernels"]["same"] == 12
    assert client.get(f"/v1/plans/{KEY}/revisions/1/diff/9").status_code == 404


def test_the_queue_is_in_the_order_of_its_work(client: TestClient) -> None:
    """What runs has place 0; of those that wait, the more urgent one is next."""
    for name, state in (("2", "running"), ("3", "queued"), ("4", "queued")):
        store_job(database(client), name=name, state=state, layers=1, minutes=int(name))
    with database(client).write() as session:
        row = session.get(jobs.JobRow, "000000000004")
        assert row is not None
        row.priority = 5
    stand_still(client, STARTED + timedelta(minutes=5))
    told = client.get("/v1/queue").json()["jobs"]
    assert [(line["place"], line["job"]["id"][-1]) for line in told] == [
        (0, "2"),
        (1, "4"),
        (2, "3"),
    ]
    assert [line["waited_seconds"] for line in told] == [0.0, 60.0, 120.0]
    assert {line["workers"] for line in told} == {0}


def test_a_timeline_has_jobs_steps_and_gaps(client: TestClient) -> None:
    """A job of 41 s, a minute without work, and a job that waits for a worker."""
    store_job(database(client), name="2", state="queued", layers=1, minutes=2)
    stand_still(client, STARTED + timedelta(minutes=3))
    told = client.get("/v1/devices/cpu/timeline").json()
    assert told["seconds"] == 180.0
    (job,) = told["jobs"]
    assert (job["begin"], job["end"], job["trials"]) == (0.0, 41.0, 60)
    assert job["failures"] == {"compile": 3}
    assert told["busy_share"] == pytest.approx(41 / 180)
    steps = told["steps"]
    assert sum(step["trials"] for step in steps) == 60
    assert (steps[0]["begin"], steps[0]["end"], steps[-1]["end"]) == (0.0, 2.0, 32.0)
    gaps = [(gap["reason"], gap["begin"], gap["end"]) for gap in told["gaps"]]
    assert gaps == [
        ("idle", 41.0, 120.0),
        ("waiting", 120.0, 180.0),
    ]


def test_kills_and_contention_are_told_apart(client: TestClient) -> None:
    """A step says how many of its trials were disturbed, failed and killed."""
    drafts = [
        EventDraft(type="trial", data={"failure": kind, "contended": contended})
        for kind, contended in (("", True), ("timeout", False), ("compile", False))
    ]
    with database(client).write() as session:
        later = STARTED + timedelta(seconds=60)
        jobs.append(session, "000000000001", tuple(drafts), now=later)
    stand_still(client, STARTED + timedelta(minutes=2))
    last = client.get("/v1/devices/cpu/timeline").json()["steps"][-1]
    counts = {k: last[k] for k in ("trials", "contended", "killed", "failed")}
    assert counts == {"trials": 3, "contended": 1, "killed": 1, "failed": 2}


def test_a_long_timeline_is_told_in_few_steps(client: TestClient) -> None:
    """However many steps there were, the answer is small and loses no trial."""
    with database(client).write() as session:
        session.add_all(
            jobs.EventRow(
                job="000000000001",
                number=1000 + place,
                type="trial",
                data={"failure": "", "contended": False},
                created_at=STARTED + timedelta(seconds=place / 100),
            )
            for place in range(4000)
        )
    stand_still(client, STARTED + timedelta(minutes=1))
    steps = client.get("/v1/devices/cpu/timeline").json()["steps"]
    assert len(steps) <= MAX_STEPS
    assert sum(step["trials"] for step in steps) == 4060


def test_quality_is_told_job_by_job_and_run_by_run(client: TestClient) -> None:
    """Error and rank of each job, whether fusing was right, and what runs found."""
    summary = {"rows": [{"what": "decisions", "count": 12, "model": 0.9}]}
    with database(client).write() as session:
        accuracy.record(
            session,
            AccuracyRun(
                target="cpu",
                host="here",
                digest="d" * 64,
                summary=summary,
                created_at=STARTED,
            ),
        )
    told = client.get("/v1/devices/cpu/quality").json()
    (job,) = told["jobs"]
    assert job["accuracy"]["median_ratio"] == pytest.approx(44 / 40)
    assert job["decision"]["gain"] == pytest.approx(1.71 / 1.04)
    assert told["runs"][0]["summary"] == summary
    assert datetime.fromisoformat(told["runs"][0]["at"]).astimezone(UTC) == STARTED
    assert client.get("/v1/devices/abacus/quality").status_code == 404


def test_a_disturbed_decision_is_not_judged(client: TestClient) -> None:
    """Whole runs that others disturbed say so; the last one with both ways counts."""
    whole = {"plan": 2.0, "unfused": 1.0}
    drafts = (
        EventDraft(type="plan", data={"seconds": whole, "contended": True}),
        EventDraft(type="plan", data={"seconds": {"plan": 2.0}}),
    )
    with database(client).write() as session:
        jobs.append(session, "000000000001", drafts, now=STARTED)
    (job,) = client.get("/v1/devices/cpu/quality").json()["jobs"]
    assert job["decision"]["gain"] == 0.5
    assert job["decision"]["contended"] is True
    assert "disturbed: not judged" in client.get("/devices/cpu/quality").text


def test_a_job_without_steps_for_a_while_is_silent(client: TestClient) -> None:
    """A running job that stores nothing shows a gap up to now."""
    store_job(database(client), name="2", state="running", layers=1, minutes=1)
    stand_still(client, STARTED + timedelta(minutes=5))
    gaps = client.get("/v1/devices/cpu/timeline").json()["gaps"]
    silent = [(g["begin"], g["end"]) for g in gaps if g["reason"] == "silent"]
    assert silent == [(92.0, 300.0)]


def test_a_plan_that_was_not_changed_is_judged_as_the_untuned_one(
    client: TestClient,
) -> None:
    """Where tuning kept the first schedules, their whole run is the plan's."""
    data = {"winner": "untuned", "seconds": {"untuned": 1.0, "unfused": 3.0}}
    with database(client).write() as session:
        draft = EventDraft(type="plan", data=data)
        jobs.append(session, "000000000001", (draft,), now=STARTED)
    (job,) = client.get("/v1/devices/cpu/quality").json()["jobs"]
    assert job["decision"]["gain"] == 3.0
