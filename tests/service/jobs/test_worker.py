"""Tests of workers: one per device, and nothing stays behind with a dead one."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from service.app import make_worker, now
from service.errors import DeviceBusy
from service.jobs.attempts import MOST_DEATHS
from service.jobs.engine import VERSION, JobQueue, Step
from service.jobs.locks import DeviceLock, process_lives
from service.jobs.planning import Planner
from service.jobs.session import Tuning, open_tuning
from service.jobs.submission import Submissions
from service.jobs.worker import Worker
from service.settings import Settings
from service.store import Database, devices, events, heartbeats, jobs
from service.store.devices import StoredDevice
from service.store.heartbeats import Heartbeat
from tests.service.api.models import graph_onnx
from tests.service.jobs.conftest import ask, queued
from tests.service.jobs.counting import new_engine
from tests.waiting import PATIENCE_SECONDS, until
from tuner.runtime.runner import Runner

OLDER = "plan-v2"
LOOK_NAPS = 20


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Workers look around when the test tells them to: one thread at a time may."""
    return settings.model_copy(update={"heartbeat_seconds": 3600.0})


def look_until_ended(worker: Worker, database: Database, job: str) -> jobs.Job:
    """The job when it has ended; the worker looks around meanwhile.

    Not at every nap: what is its own in two looks in turn, and is not worked on, was
    left, and a job that was just taken from the queue has to be begun in between.
    """
    naps = itertools.count()

    def look() -> jobs.Job:
        with database.read() as session:
            found = jobs.find(session, job)
        assert found is not None
        return found

    def is_over() -> bool:
        if next(naps) % LOOK_NAPS == 0:
            worker._look_around()
        return not look().active

    until(is_over)
    return look()


def test_a_job_of_a_dead_worker_is_taken_over(
    settings: Settings, database: Database, submissions: Submissions
) -> None:
    """A job that a vanished host had begun is done by the next worker."""
    job = queued(submissions)
    with database.write() as session:
        jobs.start(session, job, now=now())
        session.execute(
            text(
                "UPDATE workflow_status SET status = 'PENDING',"
                " executor_id = 'gone/cpu', application_version = :version"
            ),
            {"version": VERSION},
        )
    worker = make_worker(settings, database)
    worker.start()
    ended = look_until_ended(worker, database, job)
    worker.stop()
    assert ended.state == "succeeded"


def test_a_job_that_was_given_up_fails(
    settings: Settings, database: Database, submissions: Submissions
) -> None:
    """What an older release's engine gave up ends, and its key is free again."""
    job = queued(submissions)
    with database.write() as session:
        jobs.start(session, job, now=now())
        session.execute(
            text("UPDATE workflow_status SET status = 'MAX_RECOVERY_ATTEMPTS_EXCEEDED'")
        )
    worker = make_worker(settings, database)
    worker.start()
    ended = look_until_ended(worker, database, job)
    worker.stop()
    assert ended.state == "failed"
    assert ended.error is not None
    assert ended.error["code"] == "job-lost"
    assert queued(submissions) != job


def test_a_job_that_killed_too_many_is_not_begun(
    settings: Settings, database: Database, submissions: Submissions
) -> None:
    """The worker that takes it up ends it, lives, and does the next one."""
    deadly, harmless = queued(submissions), queued(submissions, width=96)
    with database.write() as session:
        for _ in range(MOST_DEATHS):
            jobs.begin_attempt(session, deadly)
    worker = make_worker(settings, database)
    worker.start()
    lost = look_until_ended(worker, database, deadly)
    ended = look_until_ended(worker, database, harmless)
    worker.stop()
    assert (lost.state, (lost.error or {})["code"]) == ("failed", "job-lost")
    assert ended.state == "succeeded"


def begun_elsewhere(database: Database, job: str, beat: Heartbeat) -> None:
    """A job that another worker has begun, which said so once."""
    with database.write() as session:
        jobs.start(session, job, now=now())
        heartbeats.beat(session, beat)
        session.execute(
            text(
                "UPDATE workflow_status SET status = 'PENDING',"
                " executor_id = :worker, application_version = :version"
            ),
            {"version": VERSION, "worker": beat.worker},
        )


def silent_beat(host: str, pid: int, job: str, *, seconds: float) -> Heartbeat:
    """The last word of a worker that has said nothing for some time."""
    then = now() - timedelta(seconds=seconds)
    return Heartbeat(
        worker=f"{host}/cpu",
        host=host,
        pid=pid,
        device="cpu",
        queue="tune.cpu",
        job=job,
        started_at=now(),
        seen_at=then,
    )


