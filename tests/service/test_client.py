"""The client against a real service, and against none."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn

from service.app import create_app
from service.client import (
    AsyncClient,
    Client,
    Event,
    Miss,
    Refused,
    ServiceUnavailable,
    StoredPlan,
    Submit,
    parse_events,
)
from service.settings import Settings
from service.store import Database
from tests.service.cli.conftest import softmax_graph
from tests.service.dashboard.samples import store_job

MODEL = json.dumps(softmax_graph()).encode()
DEAD = "http://127.0.0.1:9"


@dataclass(frozen=True, kw_only=True)
class Running:
    """A service on a real socket."""

    address: str
    database: Database


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without a worker."""
    folder = tmp_path_factory.mktemp("client")
    app = create_app(Settings(data_home=folder, worker=False, event_poll_seconds=0.02))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            time.sleep(0.02)
        port = listener.getsockname()[1]
        yield Running(
            address=f"http://127.0.0.1:{port}", database=app.state.context.database
        )
        server.should_exit = True
        thread.join()


def test_a_submitted_plan_is_found_again(running: Running) -> None:
    """Submit, submit again, look up: one key, one digest, the second from the cache."""
    with Client(running.address) as client:
        first = client.submit(Submit(model=MODEL, title="softmax"))
        again = client.submit(Submit(model=MODEL))
        found = client.lookup(first.plan_key)
    assert again.cached
    assert (first.plan_key, first.digest) == (again.plan_key, again.digest)
    assert isinstance(found, StoredPlan)
    assert found.digest == first.digest
    assert found.body == first.plan
    assert first.names["n0"]


def test_a_miss_has_the_services_reason(running: Running) -> None:
    """Unknown keys, and plans without the evidence asked for, are misses."""
    with Client(running.address) as client:
        key = client.submit(Submit(model=MODEL)).plan_key
        assert client.lookup("0" * 64) == Miss(reason="unknown")
        assert client.lookup(key, evidence="measured") == Miss(reason="never_tuned")
        assert client.counts.summary == "fuseplan: 0 hits, 2 misses, 0 errors"


def test_refusals_carry_the_problem(running: Running) -> None:
    """The service's own code and text reach the caller."""
    with Client(running.address) as client, pytest.raises(Refused) as refusal:
        client.submit(Submit(model=MODEL, target="moon"))
    assert refusal.value.code == "unknown-target"
    assert refusal.value.status == 422


def test_events_come_in_order_and_resume(running: Running) -> None:
    """A finished job tells all its events; after one of them, only the rest."""
    job, key = store_job(running.database, name="9", trials=5)
    with Client(running.address) as client:
        events = list(client.events(job))
        rest = list(client.events(job, after=events[3].id))
        assert client.job(job).is_over
        assert client.job(job).plan_key == key
    assert [event.kind for event in events[:3]] == ["state", "state", "trial"]
    assert events[-1].kind == "done"
    assert rest == events[4:]


def test_a_dead_service_fails_open() -> None:
    """A lookup never raises; anything else says that nobody answers."""
    with Client(DEAD) as client:
        found = client.lookup("0" * 64)
        assert isinstance(found, Miss)
        assert found.reason == "error"
        assert client.counts.errors == 1
        with pytest.raises(ServiceUnavailable):
            client.submit(Submit(model=MODEL))


def test_a_silent_service_costs_one_budget() -> None:
    """All lookups together wait as long as the budget, then no longer at all."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with Client(address, lookup_budget_seconds=0.3) as client:
            started = time.monotonic()
            found = [client.lookup(f"{i:064x}") for i in range(20)]
            assert time.monotonic() - started < 2.0
    assert all(isinstance(one, Miss) and one.error for one in found)


def test_events_keep_the_standard() -> None:
    """Comments are skipped, data lines joined, an event without data dropped."""
    lines = [": hello", "id: 7", "event: trial", "data: {", 'data: "a": 1}', "", ""]
    lines += ["event: empty", "", "data:[2]", ""]
    assert list(parse_events(lines)) == [
        Event(id="7", kind="trial", data={"a": 1}),
        Event(id="7", kind="message", data=[2]),  # type: ignore[arg-type]
    ]


def test_the_async_client_does_the_same(running: Running) -> None:
    """Submit, look up, watch: as in the synchronous client."""
    job, _ = store_job(running.database, name="8", trials=3)

    async def work() -> tuple[object, object, list[str]]:
        async with AsyncClient(running.address) as client:
            answer = await client.submit(Submit(model=MODEL))
            found = await client.lookup(answer.plan_key)
            kinds = [event.kind async for event in client.events(job)]
            return answer.digest, found, kinds

    digest, found, kinds = asyncio.run(work())
    assert isinstance(found, StoredPlan)
    assert found.digest == digest
    assert kinds[-1] == "done"
