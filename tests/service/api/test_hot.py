"""Tests of lookups that are answered without the database."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from service.api.hot import (
    FRESH_SECONDS,
    IN_USE_SECONDS,
    RENEW_SECONDS,
    Content,
    HotAnswers,
    Source,
)
from service.api.renewal import keep_fresh, renew_answers
from service.store import StoreUnavailable, plans
from service.store.plans import PlanPointerRow
from service.store.watching import watch
from tests.service.api.conftest import Start
from tests.service.api.test_comparing import as_of_another_toolchain, submit


def told(client: TestClient, method: str, path: str, **headers: str) -> object:
    """Everything that a client sees of an answer."""
    answer = client.request(method, path, headers=headers)
    seen = {n: v for n, v in answer.headers.items() if n != "x-request-id"}
    return answer.status_code, seen, answer.content


def test_a_repeated_lookup_has_the_same_answer(start: Start) -> None:
    """Status, headers and bytes, for GET, HEAD and 304; and it is counted as a hit."""
    client = start()
    clock = 0.0
    hot = client.app.state.context.hot  # type: ignore[attr-defined]
    hot._clock = lambda: clock
    answer = submit(client)
    key, tag = answer["plan_key"], f'"{answer["digest"]}"'
    asked = [("GET", {}), ("HEAD", {}), ("GET", {"If-None-Match": tag})]
    for method, headers in asked:
        clock += FRESH_SECONDS  # nothing is remembered any more
        cold = told(client, method, f"/v1/plans/{key}", **headers)
        assert told(client, method, f"/v1/plans/{key}", **headers) == cold
    lines = client.get("/metrics").text.splitlines()
    assert 'fuseplan_lookups_total{result="hit"} 6.0' in lines
    routes = [line for line in lines if 'route="/v1/plans/{key}"' in line]
    assert any('status="304"' in line and line.endswith(" 2.0") for line in routes)


def test_a_repeated_blob_has_the_same_answer(start: Start) -> None:
    """A kernel source keeps its type and its cache headers."""
    client = start()
    plan = submit(client)["plan"]
    for digest in plan["kernels"][0]["sources"].values():
        for method in ("GET", "HEAD"):
            client.app.state.context.hot._ready.clear()  # type: ignore[attr-defined]
            cold = told(client, method, f"/v1/blobs/sha256/{digest}")
            assert told(client, method, f"/v1/blobs/sha256/{digest}") == cold


def test_an_answer_is_believed_for_a_second(start: Start, tmp_path: object) -> None:
    """What another process stored meanwhile is seen after that time."""
    client = start()
    clock = 0.0
    hot = client.app.state.context.hot  # type: ignore[attr-defined]
    hot._clock = lambda: clock
    key = submit(client)["plan_key"]
    client.get(f"/v1/plans/{key}")
    other = as_of_another_toolchain(tmp_path, key)  # type: ignore[arg-type]
    import sqlite3  # noqa: PLC0415 - only here

    database = sqlite3.connect(tmp_path / "fuseplan" / "fuseplan.db")  # type: ignore[operator]
    database.execute(
        "INSERT INTO plan_pointers (key, evidence, revision_id)"
        " SELECT ?, 'measured', id FROM plan_revisions WHERE key = ?",
        [key, other],
    )
    database.commit()
    database.close()

    def evidence() -> str:
        return client.get(f"/v1/plans/{key}").headers["Fuseplan-Evidence"]

    assert evidence() == "analytic"
    clock += FRESH_SECONDS
    assert evidence() == "measured"


def test_a_token_is_asked_for_first(start: Start) -> None:
    """A remembered answer is not for everybody."""
    client = start(admin_token="secret")
    mine = {"Authorization": "Bearer secret"}
    client.headers.update(mine)
    key = submit(client)["plan_key"]
    assert client.get(f"/v1/plans/{key}").status_code == 200
    del client.headers["Authorization"]
    assert client.get(f"/v1/plans/{key}").status_code == 401


def plan(content: bytes) -> Content:
    """An answer to a lookup."""
    digest = hashlib.sha256(content).hexdigest()
    return Content(content=content, digest=digest, media_type="x", headers={})


def kept(hot: HotAnswers, told: Content, read_at: float) -> None:
    """Keep an answer to the lookup of a key."""
    source = Source(key="k", wanted=("measured", "analytic"), evidence="analytic")
    hot.put_plan("/", b"", told, source=source, read_at=read_at)


def test_an_answer_in_use_is_due_long_before_it_is_too_old() -> None:
    """It is given meanwhile, and once it is checked it is not due for a while."""
    clock = 0.0
    hot = HotAnswers(lambda: clock)
    kept(hot, plan(b"old"), read_at=0.0)
    assert hot.get("/", b"") is not None
    assert hot.due() == []
    clock = RENEW_SECONDS
    ready = hot.get("/", b"")
    ((place, due, _),) = hot.due()
    assert ready is due
    hot.confirm(place, due, read_at=clock)
    assert hot.due() == []
    clock += 0.99 * FRESH_SECONDS
    again = hot.get("/", b"")
    assert again is not None
    assert again.told is due.told
    clock += 0.01 * FRESH_SECONDS
    assert hot.get("/", b"") is None


def test_a_pause_of_seconds_makes_nothing_old() -> None:
    """Answers are checked for a while after their last use, and then no more."""
    clock = 0.0
    hot = HotAnswers(lambda: clock)
    kept(hot, plan(b"old"), read_at=0.0)
    while clock < IN_USE_SECONDS - RENEW_SECONDS:
        clock += RENEW_SECONDS
        ((place, due, _),) = hot.due()
        hot.confirm(place, due, read_at=clock)
    assert hot.get("/", b"") is not None
    clock = IN_USE_SECONDS + 2 * RENEW_SECONDS
    assert hot.due() == []
    hot.get("/", b"")
    assert len(hot.due()) == 1


def test_only_the_answers_used_last_are_checked_in_the_background() -> None:
    """However many are remembered, the checks of them stay a small part of the work."""
    clock = 0.0
    hot = HotAnswers(lambda: clock)
    source = Source(key="k", wanted=("measured",), evidence="measured")
    for number in range(3000):
        told = plan(b"%d" % number)
        hot.put_plan(f"/{number}", b"", told, source=source, read_at=0.0)
    clock = RENEW_SECONDS
    hot.get("/0", b"")
    places = [place for (place, _), _, _ in hot.due()]
    assert places == [*(f"/{n}" for n in range(1001, 3000)), "/0"]


def test_an_answer_too_old_is_given_again_when_it_is_still_right(start: Start) -> None:
    """One question from the event loop tells; no thread, no pool of connections."""
    client = start()
    clock = 0.0
    context = client.app.state.context  # type: ignore[attr-defined]
    context.hot._clock = lambda: clock
    key = submit(client)["plan_key"]
    cold = told(client, "GET", f"/v1/plans/{key}")
    asked: list[str] = []
    event.listen(
        context.database.reader,
        "before_cursor_execute",
        lambda *given: asked.append(given[2]),
    )
    clock = 1000 * FRESH_SECONDS
    assert told(client, "GET", f"/v1/plans/{key}") == cold
    assert not [query for query in asked if "plan_pointers" in query]
    clock += FRESH_SECONDS
    with context.database.write() as session:
        plans.evict(session, key)
    assert client.get(f"/v1/plans/{key}").json()["reason"] == "evicted"


def test_an_answer_is_as_old_as_the_question_to_the_database() -> None:
    """However long the database took, and whoever was faster meanwhile."""
    clock = 5.0
    hot = HotAnswers(lambda: clock)
    kept(hot, plan(b"slow"), read_at=5.0 - FRESH_SECONDS)
    assert hot.get("/", b"") is None
    kept(hot, plan(b"old"), read_at=5.0 - RENEW_SECONDS)
    hot.get("/", b"")
    ((place, old, _),) = hot.due()
    kept(hot, plan(b"new"), read_at=5.0)
    hot.confirm(place, old, read_at=4.0)
    found = hot.get("/", b"")
    assert found is not None
    assert found.told.content == b"new"


async def renewed(hot: HotAnswers, url: str) -> None:
    """Check what was used, once."""
    watcher = watch(url)
    try:
        await renew_answers(hot, watcher)
    finally:
        await watcher.close()


@pytest.mark.parametrize("change", ["same", "better", "gone"])
def test_a_check_keeps_what_is_still_true(
    start: Start, tmp_path: Path, change: str
) -> None:
    """A plan of better evidence, or none at all: then the database is asked anew."""
    clock = 0.0
    client = start()
    context = client.app.state.context  # type: ignore[attr-defined]
    context.hot._clock = lambda: clock
    key = submit(client)["plan_key"]
    client.get(f"/v1/plans/{key}")
    with context.database.write() as session:
        if change == "gone":
            plans.evict(session, key)
        if change == "better":
            found = plans.history(session, key)[-1]
            row = {"key": key, "evidence": "measured", "revision_id": found.revision}
            session.add(PlanPointerRow(**row))
    clock = 0.9 * FRESH_SECONDS
    assert client.get(f"/v1/plans/{key}").headers["Fuseplan-Evidence"] == "analytic"
    asyncio.run(renewed(context.hot, context.settings.url))
    kept_on = context.hot.get(f"/v1/plans/{key}", b"")
    assert (kept_on is not None) == (change == "same")
    clock = 1.5 * FRESH_SECONDS
    assert (context.hot.get(f"/v1/plans/{key}", b"") is None) == (change != "same")


def test_a_task_that_fails_is_tried_again() -> None:
    """Whatever happens in it, the others go on, until it is all cancelled."""
    tried: list[int] = []

    async def fail() -> None:
        tried.append(len(tried))
        raise StoreUnavailable("x", "locked", "y") if len(tried) % 2 else KeyError("z")

    async def run() -> None:
        often = asyncio.Event()

        async def count() -> None:
            if len(tried) > 3:
                often.set()

        task = asyncio.create_task(keep_fresh([fail, count], every_seconds=0.001))
        await asyncio.wait_for(often.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert tried == list(range(len(tried)))


def test_answers_make_room_for_newer_ones() -> None:
    """No more is kept than there is room for."""
    hot = HotAnswers(lambda: 0.0)
    for number in range(5):
        hot.put(f"/{number}", b"", plan(bytes(20 * 2**20)))
    kept = [number for number in range(5) if hot.get(f"/{number}", b"") is not None]
    assert kept == [2, 3, 4]
