"""Tests of what stands behind the question mark: all of it counts, or is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from pydantic import ValidationError

from service.api import comparing, problems
from service.app import ROUTERS
from service.jobs.options import PlanOptions, RepeatedName, decoded
from tests.service.api.models import graph_json, graph_onnx

ONNX = {"Content-Type": "application/onnx"}
PLACES = {"number": "1", "a": "1", "b": "2"}


def test_every_route_refuses_what_it_does_not_read(shared: TestClient) -> None:
    """422 for a misspelt parameter, with those that the route knows."""
    paths: dict[str, Any] = shared.get("/openapi.json").json()["paths"]
    asked = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            given = operation.get("parameters", [])
            inside = {p["name"]: "0" * 64 for p in given if p["in"] == "path"}
            place = path.format(
                **{**inside, **{n: PLACES[n] for n in inside if n in PLACES}}
            )
            answer = shared.request(method, place, params={"colour": "sm_90"})
            assert answer.status_code == 422, (method, path, answer.text)
            asked += 1
            if method == "head":
                continue
            told = answer.json()
            assert (told["code"], told["where"]) == ("invalid-request", "query colour")
            known = [p["name"] for p in given if p["in"] == "query"]
            assert all(name in told["hint"] for name in known), told
            assert known or "takes none" in told["hint"]
    assert asked > 30


def test_a_value_that_would_be_dropped_is_refused(shared: TestClient) -> None:
    """Two values for one parameter; where many are taken, many may come."""
    twice = shared.post(
        "/v1/plans?target=cpu&target=sm_90", content=graph_onnx(), headers=ONNX
    )
    assert (twice.status_code, twice.json()["where"]) == (422, "query target")
    keys = [("key", "0" * 64), ("key", "1" * 64)]
    assert shared.get("/v1/bundles", params=keys).json()["code"] == "plan-not-found"


def test_a_query_comes_before_a_json_body(shared: TestClient) -> None:
    """Each may say everything but the model; what the query says is what counts."""
    graph = graph_json()
    asked = {"graph": graph, "target": "cpu", "options": {"launch_mode": "graph"}}
    apart = {"options": '{"launch_mode": "stream"}', "target": "sm_90"}
    both = shared.post("/v1/plans", json=asked, params=apart).json()
    alone = shared.post("/v1/plans", json={"graph": graph, "target": "sm_90"}).json()
    assert both["plan_key"] == alone["plan_key"]
    told = shared.post("/v1/plans", json={"graph": graph}, params=apart).json()
    assert told["plan_key"] == alone["plan_key"]
    other = shared.post("/v1/plans", json=asked, params={"title": "other"}).json()
    assert other["plan_key"] != alone["plan_key"]


@pytest.mark.parametrize(
    ("query", "body", "where"),
    [
        ({"options": "[]"}, {}, "query options"),
        ({"target": "sm_12"}, {}, "sm_12"),
        ({"priority": "0"}, {}, "query.priority"),
        ({"target": "cpu"}, {"target": "AAA"}, "AAA"),
        ({"priority": "1"}, {"priority": 0}, "priority"),
        ({"options": "{}"}, {"options": {"colour": 1}}, "options.colour"),
    ],
)
def test_query_and_body_are_held_to_the_same_rules(
    shared: TestClient, query: dict[str, str], body: dict[str, Any], where: str
) -> None:
    """A value that another one takes the place of must be right all the same."""
    asked = {"graph": graph_json(), "target": "cpu", **body}
    answer = shared.post("/v1/plans", json=asked, params=query)
    assert answer.status_code == 422, answer.text
    assert answer.json()["where"] == where


@pytest.mark.parametrize(
    "said",
    [
        {"priority": "5"},
        {"priority": True},
        {"budget_seconds": "3"},
        {"options": {"memory_cap_bytes": "512"}},
        {"options": {"memory_cap_bytes": True}},
        {"options": {"shapes": {"seq": "77"}}},
    ],
)
def test_a_number_in_quotes_is_no_number(
    shared: TestClient, said: dict[str, Any]
) -> None:
    """In JSON each value has the type that the document says."""
    asked = {"graph": graph_json(), "target": "cpu", **said}
    answer = shared.post("/v1/plans", json=asked)
    assert answer.status_code == 422, answer.text
    assert next(iter(said)) in answer.json()["where"]


def test_what_is_no_text_is_refused_on_every_route(shared: TestClient) -> None:
    """A name with U+0000 would be an error of the database, and of one kind only."""
    paths: dict[str, Any] = shared.get("/openapi.json").json()["paths"]
    asked = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            given = [p for p in operation.get("parameters", ()) if "schema" in p]
            texts = {p["name"] for p in given if p["schema"].get("type") == "string"}
            inside = {
                p["name"]: PLACES.get(p["name"], "0" * 64)
                for p in given
                if p["in"] == "path"
            }
            for name in texts & set(inside):
                place = path.format(**{**inside, name: "a%00b"})
                answer = shared.request(method, place)
                assert answer.status_code == 422, (method, path, answer.text)
                asked += 1
            queried = {p["name"] for p in given if p["in"] == "query"}
            for name in texts & queried:
                place = path.format(**inside)
                answer = shared.request(method, place, params={name: "a\0b"})
                assert answer.status_code == 422, (method, path, answer.text)
                asked += 1
    assert asked > 30


@pytest.mark.parametrize(
    "said",
    [
        {"title": "a\0b"},
        {"title": "\ud800"},
        {"options": {"pins": [{"fuse": True, "nodes": ["\ud800", "n1"]}]}},
        {"options": {"shapes": {"\ud800": 3}}},
        {"options": {"\ud800": 3}},
        {"target": "\ud800"},
        {"\ud800": 3},
    ],
)
def test_what_is_no_text_is_refused_with_a_problem(
    shared: TestClient, said: dict[str, Any]
) -> None:
    """In a body too; and the refusal can quote it."""
    asked = {"graph": graph_json(), "target": "cpu", **said}
    answer = shared.post(
        "/v1/plans",
        content=json.dumps(asked),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] in {"invalid-request", "invalid-option"}


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/a%00b",
        "/jobs/x%3Fstate=failed",
        "/jobs/x%23y",
        "/jobs/%2e%2e",
        "/devices/a%00b",
        "/devices/%252e%252e",
        "/compare?job=a%00b",
        "/compare?job=..",
        "/compare?job=x%2Fy%3Fz",
    ],
)
def test_a_name_in_a_pages_address_leads_nowhere_else(
    shared: TestClient, path: str
) -> None:
    """It is a name and nothing more: no other resource is read, and nothing breaks."""
    answer = shared.get(path)
    assert answer.status_code in {200, 404, 422}, answer.text
    assert answer.headers["Content-Type"].startswith("text/html")


def test_a_page_opens_whatever_stands_behind_it(shared: TestClient) -> None:
    """Links that somebody else wrote may carry more."""
    assert shared.get("/jobs?utm_source=mail").status_code == 200


def test_a_range_of_sizes_is_refused_with_where_to_ask(shared: TestClient) -> None:
    """Over HTTP sizes are single; the command line plans for ranges."""
    for sizes in ("1..512", [1, 512]):
        options = {"shapes": {"seq": sizes}}
        asked = {"graph": graph_json(), "target": "cpu", "options": options}
        told = shared.post("/v1/plans", json=asked).json()
        assert (told["code"], told["where"]) == ("invalid-option", "options.shapes.seq")
        assert "fuseplan plan --shape seq=1..512" in told["hint"]


def test_every_whole_number_has_two_ends() -> None:
    """Beyond what a database can hold, a number is refused before it gets there."""
    seen = 0
    for route in (route for router in ROUTERS for route in _routes(router)):
        dependant = route.dependant
        for field in (
            *dependant.path_params,
            *dependant.query_params,
            *dependant.header_params,
        ):
            if field.field_info.annotation in {int, int | None}:
                ends = {type(each).__name__ for each in field.field_info.metadata}
                assert ends & {"Ge", "Gt"}, (route.path, field.name)
                assert ends & {"Le", "Lt"}, (route.path, field.name)
                seen += 1
    assert seen > 10


@pytest.mark.parametrize("number", [-(10**30), -1, 10**30])
def test_a_trial_beyond_all_numbers_is_refused(shared: TestClient, number: int) -> None:
    """422, whatever the sign and however many digits."""
    for place in (f"/v1/jobs/{'0' * 26}/trials/{number}", f"/jobs/x/trials/{number}"):
        assert shared.get(place).status_code in {404, 422}, place


def test_every_json_body_says_each_name_once(shared: TestClient) -> None:
    """On every route that takes one, at any depth: 400 with the name."""
    paths: dict[str, Any] = shared.get("/openapi.json").json()["paths"]
    asked = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            if "application/json" not in operation.get("requestBody", {}).get(
                "content", ()
            ):
                continue
            answer = shared.request(
                method,
                path,
                content=b'{"target": [{"n": 1, "n": 2}], "keys": [], "graph": {}}',
                headers={"Content-Type": "application/json"},
            )
            told = answer.json()
            assert (answer.status_code, told["code"]) == (400, "malformed-body"), path
            assert "'n' twice" in told["detail"]
            asked += 1
    assert asked > 1


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/v1/plans", lambda many: {"graph": {}, "target": "cpu", **many}),
        ("/v1/plans:lookup", lambda many: {"keys": [], **many}),
    ],
)
def test_of_unknown_names_the_first_is_told(
    shared: TestClient, path: str, inside: Callable[[dict[str, int]], dict[str, Any]]
) -> None:
    """A body may have millions of them, and an answer need not."""
    many = {f"colour{number}": 1 for number in range(1000)}
    answer = shared.post(path, json=inside(many))
    assert answer.status_code == 422
    told = [one["where"].rpartition(".")[2] for one in answer.json()["errors"]]
    assert told == ["colour0"]


@pytest.mark.parametrize(
    "given",
    [
        {f"colour{number}": 1 for number in range(1000)},
        {"pins": [{}] * 5000},
        {"shapes": dict.fromkeys(map(str, range(5000)), "1")},
    ],
)
def test_wrong_options_are_few_errors(given: dict[str, Any]) -> None:
    """However many are wrong, no more are listed than may be given."""
    with pytest.raises(ValidationError) as found:
        PlanOptions.model_validate(given)
    assert found.value.error_count() <= 1001


def test_a_name_is_found_twice_in_one_pass() -> None:
    """However many an object has: to count each alone would take half a minute."""
    names = [*(f'"n{number}":0' for number in range(40_000)), '"n39999":0']
    text = "{" + ",".join(names) + "}"
    started = time.process_time()
    with pytest.raises(RepeatedName, match="'n39999' twice"):
        decoded(text)
    assert time.process_time() - started < 5.0


def test_others_are_served_while_a_body_is_searched() -> None:
    """What a body of many objects costs is no pause for those who asked less."""
    body = b"[" + b'{"a":0},' * 200_000 + b'{"b":0,"b":1}]'
    app = FastAPI()
    problems.install(app)
    app.include_router(comparing.router)
    app.state.context = None  # whoever sends such a body gets no further
    turns = 0

    async def search() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://here"
        ) as client:
            headers = {"Content-Type": "application/json"}
            asked = asyncio.create_task(
                client.post("/v1/plans:lookup", content=body, headers=headers)
            )
            nonlocal turns
            while not asked.done():
                await asyncio.sleep(0)
                turns += 1
            return await asked

    answer = asyncio.run(search())
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed-body")
    assert "'b' twice" in answer.json()["detail"]
    assert turns > 100


def test_a_body_is_decoded_once(
    shared: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every route that takes JSON: nothing decodes it before or behind us."""
    seen: list[str | bytes] = []
    loads = json.loads

    def counted(text: str | bytes, **given: Any) -> Any:
        seen.append(text)
        return loads(text, **given)

    lookup = json.dumps({"keys": ["0" * 64]}).encode()
    plan = json.dumps({"graph": graph_json(), "target": "cpu"}).encode()
    monkeypatch.setattr(json, "loads", counted)
    for path, body in (("/v1/plans:lookup", lookup), ("/v1/plans", plan)):
        headers = {"Content-Type": "application/json"}
        answer = shared.post(path, content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert seen.count(body) == 1, path


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded"]
)
def test_a_lookup_is_json_that_says_so(shared: TestClient, kind: str) -> None:
    """A form of some page sends other types, and no browser asks before it does."""
    headers = {"Content-Type": kind} if kind else {}
    answer = shared.post("/v1/plans:lookup", content=b'{"keys": []}', headers=headers)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (415, "unsupported-media-type")
    assert "application/json" in told["hint"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"\xff"', b"[" * 100_000, b"null"])
@pytest.mark.parametrize("path", ["/v1/plans:lookup", "/v1/plans"])
def test_what_is_no_json_object_is_told_alike(
    shared: TestClient, path: str, body: bytes
) -> None:
    """On every route that takes JSON: 400 with one code, however it is wrong."""
    headers = {"Content-Type": "application/json"}
    answer = shared.post(path, content=body, headers=headers)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (400, "malformed-body"), told
    assert (told["where"], told["hint"]) == ("body", "send a JSON object")


def _routes(router: APIRouter) -> Iterator[APIRoute]:
    for found in router.routes:
        if isinstance(found, APIRoute):
            yield found
        inner = getattr(found, "original_router", None)
        if inner is not None:
            yield from _routes(inner)
