"""Tests of jobs and their events."""

from __future__ import annotations

from datetime import datetime, timedelta

from service.store import Database, events, jobs, kernels, measurements
from service.store.events import EventDraft
from service.store.jobs import Progress
from service.store.kernels import StoredKernel
from service.store.measurements import StoredMeasurement
from tests.service.store.samples import register, request


def test_a_key_has_one_active_job(database: Database, now: datetime) -> None:
    """A second job for a key is refused until the first has ended."""
    with database.write() as session:
        register(session, now)
        assert jobs.create(session, request("one"), now=now) is not None
        assert jobs.create(session, request("two"), now=now) is None
        jobs.finish(session, "one", "succeeded", now=now)
        assert jobs.create(session, request("two"), now=now) is not None
        active = jobs.active(session, request().plan_key)
    assert active is not None
    assert active.id == "two"


def test_a_job_goes_through_its_states(database: Database, now: datetime) -> None:
    """Queued, running, ended: each with its moment, none after the end."""
    with database.write() as session:
        register(session, now)
        jobs.create(session, request(), now=now)
        started = jobs.start(session, "job-1", now=now + timedelta(seconds=1))
        ended = jobs.finish(session, "job-1", "partial", now=now + timedelta(seconds=2))
        assert jobs.start(session, "job-1", now=now) is None
        again = jobs.finish(session, "job-1", "failed", now=now)
    assert started is not None
    assert (started.state, started.started_at) == (
        "running",
        now + timedelta(seconds=1),
    )
    assert ended == again
    assert ended is not None
    assert ended.state == "partial"
    assert not ended.active


def test_a_restarted_worker_finds_its_job_running(
    database: Database, now: datetime
) -> None:
    """Starting a running job again changes nothing."""
    with database.write() as session:
        register(session, now)
        jobs.create(session, request(), now=now)
        first = jobs.start(session, "job-1", now=now)
        later = jobs.start(session, "job-1", now=now + timedelta(hours=1))
    assert first == later


def test_events_are_numbered_without_holes(database: Database, now: datetime) -> None:
    """Numbers count from 1, and a reader can go on after any of them."""
    with database.write() as session:
        register(session, now)
        jobs.create(session, request(), now=now)
        jobs.append(
            session,
            "job-1",
            (EventDraft(type="trial", data={"seconds": 1.0}), EventDraft(type="plan")),
            now=now,
        )
        jobs.finish(session, "job-1", "succeeded", now=now)
        found = events.of_job(session, "job-1")
        rest = events.of_job(session, "job-1", after=3)
        trials = events.of_job(session, "job-1", types=("trial",))
    assert [one.number for one in found] == [1, 2, 3, 4, 5]
    assert [one.type for one in found] == ["state", "trial", "plan", "state", "done"]
    assert rest == found[3:]
    assert trials == (found[1],)


def test_a_batch_is_stored_once(database: Database, now: datetime) -> None:
    """A repeated batch is recognised, so its events are not doubled."""
    progress = Progress(trials=3, best_seconds=0.5, gap=0.1, remaining_seconds=4.0)
    with database.write() as session:
        register(session, now)
        jobs.create(session, request(), now=now)
        assert jobs.advance(session, "job-1", batch=1, progress=progress)
        assert not jobs.advance(session, "job-1", batch=1, progress=Progress())
        job = jobs.find(session, "job-1")
    assert job is not None
    assert job.progress.trials == 3
    assert job.batches == 1


def test_who_got_further_has_not_died(database: Database, now: datetime) -> None:
    """Deaths count that come one after the other, with no batch stored in between."""
    with database.write() as session:
        register(session, now)
        jobs.create(session, request(), now=now)
        for _ in range(3):
            begun = jobs.begin_attempt(session, "job-1")
        assert begun == 3
        jobs.advance(session, "job-1", batch=1, progress=Progress())
        assert jobs.begin_attempt(session, "job-1") == 2


def test_cancelling(database: Database, now: datetime) -> None:
    """A queued job ends at once; a running one is asked to end."""
    with database.write() as session:
        register(session, now)
        register(session, now, "c" * 64)
        jobs.create(session, request("waits"), now=now)
        jobs.create(session, request("runs", "c" * 64), now=now)
        jobs.start(session, "runs", now=now)
        waiting = jobs.request_cancel(session, "waits", now=now)
        running = jobs.request_cancel(session, "runs", now=now)
        assert jobs.request_cancel(session, "nobody", now=now) is None
    assert waiting is not None
    assert running is not None
    assert waiting.state == "cancelled"
    assert (running.state, running.cancel_requested) == ("running", True)


def test_pages_follow_each_other(database: Database, now: datetime) -> None:
    """The newest come first, and each page begins where the last one ended."""
    with database.write() as session:
        for number in range(5):
            key = f"{number}" * 64
            register(session, now, key)
            jobs.create(
                session,
                request(f"job-{number}", key),
                now=now + timedelta(seconds=number // 2),
            )
        first = jobs.page(session, limit=2)
        second = jobs.page(session, limit=2, before=first[-1].id)
        queued = jobs.page(session, state="queued")
        counts = jobs.count(session)
    assert [job.id for job in (*first, *second)] == ["job-4", "job-3", "job-2", "job-1"]
    assert len(queued) == 5
    assert counts["queued"] == 5
    assert counts["failed"] == 0


def test_measurements_are_known_up_to_a_moment(
    database: Database, now: datetime
) -> None:
    """A job sees what was measured before it began, and nothing later."""
    one = StoredMeasurement(
        job=None,
        subject="s",
        kernel=None,
        device="cpu",
        schedule={"vector": 4},
        seconds=1.0,
        low_seconds=0.9,
        high_seconds=1.1,
        samples=(1.0, 1.1),
        failure="",
        result={"seconds": 1.0},
    )
    with database.write() as session:
        measurements.add(session, (one,), now=now)
        until = measurements.last_id(session)
        measurements.add(session, (one, one), now=now)
        assert measurements.count(session) == 3
        assert measurements.last_id(session) == until + 2
        assert measurements.known(session, "cpu", until=until) == {}


def test_the_fastest_runs_of_other_devices_are_found(
    database: Database, now: datetime
) -> None:
    """One of each kernel and device, of what was measured up to a moment."""

    def run(device: str, kernel: str, seconds: float | None) -> StoredMeasurement:
        result = {"seconds": seconds, "failure": "" if seconds else "timeout"}
        return StoredMeasurement.of(
            result, subject=f"{device} {seconds}", device=device, kernel=kernel
        )

    with database.write() as session:
        names = ("one", "two")
        kept = [StoredKernel(fingerprint=name, family="pointwise") for name in names]
        kernels.put(session, kept, now=now)
        before = (
            run("t4", "one", 2.0),
            run("t4", "one", 1.0),
            run("t4", "one", None),
            run("t4", "two", 3.0),
            run("l4", "one", 4.0),
            run("cpu", "one", 0.1),
        )
        measurements.add(session, before, now=now)
        until = measurements.last_id(session)
        measurements.add(session, (run("t4", "one", 0.5),), now=now)
        found = measurements.elsewhere(session, "cpu", until=until)
    told = [(device, result["seconds"]) for device, result in found]
    assert told == [("t4", 1.0), ("t4", 3.0), ("l4", 4.0)]
