"""The client against a real service, and against none."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

import httpx
import pytest
import uvicorn
from fastapi.sse import _PING_INTERVAL

from service.api.plans import wait_seconds
from service.app import create_app
from service.client import (
    AsyncClient,
    Client,
    Event,
    Found,
    Miss,
    Refused,
    ServiceUnavailable,
    StoredPlan,
    Submit,
    parse_events,
    requests,
)
from service.client.budget import Budget
from service.settings import Settings
from service.store import Database
from tests.service.cli.conftest import softmax_graph
from tests.service.dashboard.samples import store_job
from tests.waiting import until

MODEL = json.dumps(softmax_graph()).encode()
DEAD = "http://127.0.0.1:9"
PATIENT = 240.0
"""Seconds for lookups that are to be answered, on a machine that stands still, too."""


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
        until(lambda: server.started or not thread.is_alive())
        assert server.started, "the service did not start"
        port = listener.getsockname()[1]
        yield Running(
            address=f"http://127.0.0.1:{port}", database=app.state.context.database
        )
        server.should_exit = True
        thread.join()


def test_a_submitted_plan_is_found_again(running: Running) -> None:
    """Submit, submit again, look up: one key, one digest, the second from the cache."""
    with Client(running.address, lookup_budget_seconds=PATIENT) as client:
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
    with Client(running.address, lookup_budget_seconds=PATIENT) as client:
        key = client.submit(Submit(model=MODEL)).plan_key
        assert client.lookup("0" * 64) == Miss(reason="unknown")
        assert client.lookup(key, evidence="measured") == Miss(reason="never_tuned")
        assert client.counts.summary == "fuseplan: 0 hits, 2 misses, 0 errors"


def test_many_plans_are_looked_up_at_once(running: Running) -> None:
    """More keys than one question takes; each once, counted as hit or miss."""

    async def ask(keys: list[str]) -> tuple[object, str]:
        async with AsyncClient(
            running.address, lookup_budget_seconds=PATIENT
        ) as client:
            return await client.lookup_many(keys), client.counts.summary

    with Client(running.address, lookup_budget_seconds=PATIENT) as client:
        answer = client.submit(Submit(model=MODEL))
        keys = [answer.plan_key, *(f"{number:064x}" for number in range(1000))]
        told = client.lookup_many([*keys, answer.plan_key])
        found = told[answer.plan_key]
        assert isinstance(found, Found)
        assert (found.digest, found.evidence) == (answer.digest, "analytic")
        assert found.kernels == len(answer.plan["kernels"])
        assert list(told) == keys
        assert told[keys[-1]] == Miss(reason="unknown")
        assert client.counts.summary == "fuseplan: 1 hits, 1000 misses, 0 errors"
        assert isinstance(client.blob(found.digest), bytes)
        assert client.blob("0" * 64) == Miss(reason="evicted")
        measured = client.lookup_many([answer.plan_key], evidence="measured")
        assert measured == {answer.plan_key: Miss(reason="never_tuned")}
    assert asyncio.run(ask(keys)) == (
        told,
        "fuseplan: 1 hits, 1000 misses, 0 errors",
    )


def test_threads_share_one_budget() -> None:
    """Whoever begins to spend reads the clock alone; the time counts once."""
    moments = iter((0.0, 3.0))
    together = threading.Barrier(2)
    met: list[bool] = []

    def clock() -> float:
        try:  # another thread that is here at the same time would end the wait
            together.wait(0.2)
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        return next(moments)

    budget = Budget(10.0, clock)
    inside = threading.Barrier(2)
    deadlines: list[float] = []

    def spend() -> None:
        with budget.spending() as deadline:
            deadlines.append(deadline)
            budget.count(Miss(reason="unknown"))
            inside.wait(60)

    threads = [threading.Thread(target=spend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == [False, False]
    assert deadlines == [10.0, 10.0]
    assert budget.counts.misses == 2


def test_refusals_carry_the_problem(running: Running) -> None:
    """The service's own code and text reach the caller."""
    with (
        Client(running.address, lookup_budget_seconds=PATIENT) as client,
        pytest.raises(Refused) as refusal,
    ):
        client.submit(Submit(model=MODEL, target="moon"))
    assert refusal.value.code == "unknown-target"
    assert refusal.value.status == 422


