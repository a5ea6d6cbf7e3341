"""Calibrated targets: a service plans and tunes by the numbers of its database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from cost_model.catalog import cpu
from cost_model.device import Device
from cost_model.refining import scaled
from service.settings import Settings
from service.store import connect, devices
from tests.service.api.conftest import Start
from tests.service.api.models import graph_onnx
from tests.service.api.test_jobs import NULL, ONNX, ended

SLOW = scaled(cpu(), "launch_seconds", 2.0)
SLOWER = scaled(cpu(), "launch_seconds", 4.0)


def _calibrate(folder: Path, device: Device) -> str:
    """Store a calibration; the name of its target."""
    told = devices.Calibration(
        target="cpu",
        host="here",
        digest=device.digest,
        numbers=json.loads(json.dumps({"device": device.numbers})),
        created_at=datetime.now(UTC),
    )
    database = connect(Settings(data_home=folder).url)
    try:
        with database.write() as session:
            devices.calibrate(session, told)
    finally:
        database.close()
    return f"cpu@{device.digest[:8]}"


def _asked(client: TestClient, target: str, **more: Any) -> httpx2.Response:
    return client.post(
        "/v1/plans",
        content=graph_onnx(),
        params={"target": target, **more},
        headers=ONNX,
    )


def _plan(client: TestClient, answer: Mapping[str, Any]) -> dict[str, Any]:
    return dict(client.get(f"/v1/plans/{answer['plan_key']}").json())


@pytest.mark.parametrize("processes", [0, 1])
def test_a_plan_rests_on_the_numbers_that_were_named(
    start: Start, tmp_path: Path, processes: int
) -> None:
    """By digits or as the latest; plain `cpu` stays, and each has a key of its own."""
    client = start(planner_processes=processes)
    plain = _asked(client, "cpu").json()
    slow = _calibrate(tmp_path, SLOW)
    latest = _asked(client, "cpu@latest").json()
    assert _plan(client, latest)["target"] == {"id": slow, "digest": SLOW.digest}
    _calibrate(tmp_path, SLOWER)
    newest = _asked(client, "cpu@latest").json()
    assert _asked(client, slow).json()["plan_key"] == latest["plan_key"]
    keys = {told["plan_key"] for told in (plain, latest, newest)}
    assert len(keys) == 3
    fast, slower, slowest = (
        _plan(client, told)["objective_seconds"] for told in (plain, latest, newest)
    )
    assert fast < slower < slowest


def test_it_is_tuned_on_the_device_it_was_measured_on(
    start: Start, tmp_path: Path
) -> None:
    """The measured plan has the key that was asked for; its kernels serve `cpu` too."""
    client = start(**NULL)
    named = _calibrate(tmp_path, SLOW)
    told = _asked(client, named, mode="tuned").json()
    job = ended(client, told["job"])
    assert (job["state"], job["target"]) == ("succeeded", named)
    path = f"/v1/plans/{told['plan_key']}"
    measured = client.get(path, params={"evidence": "measured"})
    assert measured.status_code == 200
    assert measured.json()["target"]["digest"] == SLOW.digest
    other = ended(client, _asked(client, "cpu", mode="tuned").json()["job"])
    assert other["state"] == "succeeded"
    assert other["progress"]["trials"] < job["progress"]["trials"]
    nodes = [name for kernel in measured.json()["kernels"] for name in kernel["nodes"]]
    solved = client.get(f"{path}/explain/solved", params={"a": nodes[0], "b": nodes[1]})
    assert solved.status_code == 200


def test_a_repeated_request_is_known_when_the_latest_is_another(
    start: Start, tmp_path: Path
) -> None:
    """It is told by what was sent, and answered as the first time."""
    client = start()
    _calibrate(tmp_path, SLOW)
    query, headers = {"target": "cpu@latest"}, {**ONNX, "Idempotency-Key": "once"}

    def asked() -> dict[str, Any]:
        answer = client.post(
            "/v1/plans", content=graph_onnx(), params=query, headers=headers
        )
        assert answer.status_code == 200
        return dict(answer.json())

    first = asked()
    _calibrate(tmp_path, SLOWER)
    assert asked()["plan_key"] == first["plan_key"]


def test_an_unknown_calibration_is_named_with_those_there_are(
    start: Start, tmp_path: Path
) -> None:
    """Nothing is planned for numbers that nobody has measured."""
    client = start()
    absent = _asked(client, "cpu@latest")
    assert absent.status_code == 422
    assert "fuseplan calibrate" in absent.json()["hint"]
    named = _calibrate(tmp_path, SLOW)
    wrong = _asked(client, "cpu@ffffffff")
    assert wrong.json()["code"] == "unknown-target"
    assert named in wrong.json()["hint"]
    assert _asked(client, "tpu@latest").json()["code"] == "unknown-target"
