"""Tests of the log: one line a request, and ids that lead from there to the job."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from tests.service.api.conftest import Start
from tests.service.api.models import graph_json
from tests.waiting import until


def ended(client: TestClient, job: str) -> bool:
    """Whether a job has ended."""
    return client.get(f"/v1/jobs/{job}").json()["state"] not in {"queued", "running"}


def test_a_request_is_one_line(client: TestClient) -> None:
    """Method, path, status, time, and the code of a problem."""
    with capture_logs() as lines:
        client.get(f"/v1/plans/{'0' * 64}", headers={"X-Request-Id": "build-17"})
    [line] = lines
    assert line["event"] == "request"
    assert (line["method"], line["status"]) == ("GET", 404)
    assert line["code"] == "plan-not-found"
    assert line["seconds"] >= 0


def test_a_job_is_found_by_the_request_that_made_it(start: Start) -> None:
    """The worker says which request it works for, and how the job ended."""
    client = start(worker=True, device="null:0")
    with capture_logs() as lines:
        answer = client.post(
            "/v1/plans",
            json={"graph": graph_json(), "target": "cpu", "mode": "tuned"},
            headers={"X-Request-Id": "build-18"},
        )
        job = answer.json()["job"]
        until(lambda: ended(client, job))
        until(lambda: any(line["event"] == "job ended" for line in lines))
        told: dict[str, Any] = {str(line["event"]): line for line in lines}
    assert told["job begun"]["request_id"] == "build-18"
    assert told["job ended"]["state"] == "succeeded"


def test_a_warning_is_a_line_of_the_log() -> None:
    """As JSON like all others, with its kind; nothing goes past it to stderr."""
    code = (
        "from service.app import configure_logging\n"
        "from service.settings import Settings\n"
        "from tuner.fusion.soundness import believed\n"
        "configure_logging(Settings())\n"
        "assert believed(2.0, 1.0, where='bound of a test') == 0.0\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    line = json.loads(ended.stdout)
    assert ended.stderr == ""
    assert (line["event"], line["level"]) == ("warning", "warning")
    assert line["kind"] == "UnsoundBound"
    assert "bound of a test" in line["problem"]
