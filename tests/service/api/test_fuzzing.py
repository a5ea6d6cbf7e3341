"""Tests that the running service keeps to its own OpenAPI document."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from cost_model.catalog import DEVICES
from service.jobs.planning import queue_of
from service.store import connect, devices
from service.store.devices import StoredDevice
from tests.conftest import SOAK
from tests.service.api.models import graph_onnx
from tests.service.api.test_process import ROOT, end_of, serving, tune

Json = dict[str, Any]
Served = tuple[httpx.Client, Path]
ONNX = {"Content-Type": "application/onnx"}
FOLDER = Path(__file__).parent
LENGTH = (
    ["--max-time", "180"]
    if SOAK
    else ["--phases", "examples,stateful", "--max-examples", "10"]
)
LONGEST_SECONDS = 600
LISTS = {
    "listDevices": "/v1/devices",
    "listJobs": "/v1/jobs",
    "listPlans": "/v1/plans",
}
COUNTED = re.compile(
    r'fuseplan_http_requests_total\{method="(\w+)",route="([^"]+)",status="(\d+)"\}'
    r" ([\d.]+)"
)


def offer_every_device(folder: Path) -> None:
    """As in a fleet that has a worker for each architecture: no target is refused."""
    database = connect(f"sqlite:///{folder / 'fuseplan' / 'fuseplan.db'}")
    with database.write() as session:
        for device in (one for one in DEVICES.values() if one.kind != "ideal"):
            told = StoredDevice(
                name=f"null:{device.id}",
                host="elsewhere",
                target=device.id,
                queues=(queue_of(device),),
                facts={},
                seen_at=datetime.now(UTC),
            )
            devices.put(session, told)
    database.close()


def fuzz(client: httpx.Client, bundle: Path) -> subprocess.CompletedProcess[str]:
    """Let Schemathesis ask for a while."""
    bundle.write_bytes(client.get("/v1/bundles").content)
    words = [sys.executable, "-m", "schemathesis.cli"]
    words += ["--config-file", str(FOLDER / "schemathesis.toml"), "run"]
    words += [f"{client.base_url}/openapi.json", *LENGTH, "--no-color"]
    environment = {
        **os.environ,
        "FUSEPLAN_TEST_BUNDLE": str(bundle),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        words,
        cwd=bundle.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )


def answered(client: httpx.Client) -> Counter[tuple[str, str]]:
    """How often each operation, by method and route, was answered with 2xx."""
    found = COUNTED.findall(client.get("/metrics").text)
    return Counter(
        {
            (method, route): int(float(times))
            for method, route, status, times in found
            if status.startswith("2")
        }
    )


def operations(client: httpx.Client) -> dict[str, tuple[str, str, Json]]:
    """Method, path and entry of each operation of the document, by its id."""
    paths = client.get("/openapi.json").json()["paths"]
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


def resolved(expression: str, answer: Json, path: Mapping[str, str]) -> str:
    """The value of a link's parameter, as OpenAPI's runtime expression."""
    if expression.startswith("$request.path."):
        return path[expression.removeprefix("$request.path.")]
    if not expression.startswith("$response.body#/"):
        return expression
    value: Any = answer
    for step in expression.removeprefix("$response.body#/").split("/"):
        value = value[int(step)] if step.isdecimal() else value[step]
    return str(value)


def follow(
    client: httpx.Client, name: str, answer: httpx.Response, **path: str
) -> set[str]:
    """Go wherever an answer of an operation leads; gives where 2xx was met."""
    known = operations(client)
    links = known[name][2]["responses"][str(answer.status_code)].get("links", {})
    met = set()
    for link in links.values():
        method, there, operation = known[link["operationId"]]
        parameters = link["parameters"].items()
        try:
            given = {n: resolved(e, answer.json(), path) for n, e in parameters}
        except LookupError:
            continue  # an empty list leads nowhere
        places = {one["name"]: one["in"] for one in operation.get("parameters", [])}
        query = {n: v for n, v in given.items() if places[n] == "query"}
        told = client.request(method, there.format(**given), params=query, timeout=60)
        assert told.status_code < 500, told.text
        if told.is_success:
            met.add(link["operationId"])
    return met


def explore(client: httpx.Client) -> None:
    """Ask for what only a chain of answers leads to, links and lists alike."""
    for width, mode in ((64, "analytic"), (160, "tuned")):
        answer = client.post(
            "/v1/plans",
            content=graph_onnx(width=width),
            params={"target": "cpu", "mode": mode},
            headers=ONNX,
            timeout=60,
        )
        follow(client, "submitPlan", answer)
    job = tune(client, 192)
    client.delete(f"/v1/jobs/{job}").raise_for_status()
    key = client.get(f"/v1/jobs/{job}").json()["plan_key"]
    client.delete(f"/v1/plans/{key}/pin").raise_for_status()
    client.delete(f"/v1/plans/{key}").raise_for_status()
    for name, path in LISTS.items():
        follow(client, name, client.get(path))
    ended = client.get("/v1/jobs", params={"state": "succeeded"}).json()["jobs"]
    trials = client.get(f"/v1/jobs/{ended[-1]['id']}/trials")
    follow(client, "listTrials", trials, job_id=ended[-1]["id"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One service for all tests of this module, and its folder."""
    folder = tmp_path_factory.mktemp("fuzzing")
    with serving(folder, "null:0") as (client, _):
        yield client, folder