@pytest.fixture
def looker(settings: Settings, database: Database) -> Iterator[Worker]:
    """A worker that was punctual for an hour, and looks around when it is told to.

    The test starts it: from then on it takes what is queued.
    """
    worker = make_worker(settings, database)
    worker._punctual_since = now() - timedelta(hours=1)
    yield worker
    worker.stop()


def test_a_starved_worker_of_this_host_keeps_its_job(
    looker: Worker, database: Database, submissions: Submissions
) -> None:
    """It is silent, but its process lives; once that has ended, its job is free."""
    job = queued(submissions)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        beat = silent_beat(looker.host, other.pid, job, seconds=600)
        begun_elsewhere(database, job, beat)
        looker.start()
        looker._look_around()
        assert state_of(database, job) == ("PENDING", beat.worker)
        with database.write() as session:
            session.execute(
                text(
                    "UPDATE workflow_status"
                    " SET status = 'MAX_RECOVERY_ATTEMPTS_EXCEEDED'"
                )
            )
        looker._look_around()
        with database.read() as session:
            found = jobs.find(session, job)
        assert found is not None
        assert found.active
    looker._look_around()
    with database.read() as session:
        found = jobs.find(session, job)
    assert found is not None
    assert found.state == "failed"


def test_a_process_that_got_the_number_of_another_is_not_it() -> None:
    """A number is given again; who began after the last word is somebody else."""
    assert process_lives(os.getpid(), now())
    assert not process_lives(os.getpid(), now() - timedelta(days=400))
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not process_lives(ended.pid, now())  # it is there, but as a zombie


def test_who_was_starved_itself_does_not_judge_other_hosts(
    looker: Worker, settings: Settings
) -> None:
    """Their silence counts from when its own heartbeats were on time again."""
    looker.start()
    patience = settings.dead_after_seconds
    silent = silent_beat("elsewhere", 1, "job", seconds=3 * patience + 5)
    assert looker._lives(replace(silent, seen_at=now() - 2 * looker._dead_after))
    assert not looker._lives(silent)
    looker._beat_at = now() - timedelta(seconds=patience + 1)
    looker._beat()
    assert looker._lives(silent)
    looker._beat()
    assert looker._lives(silent)


def state_of(database: Database, job: str) -> tuple[str, str]:
    """What the engine says of a job, and whose it is."""
    with database.read() as session:
        row = session.execute(
            text(
                "SELECT status, executor_id FROM workflow_status"
                " WHERE workflow_uuid = :job"
            ),
            {"job": job},
        ).one()
    return row.status, row.executor_id


def leave_outdated(settings: Settings, submissions: Submissions) -> tuple[str, str]:
    """Two jobs of an older version: one that its worker left, and one that waits."""
    under_way = threading.Event()

    def old(_job: str, step: Step) -> str:
        step("prepare", under_way.set)
        until(lambda: engine.draining)
        step("measure", lambda: None)
        return "succeeded"

    engine = new_engine(
        settings.url,
        old,
        executor="elsewhere/cpu",
        queue="tune.cpu",
        version=OLDER,
    )
    begun = queued(submissions)
    engine.start()
    assert under_way.wait(PATIENCE_SECONDS)
    engine.stop(patience_seconds=PATIENCE_SECONDS)
    wider = replace(ask().question, data=graph_onnx(width=64))
    waiting = submissions.submit(replace(ask(), question=wider)).job
    assert waiting is not None
    return begun, waiting.id


@pytest.fixture
def older_submissions(
    submissions: Submissions, database: Database
) -> Iterator[Submissions]:
    """The same, of a service before the upgrade."""
    queue = JobQueue(database, version=OLDER)
    submissions._queue = queue
    yield submissions
    queue.close()


def test_jobs_of_an_older_version_begin_anew_after_an_upgrade(
    settings: Settings, database: Database, older_submissions: Submissions
) -> None:
    """Each ends once, by the new workflow, and all that it measures is stored."""
    begun, waiting = leave_outdated(settings, older_submissions)
    with database.write() as session:
        jobs.start(session, begun, now=now())
        jobs.advance(session, begun, batch=1000, progress=jobs.Progress(trials=7))
    worker = make_worker(settings, database)
    worker.start()
    for job in (begun, waiting):
        ended = look_until_ended(worker, database, job)
        assert ended.state in {"succeeded", "partial"}
        assert 0 < ended.batches < 1000
        with database.read() as session:
            told = events.of_job(session, job)
        assert [event.type for event in told].count("done") == 1
        assert "trial" in {event.type for event in told}
    worker.stop()


