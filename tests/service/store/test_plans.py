"""Tests of plans and blobs."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.orm import Session

from benchmarks.service.filling import FIRST, fill, key_of
from service.store import Database, blobs, connect, plans, retention, upgrade
from service.store.blobs import Blob, BlobRow
from service.store.errors import BrokenReference, StoreUnavailable
from service.store.plans import PlanPlace
from service.store.watching import Digests, watch
from tests.service.conftest import NewDatabase
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
        for look in (plans.pointers, plans.places):
            best = look(session, [KEY, "c" * 64])
            assert {key: one.evidence for key, one in best.items()} == {KEY: "measured"}
            assert look(session, [KEY], ("compiled",)) == {}
            assert look(session, []) == {}
        assert plans.keys_of(session) == (KEY,)
        assert plans.keys_of(session, target="sm_90") == ()
    assert [one.identity for one in newest] == [identity()]
    assert newest[0].pointer.evidence == "measured"


def as_answered(session: Session, key: str = KEY) -> dict[str, PlanPlace]:
    """What a lookup of many keys says of one, for each evidence."""
    return {
        kind: found[key]
        for kind in plans.ORDER
        if (found := plans.places(session, [key], (kind,)))
    }


def as_stored(session: Session, key: str = KEY) -> dict[str, PlanPlace]:
    """The same, of the revisions that are pointed to."""
    found = (plans.pointer(session, key, (kind,)) for kind in plans.ORDER)
    return {
        one.evidence: PlanPlace(
            key=key,
            evidence=one.evidence,
            digest=one.digest,
            objective_seconds=one.objective_seconds,
            kernels=one.kernels,
        )
        for one in found
        if one is not None
    }


def test_many_keys_are_answered_as_each_of_them(
    database: Database, now: datetime
) -> None:
    """Whatever was published in whichever order, and once a key is evicted."""
    luck = random.Random(11)
    keys = [f"{number:064x}" for number in range(4)]
    with database.write() as session:
        for key in keys:
            register(session, now, key)
        for number in range(40):
            made = replace(
                revision(f"{number}".encode(), luck.choice(plans.ORDER), luck.random()),
                kernels=luck.randint(1, 9),
                contended=luck.random() < 0.2,
            )
            key = luck.choice(keys)
            plans.publish(session, key, made, now=now)
            assert as_answered(session, key) == as_stored(session, key) != {}
        plans.evict(session, keys[0])
        assert as_answered(session, keys[0]) == {}
        assert set(plans.places(session, keys)) == set(keys[1:])


def test_a_program_of_before_may_move_a_pointer(
    database: Database, url: str, now: datetime
) -> None:
    """It knows of no copy: what is pointed to is answered, not what was copied."""
    with database.write() as session:
        register(session, now)
        plans.publish(session, KEY, revision(b"1", "measured", 3.0), now=now)
        plans.publish(session, KEY, revision(b"2", "measured", 5.0), now=now)
        session.execute(
            text(
                "UPDATE plan_pointers SET revision_id ="
                " (SELECT max(id) FROM plan_revisions)"
            )
        )
        newest = as_stored(session)
        assert newest["measured"].objective_seconds == 5.0
        assert as_answered(session) == newest
    watched = asyncio.run(_watched(url))
    assert watched == {KEY: {"measured": newest["measured"].digest}}
    with database.write() as session:
        session.execute(
            text(
                "UPDATE plan_pointers SET copy_of = NULL, digest = NULL,"
                " objective_seconds = NULL, kernels = NULL"
            )
        )
        assert as_answered(session) == newest
    assert asyncio.run(_watched(url)) == watched


async def _watched(url: str) -> Digests:
    watcher = watch(url)
    try:
        return await watcher.digests([KEY])
    finally:
        await watcher.close()


def test_many_keys_are_answered_from_the_pointers_alone(
    database: Database, now: datetime
) -> None:
    """Revisions are not looked for; `db verify` would tell if they said otherwise."""
    with database.write() as session:
        register(session, now)
        plans.publish(session, KEY, revision(), now=now)
        before = plans.places(session, [KEY])
        assert list(retention.faults(session)) == []
        session.execute(text("UPDATE plan_revisions SET kernels = 999"))
        assert plans.places(session, [KEY]) == before
        assert list(retention.faults(session)) == [
            f"the analytic pointer of plan {KEY} is no copy of its revision"
        ]


MOST_PAGES = 3
"""Of one key among many: one of the hash, one of the table, and now and then one more.
A tree and a second table took nine."""


def test_a_key_among_many_takes_few_pages(postgres: NewDatabase) -> None:
    """As the server itself counts them, for keys that lie anywhere."""
    upgrade(url := postgres())
    fill(url, 10_000)
    database = connect(url)
    keys = [key_of(FIRST + 100 * number) for number in range(100)]
    heard: list[tuple[str, Any]] = []

    def hear(
        _connection: object, _cursor: object, statement: str, given: object, *_: object
    ) -> None:
        heard.append((statement, given))

    with database.read() as session:
        event.listen(database.reader, "before_cursor_execute", hear)
        assert set(plans.places(session, keys)) == set(keys)
        event.remove(database.reader, "before_cursor_execute", hear)
        ((statement, given),) = heard
        connection = session.connection()
        # So few plans are read one after the other as fast as by their keys.
        connection.exec_driver_sql("SET enable_seqscan = off")
        told = connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", given
        ).scalar_one()
    database.close()
    top = told[0]["Plan"]
    pages = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    assert len(keys) < pages <= MOST_PAGES * len(keys), told


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
