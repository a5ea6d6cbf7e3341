"""Tests of plans and blobs."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select

from service.store import Database, blobs, plans
from service.store.blobs import Blob, BlobRow
from service.store.errors import BrokenReference, StoreUnavailable
from service.store.watching import watch
from tests.service.store.samples import KEY, identity, register, revision


def test_the_best_evidence_is_found_first(database: Database, now: datetime) -> None:
    """A measured plan is served before a compiled and an analytic one."""
    with database.write() as session:
        register(session, now)
        plans.publish(session, KEY, revision(b"1"), now=now)
        plans.publish(session, KEY, revision(b"2", "measured", 9.0), now=now)
        plans.publish(session, KEY, revision(b"3", "compiled"), now=now)
    with database.read() as session:
        best = plans.find(session, KEY)
        analytic = plans.find(session, KEY, ("analytic",))
    assert best is not None
    assert analytic is not None
    assert (best.body, analytic.body) == (b"2", b"1")


def test_a_slower_plan_never_replaces_a_faster_one(
    database: Database, now: datetime
) -> None:
    """It is kept in the history, and the pointer stays."""
    with database.write() as session:
        register(session, now)
        for number, seconds in enumerate((3.0, 2.0, 2.0, 5.0)):
            body = f"{number}".encode()
            plans.publish(session, KEY, revision(body, "measured", seconds), now=now)
        best = plans.find(session, KEY)
        history = plans.history(session, KEY)
    assert best is not None
    assert best.body == b"1"
    assert [one.revision for one in history] == [1, 2, 3, 4]


def test_a_disturbed_measurement_replaces_nothing(
    database: Database, now: datetime
) -> None:
    """A plan whose timing others disturbed is served only where there is no other."""
    fast = replace(revision(b"fast", "measured", 1.0), contended=True)
    with database.write() as session:
        register(session, now)
        plans.publish(session, KEY, revision(b"slow", "measured", 2.0), now=now)
        plans.publish(session, KEY, fast, now=now)
        best = plans.find(session, KEY)
    assert best is not None
    assert best.body == b"slow"


def test_equal_plans_are_stored_once(database: Database, now: datetime) -> None:
    """Publishing the same bytes again changes nothing."""
    with database.write() as session:
        register(session, now)
        first = plans.publish(session, KEY, revision(), now=now)
        again = plans.publish(session, KEY, revision(), now=now)
        stored = session.scalar(select(func.count()).select_from(BlobRow))
    assert first == again
    assert stored == 3  # the model, the plan, one source


def test_a_plan_comes_with_everything_that_it_names(
    database: Database, now: datetime
) -> None:
    """The kernel sources of a served plan are stored."""
    made = revision()
    with database.write() as session:
        register(session, now)
        plans.publish(session, KEY, made, now=now)
    with database.read() as session:
        assert blobs.find(session, made.blobs[0].digest) == made.blobs[0]


def test_a_link_to_a_missing_blob_is_refused(database: Database, now: datetime) -> None:
    """A blob cannot name another one that is not stored."""
    parent = Blob.of(b"parent", "text/plain")
    with database.write() as session:
        blobs.put(session, (parent,), now=now)
        with pytest.raises(BrokenReference, match="not stored"):
            blobs.link(session, parent.digest, ["0" * 64])


def test_an_unknown_key_has_no_plan(database: Database) -> None:
    """Nothing is found, and nobody knows what the key stands for."""
    with database.read() as session:
        assert plans.find(session, KEY) is None
        assert plans.identity(session, KEY) is None


def test_counts_and_lists(database: Database, now: datetime) -> None:
    """Plans are counted by evidence and listed with their best pointer."""
    with database.write() as session:
        register(session, now)
        plans.publish(session, KEY, revision(b"1"), now=now)
        plans.publish(session, KEY, revision(b"2", "measured"), now=now)
        newest = plans.newest(session)
        assert plans.count(session) == {"analytic": 1, "measured": 1}
        best = plans.pointers(session, [KEY, "c" * 64])
        assert {key: one.evidence for key, one in best.items()} == {KEY: "measured"}
        assert plans.pointers(session, [KEY], ("compiled",)) == {}
        assert plans.keys_of(session) == (KEY,)
        assert plans.keys_of(session, target="sm_90") == ()
    assert [one.identity for one in newest] == [identity()]
    assert newest[0].pointer.evidence == "measured"


def test_two_writers_of_one_key_take_turns(database: Database, now: datetime) -> None:
    """Many threads that publish under one key all get through; the best plan wins."""

    def publish(number: int) -> None:
        with database.write() as session:
            register(session, now)
            plan = revision(f"{number}".encode(), seconds=float(number))
            plans.publish(session, KEY, plan, now=now)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish, range(8, 0, -1)))
    with database.read() as session:
        best = plans.pointer(session, KEY)
        numbers = [one.revision for one in plans.history(session, KEY)]
    assert best is not None
    assert best.seconds == 1.0
    assert numbers == list(range(1, 9))


def test_alike_keys_share_graph_and_target(database: Database, now: datetime) -> None:
    """Another toolchain or other options of the same graph and target are alike."""
    other = "d" * 64
    with database.write() as session:
        register(session, now)
        register(session, now, other)
        alike = plans.alike(session, identity(KEY))
    assert [one.key for one in alike] == [other]


def test_a_watcher_sees_what_was_stored_a_moment_ago(
    database: Database, url: str, now: datetime
) -> None:
    """By evidence, for the keys that have a plan; and after it let go, once more."""

    async def look() -> list[object]:
        watcher = watch(url)
        found: list[object] = []
        for _ in range(2):
            found.append(await watcher.digests([KEY, "0" * 64]))
            await watcher.close()
        return found

    assert asyncio.run(look()) == [{}, {}]
    with database.write() as session:
        register(session, now)
        made = plans.publish(session, KEY, revision(), now=now)
    expected = {KEY: {made.evidence: made.digest}}
    assert asyncio.run(look()) == [expected, expected]


def test_a_watcher_says_that_its_database_is_gone(tmp_path: Path) -> None:
    """As an error of the store, whichever database it is."""
    for url in (
        f"sqlite:///{tmp_path / 'no' / 'file.db'}",
        "postgresql+psycopg://nobody:secret@127.0.0.1:1/none",
    ):
        with pytest.raises(StoreUnavailable) as caught:
            asyncio.run(watch(url).digests(["0" * 64]))
        assert caught.value.reason == "unreachable"
        assert "secret" not in str(caught.value)


def test_a_watcher_makes_no_file(tmp_path: Path) -> None:
    """A database that is gone must not come back empty."""
    with pytest.raises(StoreUnavailable, match=r"gone\.db"):
        asyncio.run(watch(f"sqlite:///{tmp_path / 'gone.db'}").digests(["0" * 64]))
    assert list(tmp_path.iterdir()) == []
