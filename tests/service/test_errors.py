"""Tests of errors as values: what they quote is bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from cost_model.catalog import ALIASES, DEVICES
from service.app import create_app
from service.cli.exits import BadArgument, report
from service.errors import MalformedBody, ServiceError
from service.errors.problems import MOST_TEXT, MOST_WHERE, problem_of, shortened
from service.settings import Settings
from service.store.errors import BrokenReference
from tests.service.tables import furnish
from tuner.errors import InvalidModel, TunerError, UnknownTarget

LONG = "long name " * 100_000
JSON = {"Content-Type": "application/json"}


def test_a_long_text_keeps_its_ends() -> None:
    """A short one is told whole; a longer one says what stands before and behind."""
    assert shortened("x" * 1000) == "x" * 1000
    told = shortened(f"node {LONG} has no input", 50)
    assert len(told) == 50
    assert told.startswith("node long name")
    assert told.endswith("has no input")
    for most in (9, 10):
        assert len(shortened("0123456789abc", most)) == most


@pytest.mark.parametrize(
    "error",
    [
        InvalidModel(f"node {LONG}", f"reads {LONG!r}, which nobody writes", hint=LONG),
        MalformedBody("body", f"an object has the name {LONG!r} twice"),
        BrokenReference(f"job {LONG}", f"its model {LONG} is not stored"),
    ],
)
def test_every_error_quotes_a_bounded_part(error: Exception) -> None:
    """Whoever raises it: where, what and what to do have room for so much each."""
    assert isinstance(error, TunerError | ServiceError | BrokenReference)
    told = problem_of(error)
    assert len(told.where) <= MOST_WHERE
    assert max(len(told.detail), len(told.hint)) <= MOST_TEXT
    assert told.where[:4] == error.where[:4]
    assert told.detail[-6:] == error.problem[-6:]


def test_hints_that_list_are_told_whole() -> None:
    """All targets that there are have room in one."""
    names = ", ".join([*DEVICES, *ALIASES])
    assert problem_of(UnknownTarget("moon", "no such device", hint=names)).hint == names


def test_an_answer_is_short_whatever_was_sent(tmp_path: Path) -> None:
    """Names of a megabyte in every place of a request: the answer has a few lines."""
    app = create_app(
        Settings(data_home=furnish(tmp_path), worker=False, planner_processes=0)
    )
    graph = {"schema": "fuseplan.graph/1", "nodes": [{"name": LONG, "op": LONG}]}
    sent = [
        {LONG: 1},
        {"target": LONG, "graph": {}},
        {"target": "cpu", "graph": {}, "options": {LONG: 1}},
        {"target": "cpu", "graph": {}, "options": {"shapes": {LONG: "1"}}},
        {"target": "cpu", "graph": graph},
        {"target": "cpu", "graph": {LONG: 1}},
    ]
    bodies = [json.dumps(one) for one in sent]
    bodies.append(f'{{"{LONG}": 1, "{LONG}": 2}}')
    with TestClient(app, raise_server_exceptions=False) as client:
        for path in ("/v1/plans", "/v1/plans:lookup"):
            for body in bodies:
                answer = client.post(path, content=body, headers=JSON)
                assert answer.status_code in {400, 422}, answer.text[:500]
                assert len(answer.content) < 10_000
        for place in (LONG[:20_000], f"v1/jobs/{LONG[:20_000]}"):
            answer = client.get(f"/{place}")
            assert answer.status_code == 404
            assert len(answer.content) < 10_000


def test_a_line_of_the_terminal_is_bounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A foreseen error, and one that nobody foresaw."""
    for error in (BadArgument(LONG, f"{LONG} is no number"), ValueError(LONG)):
        report(error, as_json=False, log=tmp_path / "log")
        assert len(capsys.readouterr().err) < 2 * MOST_TEXT + 500
