"""Tests of several workers on one database: killed, drained, in order, cancelled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from service.app import new_id, now, prepare
from service.jobs.devices import open_runner
from service.jobs.engine import JobQueue
from service.jobs.planning import Planner, Question
from service.jobs.submission import Ask, Submissions
from service.settings import Settings
from service.store import Database, connect, devices, events, heartbeats, jobs, plans
from service.store.devices import StoredDevice
from service.store.jobs import Job
from tests import waiting
from tests.conftest import SOAK
from tests.service.api.models import graph_onnx
from tests.service.conftest import NewDatabase
from tuner.errors import DeviceUnavailable

ROOT = Path(__file__).parents[3]
COMMAND = "import sys; from service.cli import main; sys.exit(main())"
CYCLES = 20 if SOAK else 2
PATIENCE_SECONDS = 900.0 if SOAK else 240.0
KINDS = ("sqlite", "postgresql") if SOAK else ("sqlite",)
"""Databases; the tests of outages kill workers on PostgreSQL in every run."""


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, at full length for long."""
    waiting.until(condition, PATIENCE_SECONDS)


class Fleet:
    """Workers as processes of their own, on null devices.

    Args:
        url: their database.
        home: their data folder; locks lie there.
    """

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self._home = home
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, device: str, *, niceness: int = 0) -> None:
        """Start a worker.

        At its own niceness it would get nothing done on a machine that is busy with
        other things, and a test would wait for that.
        """
        environment = {
            **os.environ,
            "FUSEPLAN_WORKER_NICENESS": str(niceness),
            "XDG_DATA_HOME": str(self._home),
            "FUSEPLAN_DATABASE_URL": self.url,
            "FUSEPLAN_HEARTBEAT_SECONDS": "0.3",
            "FUSEPLAN_DEAD_AFTER_SECONDS": "3",
            "FUSEPLAN_LOG_LEVEL": "warning",
        }
        words = [sys.executable, "-c", COMMAND, "worker", "--device", device]
        with self._said(device).open("wb") as said:
            self.workers[device] = subprocess.Popen(
                words, cwd=ROOT, env=environment, stderr=said
            )

    def kill(self, device: str) -> None:
        """End a worker without a word."""
        worker = self.workers.pop(device)
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def drain(self, device: str) -> int:
        """Ask a worker that has started to end; gives its exit code.

        Before a worker says that it tunes, Python is still loading it, and a signal
        ends it as it ends any process.
        """
        until(lambda: b"tuning on" in self._said(device).read_bytes())
        worker = self.workers.pop(device)
        worker.send_signal(signal.SIGTERM)
        return worker.wait(PATIENCE_SECONDS)

    def niceness(self, device: str) -> dict[str, int]:
        """Of the threads of a worker that has started."""
        until(lambda: b"tuning on" in self._said(device).read_bytes())
        main = self.workers[device].pid
        threads = [int(path.name) for path in Path(f"/proc/{main}/task").iterdir()]
        nice = {}
        for thread in threads:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                name = "main" if thread == main else str(thread)
                nice[name] = os.getpriority(os.PRIO_PROCESS, thread)
        return nice

    def _said(self, device: str) -> Path:
        return self._home / f"{device.replace(':', '-')}.stderr"


@pytest.fixture(params=KINDS)
def fleet_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'fleet.db'}"
    new_database: NewDatabase = request.getfixturevalue("postgres")
    return new_database()


@contextmanager
def running(url: str, home: Path) -> Iterator[tuple[Fleet, Database, Submissions]]:
    """A fleet without workers yet, its database, and who takes jobs for it."""
    settings = Settings(data_home=home, database_url=url, device="null:0")
    prepare(settings)
    database = connect(url)
    queue = JobQueue(database)
    submissions = Submissions(
        settings=settings,
        database=database,
        planner=Planner(plan_seconds=5),
        queue=queue,
        clock=now,
        new_id=new_id,
    )
    fleet = Fleet(url, home)
    try:
        yield fleet, database, submissions
    finally:
        for device in list(fleet.workers):
            fleet.kill(device)
        queue.close()
        database.close()


def submit(submissions: Submissions, width: int, priority: int = 100) -> str:
    """Hand a model in to be tuned; gives its job."""
    question = Question(
        data=graph_onnx(width=width), form="onnx", target="cpu", options={}
    )
    ask = Ask(
        question=question,
        mode="tuned",
        budget_seconds=10,
        budget_trials=30,
        priority=priority,
    )
    job = submissions.submit(ask).job
    assert job is not None
    return job.id


def find(database: Database, job: str) -> Job:
    """A job as it is now."""
    with database.read() as session:
        found = jobs.find(session, job)
    assert found is not None
    return found


def offered(database: Database) -> int:
    """How many devices were ever offered."""
    with database.read() as session:
        return len(devices.offered(session))


def check_ended_once(database: Database, job: str) -> None:
    """A job succeeded, told so once, and its plan is measured."""
    with database.read() as session:
        told = events.of_job(session, job, limit=10_000)
        found = jobs.find(session, job)
        assert found is not None
        plan = plans.find(session, found.request.plan_key)
    assert found.state == "succeeded", found.error
    assert [one.number for one in told] == list(range(1, len(told) + 1))
    assert [one.type for one in told].count("done") == 1
    assert plan is not None
    assert plan.pointer.evidence == "measured"


