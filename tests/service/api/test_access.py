"""Tests of tokens, scopes, rates and the audit, over HTTP."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from service.api.access import (
    FRESH_SECONDS,
    IN_USE_SECONDS,
    OPEN,
    RENEW_SECONDS,
    Gate,
    Rates,
    needed_scope,
)
from service.app import ROUTERS
from service.store import connect, tokens
from service.store.tokens import Scope, Token
from tests.service.api.conftest import Start
from tests.service.api.models import graph_json

ADMIN = {"Authorization": "Bearer first-start"}


def make_token(folder: Path, name: str, *scopes: Scope) -> dict[str, str]:
    """Store a token in the database of a service; the header that shows it."""
    database = connect(f"sqlite:///{folder / 'fuseplan' / 'fuseplan.db'}")
    token = Token(
        id=name,
        name=name,
        hash=tokens.hash_of(f"secret of {name}"),
        scopes=scopes,
        created_at=datetime.now(UTC),
    )
    with database.write() as session:
        tokens.add(session, token)
    database.close()
    return {"Authorization": f"Bearer secret of {name}"}


def test_every_route_has_a_scope_or_is_open_on_purpose() -> None:
    """Nothing that comes from a model can be seen without a token."""
    routes = [
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    ]
    open_ = {path for method, path in routes if needed_scope(method, path) is None}
    assert len(routes) > 20
    assert open_ <= {*OPEN, "/static/{stamp}/{name:path}"}


def test_without_tokens_nobody_is_asked(client: TestClient) -> None:
    """On a machine of one's own nothing stands in the way."""
    assert client.get("/v1/jobs").status_code == 200


def test_the_first_token_closes_the_door(start: Start, tmp_path: Path) -> None:
    """Within the time that is stated, everybody needs one."""
    clock = 0.0
    client = start()
    gate = client.app.state.context.gate  # type: ignore[attr-defined]
    gate._clock = lambda: clock
    assert client.get("/v1/jobs").status_code == 200
    mine = make_token(tmp_path, "reader", "plans:read")
    clock += FRESH_SECONDS
    refused = client.get("/v1/jobs")
    assert (refused.status_code, refused.json()["code"]) == (401, "token-required")
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="fuseplan"'
    assert client.get("/v1/jobs", headers=mine).status_code == 200
    assert client.get("/livez").status_code == 200


def test_a_revoked_token_ends_within_the_stated_time(
    start: Start, tmp_path: Path
) -> None:
    """A stale answer lives for a second and no longer."""
    clock = 0.0
    client = start(tokens="required")
    gate = client.app.state.context.gate  # type: ignore[attr-defined]
    gate._clock = lambda: clock
    mine = make_token(tmp_path, "reader", "plans:read")
    assert client.get("/v1/jobs", headers=mine).status_code == 200
    database = connect(f"sqlite:///{tmp_path / 'fuseplan' / 'fuseplan.db'}")
    with database.write() as session:
        tokens.revoke(session, "reader", now=datetime.now(UTC))
    database.close()
    clock += FRESH_SECONDS
    assert client.get("/v1/jobs", headers=mine).status_code == 401


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("plans:read", {"read", "lookup"}),
        ("jobs:submit", {"submit"}),
        ("plans:write", {"import"}),
        ("admin", {"read", "lookup", "submit", "import", "audit"}),
    ],
)
def test_a_scope_allows_what_it_says(
    start: Start, tmp_path: Path, scope: Scope, allowed: set[str]
) -> None:
    """Everything else is 403 with the scope that is missing."""
    client = start(tokens="required")
    mine = make_token(tmp_path, "one", scope)
    graph = {"graph": graph_json(), "target": "cpu"}
    answers = {
        "read": client.get("/v1/jobs", headers=mine),
        "lookup": client.post("/v1/plans:lookup", json={"keys": []}, headers=mine),
        "submit": client.post("/v1/plans", json=graph, headers=mine),
        "import": client.post("/v1/bundles", content=b"x", headers=mine),
        "audit": client.get("/v1/audit", headers=mine),
    }
    refused = {name for name, answer in answers.items() if answer.status_code == 403}
    assert refused == set(answers) - allowed
    for name in refused:
        assert answers[name].json()["code"] == "scope-missing"