def test_a_running_job_of_an_older_version_can_be_cancelled(
    settings: Settings, database: Database, older_submissions: Submissions
) -> None:
    """Nobody runs it, so the new worker ends it, and its key is free again."""
    begun, _ = leave_outdated(settings, older_submissions)
    with database.write() as session:
        jobs.start(session, begun, now=now())
        jobs.request_cancel(session, begun, now=now())
    worker = make_worker(settings, database)
    worker.start()
    assert look_until_ended(worker, database, begun).state == "cancelled"
    worker.stop()
    assert queued(older_submissions) != begun


@pytest.mark.parametrize("facts", [{}, {"workflow": OLDER}])
def test_a_living_worker_keeps_the_jobs_of_its_older_version(
    settings: Settings,
    database: Database,
    older_submissions: Submissions,
    facts: dict[str, str],
) -> None:
    """In an upgrade they are its own; one that says no version may be it."""
    begun, waiting = leave_outdated(settings, older_submissions)
    beat = Heartbeat(
        worker="elsewhere/cpu",
        host="elsewhere",
        pid=1,
        device="cpu",
        queue="tune.cpu",
        job=begun,
        started_at=now(),
        seen_at=now(),
    )
    offer = StoredDevice(
        name="cpu",
        host="elsewhere",
        target="cpu",
        queues=("tune.cpu",),
        facts=facts,
        seen_at=now(),
    )
    with database.write() as session:
        devices.put(session, offer)
        heartbeats.beat(session, beat)
    worker = make_worker(settings, database)
    worker.start()
    worker._look_around()
    assert {*worker._engine.outdated()} == {(begun, OLDER), (waiting, OLDER)}
    with database.write() as session:
        heartbeats.remove(session, beat.worker)
    worker._look_around()
    assert worker._engine.outdated() == ()
    worker.stop()


def test_a_worker_that_ends_in_order_leaves_no_heartbeat(
    settings: Settings, database: Database
) -> None:
    """While it lives it is told of; afterwards its device is free."""
    worker = make_worker(settings, database)
    worker.start()
    with database.read() as session:
        living = heartbeats.all_workers(session)
    worker.stop()
    with database.read() as session:
        assert heartbeats.all_workers(session) == ()
    assert [beat.device for beat in living] == ["null:0"]
    lock = DeviceLock(settings.data_folder / "locks", "null:0")
    lock.acquire()
    lock.release()


def test_a_device_lock_names_its_holder(tmp_path: Path) -> None:
    """The second one learns which process has the device."""
    first, second = DeviceLock(tmp_path, "cpu"), DeviceLock(tmp_path, "cpu")
    first.acquire()
    with pytest.raises(DeviceBusy, match=r"process [0-9]+ measures"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def first_kernels(tuning: Tuning, runner: Runner) -> set[str]:
    """Identities of the first kernel runs of a session."""
    while (batch := tuning.propose()) is not None:
        found = {one["key"] for one in batch["items"] if one["kind"] == "kernel"}
        if found:
            return found
        tuning.observe(batch, tuning.measure(batch, runner))
    return set()


def test_a_job_times_kernels_with_the_caches_that_were_asked_for(
    submissions: Submissions, database: Database
) -> None:
    """What it measures has another identity, and takes none of the other kind over."""
    planner = Planner(plan_seconds=5)
    keys = {}
    for cache in ("warm", "cold"):
        question = replace(ask().question, data=graph_onnx(width=48 + len(keys)))
        job = submissions.submit(replace(ask(), question=question, cache=cache)).job
        assert job is not None
        with database.read() as session:
            found = jobs.find(session, job.id)
        assert found is not None
        assert found.request.cache == cache
        tuning = open_tuning(planner, found.request, graph_onnx(width=48), known={})
        with Runner("null:0") as runner:
            keys[cache] = first_kernels(tuning, runner)
    assert keys["warm"]
    assert not keys["warm"] & keys["cold"]


def test_a_repeated_request_must_ask_for_the_same_caches() -> None:
    """An Idempotency-Key of a request for warm ones is not one for cold ones."""
    assert ask().fingerprint != replace(ask(), cache="cold").fingerprint


def test_a_job_runs_as_many_partitions_whole_as_were_asked_for(
    submissions: Submissions, database: Database
) -> None:
    """The number is part of the request, and reaches the session."""
    data = graph_onnx(width=56)
    question = replace(ask().question, data=data)
    job = submissions.submit(replace(ask(), question=question, partitions=7)).job
    assert job is not None
    with database.read() as session:
        found = jobs.find(session, job.id)
    assert found is not None
    assert found.request.partitions == 7
    tuning = open_tuning(Planner(plan_seconds=5), found.request, data, known={})
    assert tuning.session.wanted_partitions == 7
    assert ask().fingerprint != replace(ask(), partitions=7).fingerprint
