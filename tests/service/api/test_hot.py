"""Tests of lookups that are answered without the database."""

from __future__ import annotations

from fastapi.testclient import TestClient

from service.api.hot import FRESH_SECONDS, HotAnswers
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


def test_one_request_renews_an_answer_before_it_is_too_old() -> None:
    """The others go on with it meanwhile; when it is too old, nobody does."""
    clock = 0.0
    hot = HotAnswers(lambda: clock)

    def put(content: bytes) -> None:
        hot.put("/", b"", content=content, digest="d", media_type="x", headers={})

    def seen() -> list[bytes | None]:
        found = [hot.get("/", b"") for _ in range(3)]
        return [one and one.content for one in found]

    put(b"old")
    assert seen() == [b"old"] * 3
    clock = 0.8 * FRESH_SECONDS
    assert seen() == [None, b"old", b"old"]
    put(b"new")
    assert seen() == [b"new"] * 3
    clock += 0.8 * FRESH_SECONDS
    assert seen() == [None, b"new", b"new"]
    clock += 0.2 * FRESH_SECONDS
    assert seen() == [None] * 3


def test_answers_make_room_for_newer_ones() -> None:
    """No more is kept than there is room for."""
    hot = HotAnswers(lambda: 0.0)
    for number in range(5):
        hot.put(
            f"/{number}",
            b"",
            content=bytes(20 * 2**20),
            digest=str(number),
            media_type="x",
            headers={},
        )
    kept = [number for number in range(5) if hot.get(f"/{number}", b"") is not None]
    assert kept == [2, 3, 4]
