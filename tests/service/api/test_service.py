"""Tests of what the service tells of itself, and of its errors."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from cost_model.catalog import ALIASES, DEVICES
from service import errors
from service.app import create_app
from service.errors.table import PROBLEMS
from service.store.errors import StoreError
from tests.service.api.conftest import Start, settings
from tests.service.api.models import graph_onnx
from tuner.errors import TunerError


def test_every_error_has_a_row() -> None:
    """No error of the tuner, the store or the edge is without status and code."""

    def codes(kind: type[Exception]) -> set[str]:
        own = {kind.code}  # type: ignore[attr-defined]
        return own.union(*(codes(sub) for sub in kind.__subclasses__()))

    bases = (TunerError, StoreError, errors.ServiceError)
    assert set().union(*(codes(base) for base in bases)) <= set(PROBLEMS)


def test_the_service_is_alive_and_ready(shared: TestClient) -> None:
    """Liveness looks at nothing, readiness at database and disk."""
    assert shared.get("/livez").json() == {"status": "alive"}
    ready = shared.get("/readyz")
    assert ready.status_code == 200
    assert set(ready.json()["checks"]) == {"database", "worker", "disk"}


def test_a_missing_worker_is_not_ready(start: Start, tmp_path: Path) -> None:
    """With a worker expected, none alive is told with 503."""
    client = start(worker=True, device="null:0")
    assert client.get("/readyz").status_code == 200
    with closing(sqlite3.connect(tmp_path / "fuseplan" / "fuseplan.db")) as other:
        other.execute("UPDATE heartbeats SET seen_at = '2020-01-01 00:00:00.000000'")
        other.commit()
        answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["worker"]["ok"] is False


def test_a_newer_schema_is_not_ready_but_answers(start: Start, tmp_path: Path) -> None:
    """A service whose database was upgraded under it asks to be taken out."""
    client = start()
    with closing(sqlite3.connect(tmp_path / "fuseplan" / "fuseplan.db")) as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")
        other.commit()
        ready, listed = client.get("/readyz"), client.get("/v1/jobs")
    assert ready.status_code == 503
    assert "newer version" in ready.json()["checks"]["database"]["detail"]
    assert listed.status_code == 200


def test_the_catalogue_is_told(shared: TestClient) -> None:
    """Every device is listed, and found by id and by alias with its numbers."""
    listed = shared.get("/v1/devices").json()["devices"]
    assert {device["id"] for device in listed} == set(DEVICES)
    for alias, device in ALIASES.items():
        told = shared.get(f"/v1/devices/{alias}").json()
        assert told["id"] == device
        assert told["digest"] == DEVICES[device].digest
        assert told["numbers"]["dram_bytes"] == DEVICES[device].dram_bytes
    assert shared.get("/v1/devices/sm_12").json()["code"] == "device-not-found"


def test_cache_info_names_what_enters_the_key(shared: TestClient) -> None:
    """A build can see the toolchain that it would get plans for."""
    told = shared.get("/v1/cache-info").json()
    assert told["toolchain"]["codegen_revision"] >= 1
    assert set(told["toolchain"]["compilers"]) == {"cpu", "gpu", "ideal"}


def test_metrics_are_in_the_text_format(shared: TestClient) -> None:
    """Each line is a name, labels and a number."""
    answer = shared.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'fuseplan_jobs{state="queued"} 0.0' in answer.text.splitlines()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "route-not-found"),
        ("PUT", "/v1/plans", 405, "method-not-allowed"),
        ("GET", "/v1/plans/short", 422, "invalid-request"),
        ("GET", f"/v1/blobs/sha256/{'0' * 64}", 404, "blob-not-found"),
        ("GET", "/v1/jobs/nobody", 404, "job-not-found"),
        ("DELETE", "/v1/jobs/nobody", 404, "job-not-found"),
        ("GET", "/v1/jobs/nobody/events", 404, "job-not-found"),
        ("GET", "/v1/jobs?limit=0", 422, "invalid-request"),
    ],
)
def test_every_error_is_a_problem(
    shared: TestClient, method: str, path: str, status: int, code: str
) -> None:
    """Status, code, place and cure, in the media type of RFC 9457."""
    answer = shared.request(method, path)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (status, code)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "where", "hint"} <= set(told)
    assert told["status"] == status


def test_a_request_has_an_id(shared: TestClient) -> None:
    """A client's id is kept when it is harmless, and replaced when it is not."""
    kept = shared.get("/livez", headers={"X-Request-Id": "build-17"})
    replaced = shared.get("/livez", headers={"X-Request-Id": "a b\tc"})
    problem = shared.get("/nothing", headers={"X-Request-Id": "build-18"})
    assert kept.headers["X-Request-Id"] == "build-17"
    assert replaced.headers["X-Request-Id"] != "a b\tc"
    assert problem.json()["instance"] == "urn:fuseplan:request:build-18"


def test_a_locked_database_is_told_and_passes(start: Start, tmp_path: Path) -> None:
    """503 with the reason while another process writes; then all is well again."""
    client = start(busy_timeout_seconds=0.1)
    path = tmp_path / "fuseplan" / "fuseplan.db"

    def submit() -> tuple[int, object]:
        answer = client.post(
            "/v1/plans",
            content=graph_onnx(),
            params={"target": "cpu"},
            headers={"Content-Type": "application/onnx"},
        )
        return answer.status_code, answer.json().get("reason")

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert submit() == (503, "locked")
        other.execute("ROLLBACK")
    assert submit() == (200, None)


def test_an_unexpected_error_tells_nothing_of_the_inside(
    start: Start, tmp_path: Path
) -> None:
    """500 with the request's id, and no traceback."""
    client = start()
    with closing(sqlite3.connect(tmp_path / "fuseplan" / "fuseplan.db")) as other:
        other.execute("DROP TABLE heartbeats")
        other.execute("CREATE TABLE heartbeats (worker INTEGER)")
        other.execute("DROP TABLE jobs")
        other.execute("CREATE VIEW jobs AS SELECT 'x' AS state, 'y' AS created_at")
        other.commit()
    answer = client.get("/v1/jobs")
    assert answer.status_code in {500, 503}
    assert "Traceback" not in answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_the_openapi_document_is_complete(shared: TestClient) -> None:
    """Each operation has a stable id, and each error is a problem document."""
    document = shared.get("/openapi.json").json()
    ids = [
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
    ]
    assert len(ids) == len(set(ids))
    assert {
        "cancelJob",
        "getBlob",
        "getCacheInfo",
        "getDevice",
        "getJob",
        "getPlan",
        "headBlob",
        "headPlan",
        "listDevices",
        "listJobs",
        "streamJobEvents",
        "submitPlan",
    } <= set(ids)
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status.startswith("4"):
                    assert "application/problem+json" in answer["content"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_an_address_that_others_reach_needs_a_token(
    start: Start, tmp_path: Path
) -> None:
    """Binding wider than this host is refused unless somebody has a token."""
    with pytest.raises(errors.UnsafeAddress, match="FUSEPLAN_ALLOW_REMOTE"):
        create_app(settings(tmp_path, host="0.0.0.0", tokens="off"))
    with pytest.raises(errors.UnsafeAddress, match="no token yet"):
        start(host="0.0.0.0")
    assert start(host="0.0.0.0", allow_remote=True).get("/livez").status_code == 200
    admitted = start(host="0.0.0.0", admin_token="secret")
    assert admitted.get("/v1/jobs").status_code == 401
