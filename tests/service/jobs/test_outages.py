"""Tests of outages: API, workers and the database server are killed, and come back."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.app import prepare
from service.client import AsyncClient, StoredPlan, Submit
from service.settings import Settings
from service.store import Database, connect, jobs, retention
from tests.conftest import SOAK
from tests.service.api.models import graph_onnx
from tests.service.api.test_process import asking
from tests.service.conftest import own_server
from tests.service.jobs.test_fleet import (
    COMMAND,
    PATIENCE_SECONDS,
    ROOT,
    Fleet,
    check_ended_once,
    find,
    fleet_url,
    offered,
    until,
)
from tests.waiting import NAP_SECONDS, address_of

__all__ = ["fleet_url"]  # a fixture

CYCLES = 20 if SOAK else 2
SUBMITTERS, GRAPHS = (1000, 100) if SOAK else (40, 4)
KINDS = ("sqlite", "postgresql") if SOAK else ("postgresql",)
"""Databases; in every run a fleet's workers, and the API with the one that runs in it,
are killed on SQLite by tests of their own."""
LOOK_SECONDS = SUBMITTERS / 200
"""Between two looks of one submitter: all together they ask 200 times a second."""
CROWD_SECONDS = 4 * PATIENCE_SECONDS
"""What a submitter may wait for one answer, and all of them together."""
WORKERS = ("null:0", "null:1")
ONNX = {"Content-Type": "application/onnx"}
TUNED: Mapping[str, Any] = {
    "target": "cpu",
    "mode": "tuned",
    "budget_seconds": 10,
    "budget_trials": 20,
}
API = "api"


class House:
    """An API and workers as processes of their own, on one database.

    Args:
        url: the database.
        home: their data folder.
    """

    def __init__(self, url: str, home: Path) -> None:
        self.fleet = Fleet(url, home)
        self.database = connect(url)
        self._home = home
        self._api: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where the API answers, once it does: at another port after each start."""
        assert self._api is not None
        return address_of(self._api, self._said)

    @property
    def _said(self) -> Path:
        return self._home / "api.stderr"

    def start(self, name: str) -> None:
        """Start a worker by its device, or the API."""
        if name != API:
            self.fleet.start(name)
            return
        environment = {
            **os.environ,
            "XDG_DATA_HOME": str(self._home),
            "FUSEPLAN_DATABASE_URL": self.fleet.url,
            "FUSEPLAN_LOG_LEVEL": "error",
            "FUSEPLAN_PLANNER_PROCESSES": "1",
        }
        words = [sys.executable, "-c", COMMAND, "serve", "--no-worker"]
        with self._said.open("wb") as said:
            self._api = subprocess.Popen(
                [*words, "--port", "0"],
                cwd=ROOT,
                env=environment,
                stdout=said,
                stderr=said,
            )

    def kill(self, name: str) -> None:
        """End a process without a word."""
        if name != API:
            self.fleet.kill(name)
        elif self._api is not None:
            self._api.kill()
            self._api.wait()

    def close(self) -> None:
        """End all that runs."""
        for device in list(self.fleet.workers):
            self.fleet.kill(device)
        self.kill(API)
        self.database.close()

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Ask the API, again and again while it is down or without its database."""
        problem = ""
        for _ in range(round(PATIENCE_SECONDS / NAP_SECONDS)):
            try:
                answer = httpx.request(
                    method,
                    self.address + path,
                    timeout=PATIENCE_SECONDS,
                    trust_env=False,
                    **given,
                )
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return answer
                problem = answer.text
            except httpx.TransportError as error:
                problem = str(error)
            time.sleep(NAP_SECONDS)
        pytest.fail(problem)

    def submit(self, width: int) -> str:
        """Hand a model in to be tuned; gives the job that was accepted."""
        model = graph_onnx(width=width)
        answer = self.ask(
            "POST", "/v1/plans", content=model, params=TUNED, headers=ONNX
        )
        assert answer.status_code in {200, 202}, answer.text
        job = answer.json()["job"]
        return str(job) if job else self.last_job(answer.json()["plan_key"])

    def last_job(self, key: str) -> str:
        """The job that made the plan of a key, which was asked for again."""
        with self.database.read() as session:
            found = jobs.latest(session, key)
        assert found is not None
        return found.id


@contextmanager
def housed(url: str, home: Path) -> Iterator[House]:
    """An API and two workers that have started."""
    prepare(Settings(data_home=home, database_url=url))
    house = House(url, home)
    try:
        for name in (API, *WORKERS):
            house.start(name)
        until(lambda: offered(house.database) == len(WORKERS))
        yield house
    finally:
        house.close()


def is_over(database: Database, accepted: set[str]) -> bool:
    """Whether every job has ended."""
    return not any(find(database, job).active for job in accepted)


def check_all(house: House, accepted: set[str]) -> None:
    """Each job ended once, its plan is whole, and all that it names is served."""
    for job in accepted:
        check_ended_once(house.database, job)
        key = find(house.database, job).request.plan_key
        plan = house.ask("GET", f"/v1/plans/{key}?evidence=measured")
        assert plan.status_code == 200
        for kernel in plan.json()["kernels"]:
            for digest in kernel.get("sources", {}).values():
                blob = house.ask("GET", f"/v1/blobs/sha256/{digest}")
                assert blob.status_code == 200
    with house.database.read() as session:
        assert list(retention.faults(session)) == []


@pytest.mark.parametrize("fleet_url", KINDS, indirect=True)
def test_whatever_is_killed_nothing_accepted_is_lost(
    fleet_url: str, tmp_path: Path
) -> None:
    """API and workers die at any moment: each job ends once, and its plan is whole."""
    luck = random.Random(11)
    accepted: set[str] = set()
    with housed(fleet_url, tmp_path) as house:
        for cycle in range(CYCLES):
            accepted |= {house.submit(32 + 4 * cycle + n) for n in range(3)}
            time.sleep(luck.uniform(0.0, 1.0))
            victims = [API, luck.choice(WORKERS)] if cycle % 2 else [API]
            for victim in victims:
                house.kill(victim)
                house.start(victim)
        until(lambda: is_over(house.database, accepted))
        check_all(house, accepted)


async def get_measured(
    client: AsyncClient, number: int, got: list[tuple[str, str]]
) -> None:
    """Hand in a renamed copy of one of the graphs, and wait for its measured plan.

    However slow the machine is, nobody gives up while others get theirs.

    Args:
        client: what all of them share.
        number: which copy.
        got: key and digest of each plan that somebody got.
    """
    model = graph_onnx(prefix=f"s{number}_", width=32 + number % GRAPHS)
    told = await client.submit(Submit(model=model, **TUNED))
    assert f"s{number}_relu" in {n for names in told.names.values() for n in names}
    looks, seen = 0, len(got)
    while looks < round(PATIENCE_SECONDS / LOOK_SECONDS):
        plan = await client.lookup(told.plan_key, evidence="measured")
        if isinstance(plan, StoredPlan):
            got.append((plan.key, plan.digest))
            return
        assert not plan.error, plan
        await asyncio.sleep(LOOK_SECONDS)
        looks, seen = (looks + 1 if len(got) == seen else 0), len(got)
    pytest.fail(str(plan))


def test_many_submitters_of_few_graphs_share_jobs(
    fleet_url: str, tmp_path: Path
) -> None:
    """All at once: one job for each graph, and every submitter gets its plan.

    They share a hundred connections of our own client, which asks again where one is
    closed just as it is used.
    """

    async def crowd(address: str) -> None:
        async with AsyncClient(
            address,
            timeout_seconds=CROWD_SECONDS,
            lookup_budget_seconds=CROWD_SECONDS,
        ) as client:
            asked = (get_measured(client, n, got) for n in range(SUBMITTERS))
            await asyncio.gather(*asked)

    got: list[tuple[str, str]] = []
    with housed(fleet_url, tmp_path) as house:
        house.ask("GET", "/readyz")
        asyncio.run(crowd(house.address))
        assert len(got) == SUBMITTERS
        assert len(set(got)) == GRAPHS
        with house.database.read() as session:
            made = jobs.count(session)
        assert sum(made.values()) == made["succeeded"] == GRAPHS


def test_the_database_server_may_go_and_come_back(tmp_path: Path) -> None:
    """Meanwhile lookups say that it is gone; then every accepted job ends once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = own_server()
    url = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    try:
        with housed(url, tmp_path) as house:
            accepted = {house.submit(40 + n) for n in range(4)}
            for _ in range(3 if SOAK else 1):
                time.sleep(0.5)
                server.stop()
                with asking(house.address) as client:
                    gone = client.get("/v1/jobs")
                    assert gone.status_code == 503
                    assert gone.json()["code"] == "store-unavailable"
                    assert client.get("/livez").is_success
                time.sleep(2)
                server.start()
                accepted |= {house.submit(60 + len(accepted))}
            until(lambda: is_over(house.database, accepted))
            check_all(house, accepted)
    finally:
        server.cleanup()