def test_the_links_of_the_document_lead_somewhere(served: Served) -> None:
    """What an answer says that can be asked next is answered, with 2xx.

    What takes something away is none of it: history and all that was read stay.
    """
    client, _ = served
    tuned = tune(client, 64)
    assert end_of(client, tuned) == "succeeded"
    trials = client.get(f"/v1/jobs/{tuned}/trials")
    assert follow(client, "listTrials", trials, job_id=tuned) == {"getTrial"}
    for name, path in LISTS.items():
        met = follow(client, name, client.get(path))
        linked = set(operations(client)[name][2]["responses"]["200"]["links"])
        assert met == linked, name
    for name, (_, _, told) in operations(client).items():
        for answer in told["responses"].values():
            linked = set(answer.get("links", {}))
            assert "DELETE" not in {operations(client)[one][0] for one in linked}, name
    request = {
        "content": graph_onnx(),
        "headers": ONNX,
        "params": {"target": "cpu"},
    }
    ready = client.post("/v1/plans", **request)  # type: ignore[arg-type]
    met = follow(client, "submitPlan", ready)
    linked = set(operations(client)["submitPlan"][2]["responses"]["200"]["links"])
    assert met == linked
    request |= {"params": {"target": "cpu", "mode": "tuned"}}
    request |= {"content": graph_onnx(width=96)}
    queued = client.post("/v1/plans", **request)  # type: ignore[arg-type]
    assert queued.status_code == 202
    met = follow(client, "submitPlan", queued)
    assert {"getJob", "listTrials", "getJobHistory", "streamJobEvents"} <= met


def test_the_service_keeps_to_its_document(served: Served) -> None:
    """Whatever the document allows is answered as it says, and what it forbids is not.

    At full length every operation is answered with 2xx at least once, by it or by
    following the document's links.
    """
    client, folder = served
    assert end_of(client, tune(client, 80)) == "succeeded"
    offer_every_device(folder)
    if SOAK:
        explore(client)
    ended = fuzz(client, folder / "plans.tar.zst")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = set(answered(client))
    wanted = {
        (method, path)
        for name, (method, path, _) in operations(client).items()
        if name != "streamJobEvents"
    }
    if SOAK:
        assert wanted <= found, wanted - found
    assert ("POST", "/v1/plans") in found
    assert ("POST", "/v1/bundles") in found


def test_bytes_that_are_no_http_are_a_problem(served: Served) -> None:
    """What no application can be asked about is refused as every error is."""
    client, _ = served
    address = ("127.0.0.1", client.base_url.port)
    too_long = b"GET /?" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    for sent in (b"no http at all\r\n\r\n", too_long):
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(sent)
            answer = b"".join(iter(lambda c=connection: c.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/problem+json" in head
        assert b'"code": "http-error"' in body
