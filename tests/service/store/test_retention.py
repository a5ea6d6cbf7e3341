"""Tests of what is kept and what goes: no pointer is ever broken."""

from __future__ import annotations

import random
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from service.cli import main
from service.jobs.upkeep import collect
from service.store import Database, audit, blobs, connect, jobs, plans, retention
from service.store.audit import AuditDraft
from service.store.blobs import BlobRow
from service.store.retention import Retention
from tests.conftest import SOAK
from tests.service.store import samples

TURNS = 200 if SOAK else 12
EVIDENCE: tuple[plans.Evidence, ...] = ("analytic", "compiled", "measured")


def all_but(now: datetime, keep: int = 0) -> Retention:
    """Everything from before a moment is too old."""
    return Retention(
        revisions_before=now, keep_revisions=keep, jobs_before=now, audit_before=now
    )


def digests(database: Database) -> set[str]:
    """Every blob that is stored."""
    with database.read() as session:
        return set(session.scalars(select(BlobRow.digest)))


def store(database: Database, now: datetime, bodies: list[float], key: str) -> None:
    """Store plans of these times under a key, one after the other."""
    with database.write() as session:
        samples.register(session, now, key)
        for seconds in bodies:
            body = f'{{"key":"{key[0]}","s":{seconds}}}'.encode()
            made = samples.revision(body, "measured", seconds, source=f"k{seconds}")
            plans.publish(session, key, made, now=now)


def test_older_plans_go_and_the_served_one_stays(
    database: Database, now: datetime
) -> None:
    """What the pointer names is there, with its kernels; what it replaced is gone."""
    store(database, now, [3.0, 2.0, 1.0], samples.KEY)
    later = now + timedelta(days=1)
    assert collect(database, all_but(now), keep=False).revisions == 0
    kept = collect(database, all_but(later, keep=1), keep=False)
    assert (kept.revisions, kept.blobs) == (1, 2)  # a body and its kernel
    gone = collect(database, all_but(later), keep=False)
    assert (gone.revisions, gone.blobs) == (1, 2)
    assert gone.blob_bytes > 0
    with database.read() as session:
        found = plans.find(session, samples.KEY)
        assert found is not None
        assert found.pointer.seconds == 1.0
        children = blobs.children(session, [found.pointer.digest])
        assert digests(database) == {found.pointer.digest, *children}
        assert list(retention.faults(session)) == []


def test_numbers_of_plans_never_come_twice(database: Database, now: datetime) -> None:
    """A slower plan that was stored last keeps its number, served or not."""
    store(database, now, [1.0, 2.0, 3.0], samples.KEY)
    collect(database, all_but(now + timedelta(days=1)), keep=False)
    store(database, now, [0.5], samples.KEY)
    with database.read() as session:
        numbers = [one.revision for one in plans.history(session, samples.KEY)]
    assert numbers == [1, 3, 4]


def test_ended_jobs_go_with_what_was_handed_in(
    database: Database, now: datetime
) -> None:
    """A job that runs keeps its model; one that ended long ago does not."""
    later = now + timedelta(days=2)
    with database.write() as session:
        samples.register(session, now)
        jobs.create(session, samples.request(), now=now)
        audit.record(session, AuditDraft(actor="a", action="b", subject="c"), now=now)
    first = collect(database, all_but(later), keep=False)
    assert (first.jobs, first.blobs, first.audit_events) == (0, 0, 1)
    with database.write() as session:
        jobs.start(session, "job-1", now=now)
        jobs.finish(session, "job-1", "succeeded", now=now)
    told = collect(database, all_but(later), keep=True)
    assert digests(database) == {samples.MODEL.digest}
    assert collect(database, all_but(later), keep=False) == told
    assert (told.jobs, told.blobs) == (1, 1)
    assert digests(database) == set()


