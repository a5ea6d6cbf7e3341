"""Tests of the service as a process of its own: started, killed, started again."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.conftest import SOAK
from tests.service.api.models import graph_onnx
from tests.service.api.test_jobs import ENDED, parse
from tests.waiting import PATIENCE_SECONDS, address_of, until
from tuner.errors import DeviceUnavailable
from tuner.runtime.runner import Runner

ROOT = Path(__file__).parents[3]
COMMAND = "from service.cli import main; main()"
KILLS = 6 if SOAK else 2


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(
    folder: Path, device: str, **given: str
) -> Iterator[tuple[httpx.Client, int]]:
    """A running service and its process id; it is killed in the end."""
    environment = {
        **os.environ,
        "XDG_DATA_HOME": str(folder),
        "FUSEPLAN_DEVICE": device,
        "FUSEPLAN_LOG_LEVEL": "warning",
        **given,
    }
    command = [sys.executable, "-c", COMMAND, "serve", "--port", "0"]
    said = folder / "service.stderr"
    with (
        said.open("wb") as file,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=file) as process,
    ):
        try:
            address = address_of(process, said)
            with asking(address) as client:
                until(lambda: client.get("/readyz").status_code == 200)
                yield client, process.pid
        finally:
            process.kill()


def asking(address: str) -> httpx.Client:
    """A client that waits for a service on a machine that stands still, too."""
    return httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE_SECONDS)


def tune(client: httpx.Client, width: int, **query: str) -> str:
    """Hand in a small model to be tuned; gives the job."""
    answer = client.post(
        "/v1/plans",
        content=graph_onnx(width=width),
        params={"target": "cpu", "mode": "tuned", **query},
        headers={"Content-Type": "application/onnx"},
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job"])


def end_of(client: httpx.Client, job: str) -> str:
    """State in which a job ends."""

    def state() -> str:
        return str(client.get(f"/v1/jobs/{job}").json()["state"])

    until(lambda: state() in ENDED)
    return state()


def test_no_job_is_lost_when_the_service_is_killed(tmp_path: Path) -> None:
    """Each job ends once, with whole numbers of events, whenever kill -9 came.

    It comes as soon as the job is taken, and 0.4 s later; at full length four times
    more, each 0.4 s later still.
    """
    jobs: list[str] = []
    for round_ in range(KILLS):
        with serving(tmp_path, "null:0") as (client, pid):
            jobs.append(tune(client, 32 + round_))
            time.sleep(0.4 * round_)
            os.kill(pid, signal.SIGKILL)
    with serving(tmp_path, "null:0") as (client, _):
        for job in jobs:
            assert end_of(client, job) == "succeeded"
            with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
                events = parse(stream.iter_lines())
            assert [int(one["id"]) for one in events] == list(range(1, len(events) + 1))
            assert [one["event"] for one in events].count("done") == 1


def test_a_connection_idles_as_long_as_is_said(tmp_path: Path) -> None:
    """The service closes it then, and not before; by default after most proxies do."""
    told = {"FUSEPLAN_KEEP_ALIVE_SECONDS": "1", "FUSEPLAN_WORKER": "false"}
    with serving(tmp_path, "null:0", **told) as (client, _):
        kept = http.client.HTTPConnection("127.0.0.1", client.base_url.port, timeout=60)
        with closing(kept):
            began = time.monotonic()  # the answer may lie there before it is read
            kept.request("GET", "/livez")
            assert kept.getresponse().read() == b'{"status":"alive"}'
            assert kept.sock.recv(1) == b""
            assert time.monotonic() - began > 0.9
    assert Settings().keep_alive_seconds > 60


ATTEMPTS = 8
"""A run that other processes disturbed ends `partial`, as it should; ask again."""


def test_a_small_model_is_tuned_on_this_processor(tmp_path: Path) -> None:
    """Real kernels, verified and timed; the plan beats running one by one."""
    try:
        with Runner("cpu"):
            pass
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    with serving(tmp_path, "cpu") as (client, _):
        for _ in range(ATTEMPTS):
            job = tune(client, 512, budget_seconds="10", budget_trials="8")
            assert end_of(client, job) in {"succeeded", "partial"}
            told = client.get(f"/v1/jobs/{job}").json()
            answer = client.get(
                f"/v1/plans/{told['plan_key']}", params={"evidence": "measured"}
            )
            if answer.is_success:
                break
        plan = answer.json()
        assert plan["measured"]["plan"]["seconds"] > 0
        assert plan["measured"]["reference"]["seconds"] > 0