def test_events_come_in_order_and_resume(running: Running) -> None:
    """A finished job tells all its events; after one of them, only the rest."""
    job, key = store_job(running.database, name="9", trials=5)
    with Client(running.address, lookup_budget_seconds=PATIENT) as client:
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


def test_what_is_no_address_fails_open() -> None:
    """Keys and addresses that cannot be asked for: lookups miss, all else is told."""

    async def ask(address: str) -> list[object]:
        async with AsyncClient(address) as client:
            return [await client.lookup("abc\n"), await client.blob("abc\n")]

    def told(address: str) -> list[object]:
        with Client(address) as client:
            with pytest.raises(ServiceUnavailable):
                client.get("/abc\n")
            found = [client.lookup("abc\n"), client.blob("abc\n")]
            assert client.counts.errors == 1
            (many,) = client.lookup_many(["abc"]).values()
            return [*found, many]

    for address in (DEAD, f"http://{'a' * 64}.example", "http://127.0.0.1:65536"):
        for one in told(address) + asyncio.run(ask(address)):
            assert isinstance(one, Miss), address
            assert (one.reason, bool(one.error)) == ("error", True), address
    for kind in (Client, AsyncClient):
        with pytest.raises(ServiceUnavailable, match="port"):
            kind("http://plans:port")


def test_a_silent_service_costs_one_budget() -> None:
    """All lookups together wait as long as the budget, then no longer at all."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with Client(address, lookup_budget_seconds=0.3) as client:
            started = time.monotonic()
            found = [client.lookup(f"{i:064x}") for i in range(100)]
            assert time.monotonic() - started < 10.0  # each by itself would take 30
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
        async with AsyncClient(
            running.address, lookup_budget_seconds=PATIENT
        ) as client:
            answer = await client.submit(Submit(model=MODEL))
            found = await client.lookup(answer.plan_key)
            kinds = [event.kind async for event in client.events(job)]
            return answer.digest, found, kinds

    digest, found, kinds = asyncio.run(work())
    assert isinstance(found, StoredPlan)
    assert found.digest == digest
    assert kinds[-1] == "done"


def test_both_clients_can_do_the_same() -> None:
    """Every method of one is one of the other, with the same parameters."""

    def public(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: list(inspect.signature(one).parameters)
            for name, one in found
            if not name.startswith("_")
        }

    assert public(Client) == public(AsyncClient)
    begun = [inspect.signature(one.__init__) for one in (Client, AsyncClient)]
    assert begun[0] == begun[1]


def asked_of(said: BinaryIO) -> list[bytes]:
    """Read a request to the end of its body; gives its lines, none when none came.

    Whoever answered and hung up with part of it unread would reset the connection, and
    the answer might be lost on its way.
    """
    try:
        lines = list(itertools.takewhile(lambda line: line != b"\r\n", said))
        length = [n for n in lines if n.lower().startswith(b"content-length:")]
        said.read(int(length[0].partition(b":")[2]) if length else 0)
    except OSError:  # who asked is gone
        return []
    return lines


@contextmanager
def saying(
    *parts: bytes, pause_seconds: float = 0.0, stays: bool = False
) -> Iterator[str]:
    """Something that is no Fuseplan: it says the same to everybody, part by part.

    Args:
        parts: what it says.
        pause_seconds: how long it is silent after each of them.
        stays: whether it keeps the connection until its caller hangs up.
    """

    def answer(caller: socket.socket, said: BinaryIO) -> None:
        if asked_of(said):
            for part in parts:
                caller.sendall(part)
                time.sleep(pause_seconds)
            if stays:
                said.read()

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            caller.settimeout(PATIENT)
            with caller, caller.makefile("rb") as said, suppress(OSError):
                answer(caller, said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


class Forgetful:
    """A service that closes every connection as it is used a second time.

    Attributes:
        asked: the requests that it got, by method and path.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            with caller, caller.makefile("rb") as said:
                if path := self._next(said):
                    caller.sendall(self._answer(path))
                    self._next(said)

    def _next(self, said: BinaryIO) -> str:
        """Read a request to its end; gives its path."""
        lines = asked_of(said)
        if not lines:
            return ""
        method, path, _ = lines[0].decode().split()
        self.asked.append(f"{method} {path}")
        return path

    def _answer(self, path: str) -> bytes:
        if path.endswith("/events"):
            some = b"id: 7\nevent: trial\ndata: {}\n\n"
            return http(some, Content_Type="text/event-stream", Connection="keep-alive")
        if "lookup" in path:
            return http(b'{"found": [], "missing": []}', Connection="keep-alive")
        job = {"id": "1", "state": "running", "progress": None, "digest": "d"}
        more = {"plan_key": "k", "evidence": "analytic", "plan": {}}
        return http(json.dumps(job | more).encode(), Connection="keep-alive")


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    """A service that closes every connection as it is used a second time."""
    service = Forgetful()
    yield service
    service.close()