def test_the_first_start_has_a_token_of_its_own(start: Start) -> None:
    """A token of the settings may do everything."""
    client = start(admin_token="first-start")
    assert client.get("/v1/audit").status_code == 401
    assert client.get("/v1/audit", headers=ADMIN).status_code == 200


def test_a_browser_sends_the_token_as_its_password(start: Start) -> None:
    """Pages ask for it; a change that another site triggers does not count."""
    client = start(admin_token="first-start")
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.headers["WWW-Authenticate"] == 'Basic realm="fuseplan"'
    basic = base64.b64encode(b"me:first-start").decode()
    mine = {"Authorization": f"Basic {basic}"}
    assert client.get("/", headers=mine).status_code == 200
    ours = {**mine, "Sec-Fetch-Site": "same-origin"}
    theirs = {**mine, "Sec-Fetch-Site": "cross-site"}
    assert client.delete("/v1/jobs/nobody", headers=ours).status_code == 404
    assert client.delete("/v1/jobs/nobody", headers=theirs).status_code == 401
    for broken in ("Basic %%%", "Basic /w==", "Digest x", "Bearer"):
        answer = client.get("/v1/jobs", headers={"Authorization": broken})
        assert answer.status_code == 401


def test_too_many_requests_are_told_to_wait(start: Start) -> None:
    """429 with Retry-After, and the health checks go on."""
    client = start(rate_per_second=0.01, rate_burst=3)
    codes = [client.get("/v1/jobs").status_code for _ in range(5)]
    last = client.get("/v1/jobs")
    assert codes == [200, 200, 200, 429, 429]
    assert last.json()["code"] == "rate-limited"
    assert int(last.headers["Retry-After"]) >= 1
    assert client.get("/livez").status_code == 200


def test_a_bucket_fills_again() -> None:
    """Each asker has his own, and it never holds more than a burst."""
    clock = 0.0
    rates = Rates(per_second=2, burst=2, clock=lambda: clock)
    assert [rates.wait_seconds("a") for _ in range(3)] == [0, 0, 0.5]
    assert rates.wait_seconds("b") == 0
    clock = 100.0
    assert [rates.wait_seconds("a") for _ in range(3)] == [0, 0, 0.5]


def test_changes_are_audited(start: Start, tmp_path: Path) -> None:
    """Who submitted and who cancelled, with the request's id, page by page."""
    client = start(worker=True, device="null:0", tokens="required")
    mine = make_token(tmp_path, "builder", "admin")
    body = {"graph": graph_json(), "target": "cpu", "mode": "tuned"}
    answer = client.post(
        "/v1/plans", json=body, headers={**mine, "X-Request-Id": "build-17"}
    )
    assert answer.status_code == 202, answer.text
    told = client.get("/v1/audit", params={"limit": 1}, headers=mine).json()
    [event] = told["events"]
    assert event["actor"] == "builder"
    assert event["action"] == "job.submit"
    assert event["subject"] == answer.json()["job"]
    assert event["request_id"] == "build-17"


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_pause_of_seconds_makes_no_token_old(
    start: Start, tmp_path: Path, mode: str
) -> None:
    """What is known is asked for again for a while after its last use, then no more."""
    clock = 0.0
    context = start(tokens=mode).app.state.context  # type: ignore[attr-defined]
    mine = make_token(tmp_path, "reader", "plans:read") if mode == "required" else {}
    gate = Gate(
        context.database,
        mode=mode,
        admin_token="",
        clock=lambda: clock,  # type: ignore[arg-type]
    )
    hash_ = tokens.hash_of("secret of reader")
    if mine:
        asyncio.run(gate.find(hash_))
    else:
        gate.look()

    def is_known() -> bool:
        return gate.is_fresh() and (not mine or gate.remembered(hash_) is not None)

    assert is_known()
    while clock < IN_USE_SECONDS - RENEW_SECONDS:
        assert not gate.is_due()
        clock += RENEW_SECONDS
        assert gate.is_due()
        gate.renew()
    assert is_known()
    clock += IN_USE_SECONDS + RENEW_SECONDS
    assert not gate.is_due()
    gate.renew()
    assert not is_known()
