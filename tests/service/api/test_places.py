"""Tests of what a lookup of many keys remembers for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from service.api.hot import FRESH_SECONDS
from service.api.places import MOST_KEYS, Places
from service.store.plans import Evidence, PlanPlace
from tests.service.api.models import graph_json

ANY: tuple[Evidence, ...] = ("measured", "compiled", "analytic")


class Clock:
    """A clock that stands where it is put."""

    seconds = 100.0

    def __call__(self) -> float:
        """The present moment."""
        return self.seconds


def place(key: str, evidence: Evidence = "analytic", digest: str = "d") -> PlanPlace:
    """Where a plan is."""
    return PlanPlace(
        key=key, evidence=evidence, digest=digest, objective_seconds=1.0, kernels=1
    )


def test_a_place_is_believed_for_a_second() -> None:
    """From when the database was asked, not from when it answered."""
    clock = Clock()
    places = Places(clock)
    places.keep({"a": place("a")}, read_at=clock.seconds - FRESH_SECONDS / 2)
    assert places.known(["a", "b"], ANY) == {"a": place("a")}
    clock.seconds += 0.51 * FRESH_SECONDS
    assert places.known(["a"], ANY) == {}
    places.keep({"a": place("a", digest="e")}, read_at=clock.seconds)
    assert places.known(["a"], ANY)["a"].digest == "e"
    places.forget("a")
    assert places.known(["a"], ANY) == {}


def test_a_plan_of_less_evidence_is_no_answer() -> None:
    """A better one may be stored by now, and why there is none is not known."""
    places = Places(Clock())
    places.keep({"a": place("a"), "b": place("b", "measured")}, read_at=100.0)
    assert set(places.known(["a", "b"], ("measured",))) == {"b"}
    assert set(places.known(["a", "b"], ANY)) == {"a", "b"}


def test_those_told_first_make_room() -> None:
    """However many keys are asked for, so many are remembered."""
    places = Places(Clock())
    keys = [f"{number:064x}" for number in range(MOST_KEYS + 10)]
    places.keep({"first": place("first")}, read_at=100.0)
    places.keep({key: place(key) for key in keys}, read_at=100.0)
    assert set(places.known(["first", *keys], ANY)) == set(keys[10:])


def test_a_slow_reader_does_not_put_old_news_back() -> None:
    """Who asked first and answers last: what was read later stays."""
    places = Places(Clock())
    places.keep({"a": place("a", digest="second")}, read_at=99.9)
    places.keep({"a": place("a", digest="first")}, read_at=99.5)
    assert places.known(["a"], ANY)["a"].digest == "second"


@pytest.mark.parametrize("others", [0, MOST_KEYS])
def test_what_was_read_before_an_eviction_is_not_kept_after_it(others: int) -> None:
    """Also when so many other keys were told since; what is read later is kept."""
    clock = Clock()
    places = Places(clock)
    places.forget("a")
    keys = [f"{number:064x}" for number in range(others)]
    clock.seconds += 0.2
    places.keep({key: place(key) for key in keys}, read_at=100.1)
    places.keep({"a": place("a")}, read_at=99.9)
    assert places.known(["a"], ANY) == {}
    places.keep({"a": place("a")}, read_at=100.1)
    assert set(places.known(["a"], ANY)) == {"a"}


@contextmanager
def heard(client: TestClient) -> Iterator[list[str]]:
    """Statements that the database is asked meanwhile, those of plans alone."""
    engine = client.app.state.context.database.reader  # type: ignore[attr-defined]
    asked: list[str] = []

    def hear(_c: object, _cursor: object, statement: str, *_rest: object) -> None:
        if "plan" in statement:
            asked.append(statement)

    event.listen(engine, "before_cursor_execute", hear)
    yield asked
    event.remove(engine, "before_cursor_execute", hear)


def test_what_was_told_a_moment_ago_is_not_asked_again(client: TestClient) -> None:
    """The answer is the same; an eviction here, or a second, and it is asked again."""
    clock = Clock()
    app: Any = client.app
    app.state.context = replace(app.state.context, places=Places(clock))
    answers = [
        client.post("/v1/plans", json={"graph": graph_json(width=n), "target": "cpu"})
        for n in (64, 96)
    ]
    keys = [answer.json()["plan_key"] for answer in answers]

    def look(*asked: str) -> dict[str, Any]:
        told = client.post("/v1/plans:lookup", json={"keys": [*keys, *asked]})
        return dict(told.json())

    with heard(client) as statements:
        first = look()
        assert statements
        statements.clear()
        assert look() == first
        assert statements == []
        assert look("0" * 64)["missing"] == [{"key": "0" * 64, "reason": "unknown"}]
        assert statements
        clock.seconds += FRESH_SECONDS
        statements.clear()
        assert look() == first
        assert statements
    client.delete(f"/v1/plans/{keys[1]}")
    found = look()
    assert [one["key"] for one in found["found"]] == keys[:1]
    assert found["missing"] == [{"key": keys[1], "reason": "evicted"}]