class Crowd:
    """Threads that store plans, and one that collects, until all have stored.

    Args:
        database: waits long enough for a lock.
        now: when the plans are stored; to the collection they are a day old.
        seed: of what they choose.
    """

    def __init__(self, database: Database, now: datetime, seed: int) -> None:
        self._database = database
        self._now = now
        self._seed = seed
        self._stop = threading.Event()
        self.keys = [letter * 64 for letter in "abc"]

    def run(self) -> None:
        """Store and collect; an error of any thread is raised."""
        with ThreadPoolExecutor(4) as pool:
            cleaning = pool.submit(self._clean)
            writing = [pool.submit(self._write, number) for number in range(3)]
            try:
                for one in writing:
                    one.result()
            finally:
                self._stop.set()
            cleaning.result()

    def _write(self, number: int) -> None:
        luck = random.Random(100 * self._seed + number)
        for turn in range(TURNS):
            body = f"{{{number}: {turn}}}".encode()
            seconds = round(luck.uniform(0.1, 9.0), 1)
            source = f"shared {luck.randrange(3)}"
            made = samples.revision(body, luck.choice(EVIDENCE), seconds, source)
            with self._database.write() as session:
                plans.publish(session, luck.choice(self.keys), made, now=self._now)

    def _clean(self) -> None:
        later = self._now + timedelta(days=1)
        while not self._stop.is_set():
            collect(self._database, all_but(later), keep=False)


@pytest.mark.parametrize("seed", range(2))
def test_a_collection_beside_writers_breaks_nothing(
    database: Database, url: str, now: datetime, seed: int
) -> None:
    """Plans that share kernels are stored and replaced while others collect."""
    patient = connect(url, busy_timeout_seconds=60)
    crowd = Crowd(patient, now, seed)
    for key in crowd.keys:
        store(patient, now, [], key)
    crowd.run()
    with patient.read() as session:
        faults = list(retention.faults(session))
    patient.close()
    assert faults == []


@pytest.fixture
def kept(file_url: str, now: datetime, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a plan, as the commands find it; its address."""
    from service.store import upgrade  # noqa: PLC0415 - only here

    upgrade(file_url)
    opened = connect(file_url)
    store(opened, now, [2.0, 1.0], samples.KEY)
    opened.close()
    monkeypatch.setenv("FUSEPLAN_DATABASE_URL", file_url)
    return file_url


def test_a_copy_can_be_gone_back_to(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken while the database is written to, is whole, and is never replaced."""
    path = tmp_path / "copy.db"
    opened = connect(kept)
    with opened.write() as session:
        session.execute(select(BlobRow.digest))
        assert main(["db", "backup", str(path)]) == 0
    opened.close()
    assert main(["db", "backup", str(path)]) == 2
    monkeypatch.setenv("FUSEPLAN_DATABASE_URL", f"sqlite:///{path}")
    assert main(["db", "verify"]) == 0
    restored = connect(f"sqlite:///{path}")
    with restored.read() as session:
        found = plans.find(session, samples.KEY)
    restored.close()
    assert found is not None
    assert found.pointer.seconds == 1.0
    assert [one.name for one in tmp_path.iterdir() if one.suffix == ".part"] == []


def test_damage_is_found(
    kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes that changed on the disk are told, with the plan that they belong to."""
    assert main(["db", "verify"]) == 0
    with closing(sqlite3.connect(kept.removeprefix("sqlite:///"))) as raw:
        raw.execute("UPDATE blobs SET content = x'00' WHERE media_type = 'text/plain'")
        raw.commit()
    assert main(["db", "verify"]) == 7
    told = capsys.readouterr().err
    assert "has other bytes" in told
    assert samples.KEY in told


def test_the_command_says_what_went(
    kept: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`db gc` keeps what the settings keep; a dry run keeps all."""
    assert main(["db", "gc"]) == 0
    assert "gone: 0 older plans" in capsys.readouterr().out
    monkeypatch.setenv("FUSEPLAN_RETAIN_DAYS", "0")
    monkeypatch.setenv("FUSEPLAN_RETAIN_REVISIONS", "0")
    for words in (["db", "gc", "--dry-run"], ["db", "gc"]):
        assert main(words) == 0
        assert "1 older plans" in capsys.readouterr().out
    assert main(["db", "gc"]) == 0
    assert "gone: 0 older plans" in capsys.readouterr().out
