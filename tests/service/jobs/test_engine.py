"""Tests of the job engine: durable, exactly one worker, left and taken up again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from service.app import now
from service.errors import WorkerUnavailable
from service.jobs.attempts import MOST_DEATHS, Attempts
from service.jobs.engine import QUEUE_POLL_SECONDS, VERSION, Engine, JobQueue, Step
from service.jobs.submission import Submissions
from service.settings import Settings
from service.store import Database, jobs
from tests.service.jobs import counting
from tests.service.jobs.conftest import queued
from tests.waiting import PATIENCE_SECONDS, until, when

ROOT = Path(__file__).parents[3]


def enqueue(database: Database, *jobs: str, version: str = VERSION) -> None:
    """Queue jobs for the counting worker."""
    queue = JobQueue(database, version=version)
    with database.write() as session:
        for job in jobs:
            queue.enqueue(session, job, counting.QUEUE)
    queue.close()


def test_a_killed_worker_goes_on_at_the_last_finished_step(
    url: str, database: Database, tmp_path: Path
) -> None:
    """After kill -9 the finished steps are not run again, and the job ends once.

    Only the step in flight may run twice: it was done, and not yet noted as done.
    """
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, "-m", "tests.service.jobs.counting", url, str(log)]
    enqueue(database, "job-1")
    with subprocess.Popen([*command, "6", "0.3"], cwd=ROOT) as first:
        until(lambda: len(log.read_text().splitlines()) >= 2)
        first.send_signal(signal.SIGKILL)
    with subprocess.Popen([*command, "6", "0.0"], cwd=ROOT) as second:
        until(lambda: "done" in log.read_text())
        second.send_signal(signal.SIGKILL)
    lines = log.read_text().splitlines()
    wanted = [*(f"job-1 {number}" for number in range(6)), "job-1 done"]
    assert list(dict.fromkeys(lines)) == wanted
    assert len(lines) <= len(wanted) + 1
    assert lines.count("job-1 0") == 1


def test_a_drained_job_goes_on_after_a_restart(url: str, database: Database) -> None:
    """Stopping leaves a job between two steps; the next start finishes it."""
    ran: list[str] = []
    under_way = threading.Event()

    def first(job: str, step: Step) -> str:
        step("one", lambda: ran.append("one"))
        under_way.set()
        until(lambda: engine.draining)
        step("two", lambda: ran.append("two"))
        return "succeeded"

    enqueue(database, "job-1")
    engine = counting.new_engine(url, first)
    engine.start()
    assert under_way.wait(PATIENCE_SECONDS)
    engine.stop(patience_seconds=PATIENCE_SECONDS)
    assert ran == ["one"]

    ended = threading.Event()

    def second(job: str, step: Step) -> str:
        step("one", lambda: ran.append("again"))
        step("two", lambda: ran.append("two"))
        ended.set()
        return "succeeded"

    engine = counting.new_engine(url, second)
    engine.start()
    assert ended.wait(PATIENCE_SECONDS)
    engine.stop(patience_seconds=PATIENCE_SECONDS)
    assert ran == ["one", "two"]


RESTARTS = 5
"""More than the deaths after which a job is given up."""


def test_restarts_in_order_are_no_deaths(
    settings: Settings, database: Database, submissions: Submissions
) -> None:
    """However often a job is left at a step, it goes on, and comes to its end."""
    assert RESTARTS > MOST_DEATHS
    job = queued(submissions)
    left: list[int] = []
    for _ in range(RESTARTS):
        engine = left_at_its_first_step(settings.url)
        engine.start()
        until(lambda: attempts(database, job) == 1)
        engine.stop(patience_seconds=PATIENCE_SECONDS)
        left.append(attempts(database, job))
    assert left == [0] * RESTARTS

    engine = counting.new_engine(
        settings.url, lambda _, step: str(step("one", lambda: "ok")), queue="tune.cpu"
    )
    engine.start()
    until(lambda: engine.given_up((job,)) == (job,))
    engine.stop(patience_seconds=PATIENCE_SECONDS)
    assert attempts(database, job) == 1


def left_at_its_first_step(url: str) -> Engine:
    """A worker that comes to the first step of a job when it is to end."""

    def run(_job: str, step: Step) -> str:
        until(lambda: engine.draining)
        return str(step("never", lambda: "succeeded"))

    engine = counting.new_engine(url, run, queue="tune.cpu")
    return engine


def test_a_step_that_is_too_long_to_wait_for_is_no_death(
    settings: Settings, database: Database, submissions: Submissions
) -> None:
    """A worker that ends in the middle of it takes its attempt back, and once."""
    job = queued(submissions)
    under_way, leave = threading.Event(), threading.Event()

    def run(_job: str, step: Step) -> str:
        step("long", lambda: under_way.set() or leave.wait(PATIENCE_SECONDS))
        return str(step("never", lambda: "succeeded"))

    engine = counting.new_engine(settings.url, run, queue="tune.cpu")
    engine.start()
    assert under_way.wait(PATIENCE_SECONDS)
    with database.write() as session:
        assert jobs.begin_attempt(session, job) == 2  # of some worker that died
    when(lambda: attempts(database, job) == 1, leave.set)
    engine.stop(patience_seconds=0.1)
    until(lambda: engine.job is None)
    assert attempts(database, job) == 1


def attempts(database: Database, job: str) -> int:
    """How many workers are counted that began a job."""
    with database.read() as session:
        found = jobs.find(session, job)
    assert found is not None
    return found.attempts


def test_a_job_that_kills_its_workers_is_given_up(
    database: Database, submissions: Submissions
) -> None:
    """Whoever takes it over: deaths are counted, and the last one ends it."""
    job = queued(submissions)
    counted = Attempts(database=database, clock=now)
    for _ in range(MOST_DEATHS):
        assert counted.begin(job)
        counted.leave(job)  # in order, between two deaths
        assert counted.begin(job)
    assert not counted.begin(job)
    with database.read() as session:
        found = jobs.find(session, job)
    assert found is not None
    assert (found.state, (found.error or {})["code"]) == ("failed", "job-lost")
    assert queued(submissions) != job


def test_each_version_takes_up_its_own_jobs(url: str, database: Database) -> None:
    """While a fleet is upgraded, old jobs wait for old workers, and new ones for new.

    A workflow that goes on in other steps than it began with would go wrong.
    """
    ran: list[tuple[str, str]] = []

    def work(version: str, enough: int) -> None:
        def run(job: str, step: Step) -> str:
            step("one", lambda: ran.append((version, job)))
            return "succeeded"

        engine = counting.new_engine(url, run, executor=f"h/{version}", version=version)
        engine.start()
        until(lambda: len(ran) == enough)
        engine.adopt(frozenset())
        time.sleep(3 * QUEUE_POLL_SECONDS)
        engine.stop(patience_seconds=PATIENCE_SECONDS)
        assert len(ran) == enough

    enqueue(database, "old-1", "old-2", version="plan-v0")
    enqueue(database, "new-1")
    work(VERSION, 1)
    work("plan-v0", 3)
    assert ran == [(VERSION, "new-1"), ("plan-v0", "old-1"), ("plan-v0", "old-2")]


def test_only_jobs_of_older_versions_begin_anew(url: str, database: Database) -> None:
    """An older one forgets the steps it made; a newer one waits for its workers."""
    ran: list[str] = []
    ended = threading.Event()

    def run(job: str, step: Step) -> str:
        step("one", lambda: ran.append(job))
        ended.set()
        return "succeeded"

    enqueue(database, "newer", version="plan-v99")
    enqueue(database, "older", version="plan-v0")
    engine = counting.new_engine(url, run)
    engine.start()
    assert engine.outdated() == (("older", "plan-v0"),)
    engine.begin_anew("older", counting.QUEUE)
    assert ended.wait(PATIENCE_SECONDS)
    until(lambda: engine.given_up(("older",)) == ("older",))
    assert engine.outdated() == ()
    engine.stop(patience_seconds=PATIENCE_SECONDS)
    assert ran == ["older"]


def test_a_job_whose_transaction_fails_is_never_run(
    url: str, database: Database
) -> None:
    """Queueing is part of the caller's transaction."""
    ran: list[str] = []
    queue = JobQueue(database)

    def fail() -> None:
        with database.write() as session:
            queue.enqueue(session, "never", counting.QUEUE)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    queue.close()
    enqueue(database, "job-1", "job-2")

    def run(job: str, step: Step) -> str:
        ran.append(job)
        return "succeeded"

    engine = counting.new_engine(url, run)
    engine.start()
    until(lambda: len(ran) == 2)
    engine.stop(patience_seconds=PATIENCE_SECONDS)
    assert ran == ["job-1", "job-2"]


def test_a_queue_that_nobody_ever_served_is_refused(database: Database) -> None:
    """A job that would wait for ever is not taken."""
    queue = JobQueue(database)
    with (
        pytest.raises(WorkerUnavailable, match="no worker ever offered"),
        database.read() as session,
    ):
        queue.require(session, "tune.cuda.sm_90")
    queue.close()