async def ask_all(client: AsyncClient) -> None:
    """What may be asked twice, each on a connection that was used before."""
    await client.get("/v1/devices")
    assert isinstance(await client.lookup("k"), StoredPlan)
    assert isinstance(await client.blob("d"), bytes)
    await client.lookup_many(["k"])
    assert (await client.submit(Submit(model=MODEL))).plan_key == "k"
    assert [event.id async for event in client.events("1")] == ["7"]
    assert (await client.job("1")).id == "1"
    with pytest.raises(ServiceUnavailable):
        await client.cancel("1")
    await client.job("1")
    with pytest.raises(ServiceUnavailable):
        await client.import_bundle(b"")


def test_a_connection_that_was_closed_in_between_costs_no_answer(
    forgetful: Forgetful,
) -> None:
    """Whatever may be asked twice is; a cancel, and a bundle handed in, are not.

    A kept connection may be closed just as it is used again, by whoever.
    """
    with Client(forgetful.address, lookup_budget_seconds=60) as client:
        client.get("/v1/devices")
        assert isinstance(client.lookup("k"), StoredPlan)
        assert isinstance(client.blob("d"), bytes)
        client.lookup_many(["k"])
        assert client.submit(Submit(model=MODEL)).plan_key == "k"
        assert [event.id for event in client.events("1")] == ["7"]
        assert client.job("1").id == "1"
        with pytest.raises(ServiceUnavailable):
            client.cancel("1")
        client.job("1")
        with pytest.raises(ServiceUnavailable):
            client.import_bundle(b"")
    first, forgetful.asked = forgetful.asked, []

    async def again() -> None:
        async with AsyncClient(forgetful.address, lookup_budget_seconds=60) as client:
            await ask_all(client)

    asyncio.run(again())
    assert first == forgetful.asked
    assert len(first) == 16
    assert [one for one in first if first.count(one) == 1] == [
        "GET /v1/devices",
        "DELETE /v1/jobs/1",
        "POST /v1/bundles",
    ]


def test_a_stream_that_is_cut_off_goes_on() -> None:
    """Once, behind the last event that came: none is told twice, none is left out."""

    def part(number: int, *, is_last: bool) -> bytes:
        told = f"id: {number}\nevent: trial\ndata: {{}}\n\n".encode()
        whole = http(told + b" " * (not is_last), Content_Type="text/event-stream")
        return whole if is_last else whole.removesuffix(b" ")

    def serve(listener: socket.socket) -> None:
        for is_last in (False, True, False, False):
            caller, _ = listener.accept()
            with caller, caller.makefile("rb") as said:
                lines = [line.lower().strip() for line in asked_of(said)]
                assert (b"last-event-id: 1" in lines) is (heard[-1:] == [1])
                heard.append(1 if len(heard) % 2 == 0 else 2)
                caller.sendall(part(heard[-1], is_last=is_last))

    heard: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            assert [event.id for event in client.events("1")] == ["1", "2"]
            with pytest.raises(ServiceUnavailable):  # it is cut off again
                list(client.events("1"))
            assert heard == [1, 2, 1, 2]
    thread.join()