def test_a_worker_lets_the_api_of_its_machine_go_first(tmp_path: Path) -> None:
    """It takes the processor that nobody else wants: lookups are not kept waiting.

    The thread that starts what measures is less nice: preparation waits for that.
    """
    url = f"sqlite:///{tmp_path / 'fleet.db'}"
    with running(url, tmp_path) as (fleet, _, _):
        told = Settings()
        fleet.start("null:0", niceness=told.worker_niceness)
        nice = fleet.niceness("null:0")
        base = os.getpriority(os.PRIO_PROCESS, 0)
        assert nice["main"] == min(base + told.worker_niceness, 19) > base
        assert min(base + told.measure_niceness, 19) in nice.values()


def measuring(pid: int) -> list[tuple[int, set[int]]]:
    """Niceness and cores of the processes in which a worker measures.

    Source: proc(5), `stat` and `cmdline`.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = path.read_text().rpartition(")")[2].split()[1]
            words = (path.parent / "cmdline").read_bytes()
            if int(parent) == pid and b"tuner.runtime.child" in words:
                child = int(path.parent.name)
                niceness = os.getpriority(os.PRIO_PROCESS, child)
                found.append((niceness, os.sched_getaffinity(child)))
    return found


def test_what_measures_waits_for_no_preparation(tmp_path: Path) -> None:
    """The process in which a worker measures is less nice than the worker itself."""
    core = min(os.sched_getaffinity(0))
    try:
        with open_runner(f"cpu:{core}"):
            pass
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    base, told = os.getpriority(os.PRIO_PROCESS, 0), Settings()
    with running(f"sqlite:///{tmp_path / 'fleet.db'}", tmp_path) as (
        fleet,
        database,
        by,
    ):
        fleet.start(f"cpu:{core}", niceness=told.worker_niceness)
        until(lambda: offered(database) == 1)
        job = submit(by, 64)
        worker = fleet.workers[f"cpu:{core}"].pid
        seen: list[tuple[int, set[int]]] = []
        until(lambda: bool(seen.extend(measuring(worker)) or seen))
        assert os.getpriority(os.PRIO_PROCESS, worker) == min(
            base + told.worker_niceness, 19
        )
        assert seen[0] == (min(base + told.measure_niceness, 19), {core})
        until(lambda: not find(database, job).active)
        assert find(database, job).state in {"succeeded", "partial"}


def test_a_fleet_loses_nothing(fleet_url: str, tmp_path: Path) -> None:
    """Whichever worker is killed whenever, every job ends exactly once.

    In the end a worker that is asked to stop leaves in order: exit code 0, and no sign
    of life is left of it.
    """
    luck = random.Random(7)
    with running(fleet_url, tmp_path) as (fleet, database, submissions):
        for device in ("null:0", "null:1"):
            fleet.start(device)
        until(lambda: offered(database) == 2)
        accepted: list[str] = []
        for cycle in range(CYCLES):
            accepted += [submit(submissions, 32 + 4 * cycle + n) for n in range(4)]
            time.sleep(luck.uniform(0.0, 1.5))
            victim = luck.choice(["null:0", "null:1"])
            fleet.kill(victim)
            fleet.start(victim)
        until(lambda: not any(find(database, job).active for job in accepted))
        for job in accepted:
            check_ended_once(database, job)
        for device in ("null:0", "null:1"):
            assert fleet.drain(device) == 0
        with database.read() as session:
            assert heartbeats.all_workers(session) == ()


def test_jobs_of_a_dead_host_are_taken_over(fleet_url: str, tmp_path: Path) -> None:
    """A worker that never comes back: another one goes on with its job, in seconds."""
    with running(fleet_url, tmp_path) as (fleet, database, submissions):
        fleet.start("null:0")
        until(lambda: offered(database) == 1)
        waiting = [submit(submissions, 100 + n) for n in range(4)]
        until(lambda: find(database, waiting[0]).state != "queued")
        fleet.kill("null:0")
        fleet.start("null:1")
        until(lambda: not any(find(database, job).active for job in waiting))
        for job in waiting:
            check_ended_once(database, job)


def test_the_smallest_priority_is_next(fleet_url: str, tmp_path: Path) -> None:
    """Of the jobs that wait, whatever came first.

    Jobs are taken because some worker once offered its device.
    """
    device = StoredDevice(
        name="null:0",
        host="elsewhere",
        target="cpu",
        queues=("tune.cpu",),
        facts={},
        seen_at=now(),
    )
    with running(fleet_url, tmp_path) as (fleet, database, submissions):
        with database.write() as session:
            devices.put(session, device)
        late = [submit(submissions, 200 + n, priority=500) for n in range(2)]
        urgent = submit(submissions, 210, priority=1)
        fleet.start("null:0")
        until(lambda: not any(find(database, job).active for job in (*late, urgent)))
        begun = {job: find(database, job).started_at for job in (*late, urgent)}
    assert min(begun, key=lambda job: begun[job] or now()) == urgent
