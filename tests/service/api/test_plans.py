"""Tests of submitting models and looking plans up."""

from __future__ import annotations

import hashlib
import json

import pytest
from fastapi.testclient import TestClient

from service.api.plans import wait_seconds
from tests.service.api.conftest import Start
from tests.service.api.models import graph_json, graph_onnx

ONNX = {"Content-Type": "application/onnx"}


def submit(client: TestClient, **query: str) -> dict[str, object]:
    """Submit the small ONNX model for the processor."""
    answer = client.post(
        "/v1/plans",
        content=graph_onnx(),
        params={"target": "cpu", **query},
        headers=ONNX,
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def plan_bytes(content: bytes) -> bytes:
    """The plan's own bytes in an answer."""
    return content.partition(b',"plan":')[2][:-1]


def test_an_analytic_plan_comes_in_the_same_request(client: TestClient) -> None:
    """The answer holds key, digest, names and the whole plan."""
    answer = submit(client)
    assert answer["state"] == "ready"
    assert answer["evidence"] == "analytic"
    assert answer["job"] is None
    assert answer["names"]["n0"] == ["relu"]  # type: ignore[index]
    assert len(answer["plan"]["kernels"]) == 1  # type: ignore[index]


def test_the_digest_is_of_the_plans_bytes(client: TestClient) -> None:
    """SHA-256 of the body is the digest, in the answer and under the key."""
    answer = client.post(
        "/v1/plans", content=graph_onnx(), params={"target": "cpu"}, headers=ONNX
    )
    told = answer.json()
    body = plan_bytes(answer.content)
    assert hashlib.sha256(body).hexdigest() == told["digest"]
    assert client.get(f"/v1/plans/{told['plan_key']}").content == body
    assert client.get(f"/v1/blobs/sha256/{told['digest']}").content == body


def test_an_equal_submission_is_answered_from_the_store(client: TestClient) -> None:
    """The second answer has the same bytes and says that it was stored."""
    first = client.post(
        "/v1/plans", content=graph_onnx(), params={"target": "cpu"}, headers=ONNX
    )
    second = client.post(
        "/v1/plans", content=graph_onnx(), params={"target": "cpu"}, headers=ONNX
    )
    assert second.content == first.content
    assert first.headers["Fuseplan-Cache"] == "miss"
    assert second.headers["Fuseplan-Cache"] == "hit"


def test_renamed_and_json_forms_have_one_key(client: TestClient) -> None:
    """Names and form do not matter, and each submitter gets his own names."""
    plain = submit(client)
    renamed = client.post(
        "/v1/plans",
        content=graph_onnx("other_"),
        params={"target": "cpu"},
        headers=ONNX,
    ).json()
    as_json = client.post(
        "/v1/plans", json={"graph": graph_json("third_"), "target": "cpu"}
    ).json()
    assert plain["plan_key"] == renamed["plan_key"] == as_json["plan_key"]
    assert plain["digest"] == renamed["digest"] == as_json["digest"]
    assert renamed["names"]["n0"] == ["other_relu"]
    assert as_json["names"]["n0"] == ["third_relu"]


def test_target_and_options_make_other_keys(client: TestClient) -> None:
    """What enters the key changes it; a budget does not."""
    cpu = submit(client)
    gpu = submit(client, target="sm_90")
    alias = submit(client, target="h100-sxm")
    other = submit(client, options='{"launch_mode": "graph"}')
    budget = submit(client, budget_seconds="5")
    assert gpu["plan_key"] == alias["plan_key"]
    assert budget["plan_key"] == cpu["plan_key"]
    assert len({cpu["plan_key"], gpu["plan_key"], other["plan_key"]}) == 3


def test_kernel_sources_can_be_fetched(client: TestClient) -> None:
    """Every digest that a plan names is a public blob, and never changes."""
    answer = submit(client)
    kernel = answer["plan"]["kernels"][0]  # type: ignore[index]
    assert set(kernel["sources"]) == {"opencl", "cuda"}
    for digest in kernel["sources"].values():
        blob = client.get(f"/v1/blobs/sha256/{digest}")
        assert hashlib.sha256(blob.content).hexdigest() == digest
        assert "immutable" in blob.headers["Cache-Control"]


def test_a_client_that_has_the_plan_gets_304(client: TestClient) -> None:
    """The ETag is the digest; GET and HEAD agree on everything but the body."""
    key = submit(client)["plan_key"]
    got = client.get(f"/v1/plans/{key}")
    head = client.head(f"/v1/plans/{key}")
    assert got.headers["Cache-Control"] == "no-cache"
    assert got.headers["Fuseplan-Match"] == "exact"
    assert got.headers["Fuseplan-Evidence"] == "analytic"
    for name in ("ETag", "Content-Length", "Content-Type", "Fuseplan-Evidence"):
        assert got.headers[name] == head.headers[name]
    assert head.content == b""
    for tag in (got.headers["ETag"], f'"x", W/{got.headers["ETag"]}', "*"):
        held = client.get(f"/v1/plans/{key}", headers={"If-None-Match": tag})
        assert held.status_code == 304
        assert held.content == b""
    changed = client.get(f"/v1/plans/{key}", headers={"If-None-Match": '"other"'})
    assert changed.status_code == 200


def test_a_missing_plan_says_why(client: TestClient) -> None:
    """Unknown keys and missing measurements are told apart, and not cached."""
    key = submit(client)["plan_key"]
    unknown = client.get(f"/v1/plans/{'0' * 64}")
    untuned = client.get(f"/v1/plans/{key}", params={"evidence": "measured"})
    assert unknown.json()["reason"] == "unknown"
    assert untuned.json()["reason"] == "never_tuned"
    for answer in (unknown, untuned):
        assert answer.status_code == 404
        assert answer.json()["code"] == "plan-not-found"
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("content", "query", "status", "code"),
    [
        (b"\x08\x07garbage", {"target": "cpu"}, 422, "invalid-model"),
        (b"", {"target": "cpu"}, 400, "malformed-body"),
        (graph_onnx(), {"target": "sm_12"}, 422, "unknown-target"),
        (graph_onnx(), {}, 422, "invalid-request"),
        (graph_onnx(), {"target": "cpu", "mode": "fast"}, 422, "invalid-request"),
        (graph_onnx(), {"target": "cpu", "options": "{"}, 422, "invalid-request"),
        (graph_onnx(), {"target": "cpu", "options": "[]"}, 422, "invalid-request"),
        (graph_onnx(), {"target": "cpu", "options": '{"x":1}'}, 422, "invalid-option"),
        (
            graph_onnx(),
            {"target": "cpu", "options": '{"legality":"some"}'},
            422,
            "invalid-option",
        ),
        (
            graph_onnx(),
            {"target": "cpu", "options": '{"pins":[{"fuse":true,"nodes":["a","b"]}]}'},
            422,
            "invalid-option",
        ),
        (graph_onnx(), {"target": "cpu", "budget_seconds": "-1"}, 422, None),
        (graph_onnx(), {"target": "cpu", "budget_seconds": "inf"}, 422, None),
        (
            graph_onnx(),
            {"target": "cpu", "budget_seconds": "1e9"},
            422,
            "invalid-request",
        ),
        (
            graph_onnx(),
            {"target": "ideal", "mode": "tuned"},
            422,
            "invalid-option",
        ),
        (
            graph_onnx(),
            {"target": "sm_90", "mode": "tuned"},
            503,
            "worker-unavailable",
        ),
    ],
)
def test_a_wrong_request_is_explained(
    shared: TestClient,
    content: bytes,
    query: dict[str, str],
    status: int,
    code: str | None,
) -> None:
    """Each has its status and a stable code, says where and what, stores nothing."""
    answer = shared.post("/v1/plans", content=content, params=query, headers=ONNX)
    told = answer.json()
    assert answer.status_code == status, told
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert told["code"] == (code or "invalid-request")
    assert told["where"]
    assert told["detail"]
    assert shared.get("/v1/cache-info").json()["plans"] == {}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{", 400, "malformed-body"),
        ("[]", 400, "malformed-body"),
        ("[" * 100_000, 400, "malformed-body"),
        ("{}", 422, "invalid-request"),
        ('{"graph": {}, "target": "cpu", "surprise": 1}', 422, "invalid-request"),
        ('{"graph": {}, "target": "cpu"}', 422, "invalid-model"),
        ('{"graph": {"schema": "other/9"}, "target": "cpu"}', 422, "invalid-model"),
    ],
)
def test_a_wrong_json_body_is_explained(
    shared: TestClient, body: str, status: int, code: str
) -> None:
    """Bad JSON is 400, JSON that does not keep the schema is 422."""
    answer = shared.post(
        "/v1/plans", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_an_unknown_media_type_is_refused(shared: TestClient) -> None:
    """415 names the types that are taken."""
    answer = shared.post(
        "/v1/plans", content=b"x", headers={"Content-Type": "text/html"}
    )
    assert answer.status_code == 415
    assert "application/onnx" in answer.json()["hint"]


def test_a_body_that_is_too_large_is_refused_early(start: Start) -> None:
    """The limit holds for a told length and for one that turns out so."""
    client = start(max_body_bytes=1024)

    def pieces() -> object:
        for _ in range(10):
            yield b"x" * 500

    told = client.post(
        "/v1/plans", content=b"x" * 2000, params={"target": "cpu"}, headers=ONNX
    )
    untold = client.post(
        "/v1/plans",
        content=pieces(),  # type: ignore[arg-type]
        params={"target": "cpu"},
        headers=ONNX,
    )
    for answer in (told, untold):
        assert answer.status_code == 413
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["code"] == "body-too-large"


def test_a_name_is_told_once(shared: TestClient) -> None:
    """In a body and in the options of a query: of two values one would be lost."""
    body = json.dumps({"graph": graph_json(), "target": "cpu", "options": {}})
    body = body.replace('"options": {}', '"options": {"shapes": {"n": 4, "n": 5}}')
    given = {"content": body, "headers": {"Content-Type": "application/json"}}
    in_body = shared.post("/v1/plans", **given)  # type: ignore[arg-type]
    in_query = shared.post(
        "/v1/plans",
        content=graph_onnx(),
        params={"target": "cpu", "options": '{"shapes": {"n": 4, "n": 5}}'},
        headers=ONNX,
    )
    assert (in_body.status_code, in_body.json()["code"]) == (400, "malformed-body")
    assert (in_query.status_code, in_query.json()["code"]) == (422, "invalid-request")
    for answer in (in_body, in_query):
        assert "'n' twice" in answer.json()["detail"]


def test_a_submitted_model_is_not_public(client: TestClient) -> None:
    """Nobody can fetch a model by its digest."""
    data = graph_onnx()
    submit(client)
    digest = hashlib.sha256(data).hexdigest()
    assert client.get(f"/v1/blobs/sha256/{digest}").status_code == 404


def test_names_with_strange_letters_come_back_whole(client: TestClient) -> None:
    """Quotes, line ends and other scripts in names are data, nothing else."""
    prefix = 'a"b\\<script>\n/../ü漢'
    answer = client.post(
        "/v1/plans", json={"graph": graph_json(prefix), "target": "cpu"}
    )
    assert answer.status_code == 200
    assert answer.json()["names"]["n0"] == [f"{prefix}relu"]
    assert "script" not in json.dumps(answer.json()["plan"])


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=5", 5),
        ("respond-async, wait=10", 10),
        ("wait = 3; x", 3),
        ("wait=0.25", 0.25),
        ("wait=2.5, respond-async", 2.5),
        ("wait=1.2.3", 0),
        ("wait=9999", 60),
        ("await=5", 0),
        ("wait=-1", 0),
        ("", 0),
    ],
)
def test_the_prefer_header(header: str, seconds: float) -> None:
    """Only `wait` counts, up to a limit."""
    assert wait_seconds(header) == seconds