def http(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """An answer with a JSON body, the last of its connection unless a header keeps it.

    A server that hangs up without saying so leaves it to the moment whether the next
    request goes into the dead connection, and so how many are sent.
    """
    told = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    told["Connection"] = "close"
    lines = [f"{n.replace('_', '-')}: {v}" for n, v in (told | headers).items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body


STRANGE = {
    "a list": http(b"[1, 2]"),
    "a number": http(b"7"),
    "no JSON": http(b"<html>"),
    "nested too deep": http(b"[" * 100_000),
    "another 404": http(b"[]", "404 Not Found"),
    "a 404 without a reason": http(b"{}", "404 Not Found"),
    "a fault": http(b"{}", "500 Internal Server Error"),
    "bad compression": http(b"no gzip", Content_Encoding="gzip"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("what", STRANGE)
def test_strangers_break_no_build(what: str) -> None:
    """Whatever answers there, a lookup is an error that is counted and no more.

    What a build cannot do without says that this is no service of ours.
    """

    async def ask(address: str) -> tuple[object, int]:
        async with AsyncClient(address) as client:
            found = await client.lookup("0" * 64)
            blobs.append(await client.blob("0" * 64))
            with pytest.raises((ServiceUnavailable, Refused)):
                await client.job("1")
            return found, client.counts.errors

    blobs: list[bytes | Miss] = []
    with saying(STRANGE[what]) as address:
        with Client(address) as client:
            blobs.append(client.blob("0" * 64))
            found, errors = client.lookup("0" * 64), client.counts.errors
            (many,) = client.lookup_many(["0" * 64]).values()
            assert isinstance(many, Miss)
            assert many.reason == "error"
            with pytest.raises((ServiceUnavailable, Refused)):
                client.submit(Submit(model=MODEL))
        answers = [(found, errors), asyncio.run(ask(address))]
    for one, counted in answers:
        assert isinstance(one, Miss)
        assert (one.reason, counted) == ("error", 1)
        assert one.error
    for blob in blobs:
        if isinstance(blob, Miss):
            assert blob.reason == "error"
            assert blob.error
        else:  # whether bytes are those of the digest, a build looks for itself
            assert STRANGE[what].startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_answer_of_another_version_is_told() -> None:
    """A body that lacks what this client reads is no traceback."""
    with saying(http(b'{"digest": "x"}')) as address, Client(address) as client:
        with pytest.raises(ServiceUnavailable, match="plan_key"):
            client.submit(Submit(model=MODEL))
        with pytest.raises(ServiceUnavailable, match="'id'"):
            client.job("1")


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_dripping_answer_costs_one_budget(part: str) -> None:
    """Bytes that come one by one keep neither client for longer than the budget.

    Lookups that run side by side spend the time once, not each for itself.
    """

    async def ask(address: str) -> list[object]:
        async with AsyncClient(address, lookup_budget_seconds=0.4) as client:
            return list(await asyncio.gather(*(client.lookup(k) for k in keys)))

    keys = [f"{number:064x}" for number in range(30)]
    whole = http(b"{}" + b" " * 300)
    drips = whole if part == "head" else whole[whole.index(b"{") :]
    slow = [whole.removesuffix(drips), *(bytes([one]) for one in drips)]
    with saying(*slow, pause_seconds=0.05) as address:
        started = time.monotonic()
        with Client(address, lookup_budget_seconds=0.4) as client:
            found: list[object] = [client.lookup(key) for key in keys]
            assert time.monotonic() - started < 5.0  # or 12, and each answer takes 15
        started = time.monotonic()
        found += asyncio.run(ask(address))
        assert time.monotonic() - started < 5.0
    assert all(isinstance(one, Miss) and one.reason == "error" for one in found)


def test_an_answer_that_is_held_back_is_waited_for() -> None:
    """Part of a second is asked for as a whole one, and does not count as silence."""

    async def ask(address: str) -> bool:
        async with AsyncClient(address, timeout_seconds=0.3) as client:
            return (await client.submit(asked)).cached

    part = Submit(model=MODEL, wait_seconds=0.2)
    assert part.request()["headers"]["Prefer"] == "wait=1"
    assert requests.submit(part, 0.3)["timeout"] == 1.3
    assert wait_seconds("wait=1") == 1
    body = {"plan_key": "k", "digest": "d", "state": "succeeded", "plan": {}}
    late = http(json.dumps({**body, "evidence": "analytic"}).encode())
    asked = Submit(model=MODEL, wait_seconds=30)
    with saying(b"", late, pause_seconds=0.6) as address:
        with Client(address, timeout_seconds=0.3) as client:
            assert not client.submit(asked).cached
        assert not asyncio.run(ask(address))


@pytest.mark.parametrize(
    "model",
    [b"{", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\xff"}', b'{"a":' + b"[" * 10**5],
    ids=["cut", "NaN", "infinite", "no UTF-8", "too deep"],
)
def test_what_is_no_graph_is_refused(model: bytes) -> None:
    """A model that is no JSON goes nowhere, and is told as the service would."""

    async def ask() -> None:
        async with AsyncClient(DEAD) as client:
            await client.submit(Submit(model=model))

    with Client(DEAD) as client, pytest.raises(Refused, match="not JSON") as refusal:
        client.submit(Submit(model=model))
    assert (refusal.value.code, refusal.value.status) == ("malformed-body", 400)
    with pytest.raises(Refused, match="not JSON"):
        asyncio.run(ask())


def test_a_wait_has_an_end() -> None:
    """What is no number of seconds is refused before anything is sent."""
    for wait in (float("nan"), float("inf")):
        with Client(DEAD) as client, pytest.raises(Refused, match="wait_seconds"):
            client.submit(Submit(model=MODEL, wait_seconds=wait))


def test_events_of_a_vanished_host_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without a sign of life for several pings is an error, not a wait."""

    async def watch(address: str) -> list[Event]:
        async with AsyncClient(address) as client:
            return [event async for event in client.events("1")]

    told = requests.STREAM.read
    assert told is not None
    assert 3 * _PING_INTERVAL <= told <= 60
    monkeypatch.setattr(requests, "STREAM", httpx.Timeout(10.0, read=0.1))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: here\n\n"
    with saying(head, stays=True) as address:
        with Client(address) as client, pytest.raises(ServiceUnavailable, match="time"):
            list(client.events("1"))
        with pytest.raises(ServiceUnavailable, match="Timeout"):
            asyncio.run(watch(address))


def test_events_of_a_stranger_are_told() -> None:
    """Data that is no JSON says that this is no service of ours."""

    async def watch(address: str) -> list[Event]:
        async with AsyncClient(address) as client:
            return [event async for event in client.events("1")]

    with saying(http(b"data: x\n\n", Content_Type="text/event-stream")) as address:
        with Client(address) as client, pytest.raises(ServiceUnavailable, match="JSON"):
            list(client.events("1"))
        with pytest.raises(ServiceUnavailable, match="JSON"):
            asyncio.run(watch(address))


def test_events_of_an_unknown_job_are_refused(running: Running) -> None:
    """A stream that there is not is an error, not an empty one; a dead service too."""

    async def watch(address: str) -> list[Event]:
        async with AsyncClient(address) as client:
            return [event async for event in client.events("none")]

    with (
        Client(running.address, lookup_budget_seconds=PATIENT) as client,
        pytest.raises(Refused, match="none"),
    ):
        list(client.events("none"))
    with pytest.raises(Refused, match="none"):
        asyncio.run(watch(running.address))
    with pytest.raises(ServiceUnavailable):
        asyncio.run(watch(DEAD))


def test_a_submission_says_all_that_the_service_reads() -> None:
    """In the body beside JSON, in the query beside ONNX; the rest are headers."""
    told = {"priority": 5, "cache": "cold", "partitions": 2, "budget_seconds": 3.0}
    asked = Submit(
        model=MODEL,
        repeat_key="again",
        wait_seconds=2,
        priority=5,
        cache="cold",
        partitions=2,
        budget_seconds=3.0,
    )
    request = asked.request()
    assert told.items() <= json.loads(request["content"]).items()
    assert request["headers"] == {
        "Prefer": "wait=2",
        "Idempotency-Key": "again",
        "Content-Type": "application/json",
    }
    onnx = Submit(model=b"\x08\x07", priority=5, options={"launch_mode": "graph"})
    assert onnx.request()["params"]["priority"] == 5
    assert json.loads(onnx.request()["params"]["options"]) == {"launch_mode": "graph"}
