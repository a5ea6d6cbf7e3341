"""How much of a bare handler's speed is left in a lookup, and at how many plans.

    python -m benchmarks.service --seconds 5 --plans 1000000
    python -m benchmarks.service --parts busy

Needs `wrk`. In one run, in turns, `wrk` asks the service and a bare FastAPI handler
that answers with the same status, headers and bytes: one process each, uvloop and
httptools, token check, request id and metrics on in the service, its log at `warning`.
Before all that is compared comes a run that is not counted.
Then a service with a thousand plans is compared with one that has many: lookups of
one key, of changing keys, and a thousand keys in one request. In the end workers tune
on the same machine while `wrk` asks. `--parts` names some of these three, `--database
URL` gives a PostgreSQL beside the SQLite that is always measured, `--only` leaves one
of them out. A line ends with `ok` or `MISSED`, by the targets that are constants here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy import URL, Connection, create_engine, event, make_url, text

from service.store import upgrade

ROUNDS: Final = 3
WARM_SECONDS: Final = 1.0
"""Of a run before the others that is not counted."""
CONNECTIONS: Final = 16
TOKEN: Final = "benchmark"  # noqa: S105 - of a service that lives for a minute
BATCH: Final = 1000
SPREAD: Final = 1000
"""Keys that the lookups of changing keys go through."""
FEW: Final = 1000

LEAST_SHARE: Final[Mapping[str, float]] = {"200": 0.70, "304": 0.70, "blob": 0.85}
MOST_P99_SECONDS: Final = 0.015
MOST_BATCH_SECONDS: Final = 0.1
MOST_GROWTH: Final = 1.3
MOST_SLOWDOWN: Final = 2.0
"""Of the 99th percentile, while workers tune on the machine."""

PARTS: Final = ("bare", "growth", "busy")
SMALL: Final[Sequence[str]] = ("null:0", "null:1", "cpu:0")
WHOLE: Final[Sequence[str]] = ("cpu",)
"""Workers beside the service: some on a part of the machine, one on all of it."""
JOBS: Final = 80
"""Jobs that wait for them: more than they do while `wrk` asks."""

_MODEL: Final = Path(__file__).parents[1] / "examples" / "encoder.onnx"
_SERVE: Final = "import sys; from service.cli import main; sys.exit(main())"
_UNITS: Final[Mapping[str, float]] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}

_ROWS: Final = """
INSERT INTO graphs (hash, title, nodes, tensors, created_at)
  VALUES (:graph, 'synthetic', 1, 2, '2026-01-01 00:00:00');
INSERT INTO blobs (digest, media_type, size_bytes, public, created_at, content)
  SELECT digest, 'application/vnd.fuseplan.plan+json', 2, true, '2026-01-01 00:00:00',
    {content} FROM synthetic ORDER BY digest;
INSERT INTO plans (key, graph_hash, target, parts, options, created_at)
  SELECT key, :graph, 'h100-sxm', '{{}}', '{{}}', '2026-01-01 00:00:00' FROM synthetic
    ORDER BY key;
INSERT INTO plan_revisions (id, key, revision, evidence, digest, seconds,
    objective_seconds, bound_seconds, kernels, job, created_at)
  SELECT number, key, 1, 'measured', digest, 0.1, 0.1, 0.1, 1, NULL,
    '2026-01-01 00:00:00' FROM synthetic ORDER BY number;
INSERT INTO plan_pointers (key, evidence, revision_id)
  SELECT key, 'measured', number FROM synthetic ORDER BY key;
DROP TABLE synthetic;
"""
_NUMBERS: Final[Mapping[str, str]] = {
    "sqlite": "WITH RECURSIVE n(number) AS (SELECT {first} UNION ALL SELECT number + 1"
    " FROM n WHERE number < {last}) SELECT number, hashed('key ' || number) AS key,"
    " hashed('body ' || number) AS digest FROM n",
    "postgresql": "SELECT number, encode(sha256(convert_to('key ' || number, 'UTF8')),"
    " 'hex') AS key, encode(sha256(convert_to('body ' || number, 'UTF8')), 'hex') AS"
    " digest FROM generate_series({first}, {last}) AS number",
}
_UNCHECKED: Final = """
SELECT set_config('session_replication_role', 'replica', true) FROM pg_roles
  WHERE rolname = current_user AND rolsuper
"""
"""Rows are not looked up in the tables that they refer to, which takes longest."""

_FIRST: Final = 1_000_000
"""Ids of the rows that are made up begin here, behind those of real plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What `wrk` saw."""

    per_second: float
    p99_seconds: float


def key_of(number: int) -> str:
    """Key of a plan that is made up."""
    return hashlib.sha256(f"key {number}".encode()).hexdigest()


def fill(url: str, plans: int) -> None:
    """Store so many plans without their work: rows as the service has them."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _quick)
    last = _FIRST + plans - 1
    numbers = _NUMBERS[engine.dialect.name].format(first=_FIRST, last=last)
    content = {"sqlite": "x'7b7d'", "postgresql": "'{}'::bytea"}[engine.dialect.name]
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(_UNCHECKED))
        connection.execute(text(f"CREATE TEMPORARY TABLE synthetic AS {numbers}"))
        for statement in _ROWS.format(content=content).split(";\n"):
            if statement.strip():
                _execute(connection, statement)
    # What the server does by itself a minute later.
    after = {"sqlite": "ANALYZE", "postgresql": "VACUUM ANALYZE"}[engine.dialect.name]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(after))
    engine.dispose()


def _execute(connection: Connection, statement: str) -> None:
    given = {"graph": "b" * 64} if ":graph" in statement else {}
    connection.execute(text(statement), given)


def _quick(connection: Any, _record: object) -> None:
    """What filling needs: the hash of a text, room for all indexes, and no waiting."""
    connection.create_function(
        "hashed", 1, lambda value: hashlib.sha256(value.encode()).hexdigest()
    )
    connection.execute("PRAGMA cache_size = -1000000")  # KiB
    connection.execute("PRAGMA synchronous = OFF")  # it is thrown away afterwards


@contextmanager
def process(words: Sequence[str], ready: str, **variables: str) -> Iterator[None]:
    """A process for as long as the block lasts; a server, once it answers `ready`."""
    started = subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if ready:
            _wait(started, ready)
        yield
    finally:
        started.terminate()
        started.wait(30)


def _wait(started: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(600):
        if started.poll() is not None:
            break
        try:
            if httpx.get(url, trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"nothing answers at {url}")


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def service(url: str, folder: str) -> Iterator[httpx.Client]:
    """The service on a database; nobody tunes beside it."""
    port = free_port()
    words = ["-c", _SERVE, "serve", "--port", str(port), "--no-worker"]
    variables = {
        "FUSEPLAN_DATABASE_URL": url,
        "FUSEPLAN_ADMIN_TOKEN": TOKEN,
        "FUSEPLAN_LOG_LEVEL": "warning",
        "XDG_DATA_HOME": folder,
    }
    address = f"http://127.0.0.1:{port}"
    with (
        process(words, f"{address}/readyz", **variables),
        httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=120,
            trust_env=False,
        ) as client,
    ):
        yield client


@contextmanager
def bare(answers: Mapping[str, httpx.Response], folder: str) -> Iterator[str]:
    """A handler that gives these answers, by name; its address."""
    told = {
        name: {
            "status": answer.status_code,
            "headers": [
                (n, v) for n, v in answer.headers.items() if n not in {"date", "server"}
            ],
            "content": answer.content.hex(),
        }
        for name, answer in answers.items()
    }
    path = Path(folder) / "answers.json"
    path.write_text(json.dumps(told))
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    words = ["-m", "benchmarks.bare", str(path), str(port)]
    with process(words, f"{address}/ready"):
        yield address


def wrk(url: str, seconds: float, *headers: str, script: str = "") -> Load:
    """Ask a URL from as many connections as there may be, as fast as it answers.

    Raises:
        SystemExit: an answer was an error.
    """
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s"]
    words += ["--latency", *(word for one in headers for word in ("-H", one))]
    words += ["-s", script] if script else []
    told = subprocess.run([*words, url], capture_output=True, text=True, check=True)
    if "Non-2xx" in told.stdout or "Socket errors" in told.stdout:
        raise SystemExit(f"{url}: {told.stdout}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", told.stdout)
    late = re.search(r"99%\s+([\d.]+)(us|ms|s|m)\b", told.stdout)
    if rate is None or late is None:
        raise SystemExit(f"wrk said: {told.stdout}")
    return Load(per_second=float(rate[1]), p99_seconds=float(late[1]) * _UNITS[late[2]])


def verdict(*, good: bool) -> str:
    """How a line ends."""
    return "ok" if good else "MISSED"


def against_bare(client: httpx.Client, folder: str, seconds: float) -> None:
    """Print what is left of a bare handler's speed, for each kind of lookup."""
    answer = client.post(
        "/v1/plans",
        params={"target": "sm_90"},
        content=_MODEL.read_bytes(),
        headers={"Content-Type": "application/onnx"},
    ).json()
    plan, blob = f"/v1/plans/{answer['plan_key']}", answer["plan"]["kernels"][0]
    source = f"/v1/blobs/sha256/{next(iter(blob['sources'].values()))}"
    held = {"If-None-Match": f'"{answer["digest"]}"'}
    asked = {"200": (plan, {}), "304": (plan, held), "blob": (source, {})}
    answers = {n: client.get(path, headers=h) for n, (path, h) in asked.items()}
    token = f"Authorization: Bearer {TOKEN}"
    print("\n| lookup | service | bare | share | p99 | bare p99 | |")
    print("|---|---|---|---|---|---|---|")
    with bare(answers, folder) as other:
        for name, (path, headers) in asked.items():
            sent = [token, *(f"{n}: {v}" for n, v in headers.items())]
            urls = (f"{other}/{name}", f"{client.base_url}{path}")
            for url in urls:
                wrk(url, WARM_SECONDS, *sent)
            theirs, ours = [], []
            for _ in range(ROUNDS):
                for url, loads in zip(urls, (theirs, ours), strict=True):
                    loads.append(wrk(url, seconds, *sent))
            _compare(name, ours, theirs)


def _compare(name: str, ours: Sequence[Load], theirs: Sequence[Load]) -> None:
    pairs = zip(ours, theirs, strict=True)
    share = statistics.median(a.per_second / b.per_second for a, b in pairs)
    rate = statistics.median(one.per_second for one in ours)
    bare_rate = statistics.median(one.per_second for one in theirs)
    p99 = statistics.median(one.p99_seconds for one in ours)
    bare_p99 = statistics.median(one.p99_seconds for one in theirs)
    good = share >= LEAST_SHARE[name] and p99 < MOST_P99_SECONDS
    print(
        f"| {name} | {rate:.0f}/s | {bare_rate:.0f}/s | {share:.0%} "
        f"| {1e3 * p99:.1f} ms | {1e3 * bare_p99:.1f} ms | {verdict(good=good)} |",
        flush=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A service with plans that are made up, and what is asked of it.

    Attributes:
        keys: those that the lookups of changing keys go through.
        script: of `wrk`, for these lookups.
    """

    client: httpx.Client
    keys: Sequence[str]
    script: str


def asked_of(client: httpx.Client, plans: int, folder: str) -> Asked:
    """What is asked of a service with so many plans; files go to a folder."""
    step = max(1, plans // SPREAD)
    keys = [key_of(_FIRST + place * step) for place in range(min(SPREAD, plans))]
    script = Path(folder) / f"spread{plans}.lua"
    listed = ",".join(f'"/v1/plans/{key}"' for key in keys)
    script.write_text(
        f"local paths = {{{listed}}}\nlocal at = 0\n"
        "request = function()\n  at = at % #paths + 1\n"
        "  return wrk.format('GET', paths[at])\nend\n"
    )
    return Asked(client=client, keys=keys, script=str(script))


def _one_key(asked: Asked, seconds: float) -> float:
    url = f"{asked.client.base_url}/v1/plans/{asked.keys[0]}"
    return 1 / wrk(url, seconds, f"Authorization: Bearer {TOKEN}").per_second


def _changing_keys(asked: Asked, seconds: float) -> float:
    url, token = str(asked.client.base_url), f"Authorization: Bearer {TOKEN}"
    return 1 / wrk(url, seconds, token, script=asked.script).per_second


def _batch(asked: Asked, _seconds: float) -> float:
    body = {"keys": asked.keys[:BATCH], "evidence": "measured"}
    times = []
    for _ in range(10):
        start = time.perf_counter()
        found = asked.client.post("/v1/plans:lookup", json=body)
        times.append(time.perf_counter() - start)
        if len(found.json()["found"]) != len(body["keys"]):
            raise SystemExit("a plan that is stored was not found")
    return statistics.median(times)


_QUESTIONS: Final[Mapping[str, Callable[[Asked, float], float]]] = {
    "one key": _one_key,
    "changing keys": _changing_keys,
    "1000 keys": _batch,
}
"""What is asked, each as what gives the seconds of one answer."""


def growth(
    clients: Sequence[httpx.Client], plans: int, folder: str, seconds: float
) -> None:
    """Print how much slower lookups are with many plans than with few."""
    few, lots = (
        asked_of(client, count, folder)
        for client, count in zip(clients, (FEW, plans), strict=True)
    )
    print(f"\n| asked | {FEW} plans | {plans} plans | ratio | |\n|---|---|---|---|---|")
    for name, question in _QUESTIONS.items():
        for one in (few, lots):
            question(one, WARM_SECONDS)
        pairs = [
            (question(few, seconds), question(lots, seconds)) for _ in range(ROUNDS)
        ]
        ratio = statistics.median(b / a for a, b in pairs)
        least, most = (statistics.median(column) for column in zip(*pairs, strict=True))
        good = ratio <= MOST_GROWTH
        good = good and (name != "1000 keys" or most < MOST_BATCH_SECONDS)
        print(
            f"| {name} | {1e3 * least:.2f} ms | {1e3 * most:.2f} ms "
            f"| {ratio:.2f} | {verdict(good=good)} |",
            flush=True,
        )


def layers(number: int) -> dict[str, object]:
    """Graph JSON of a network whose plan takes a while to tune; one of many."""
    width, depth = 64 + 8 * number, 6
    names = ["x", *(f"t{place}" for place in range(3 * depth))]
    ops = ("MatMul", "Add", "Relu")
    shapes = {0: [width, width], 1: [width]}
    nodes = [
        {
            "name": names[place + 1],
            "op": ops[place % 3],
            "domain": "",
            "inputs": [names[place], *([f"w{place}"] if place % 3 in shapes else [])],
            "outputs": [names[place + 1]],
            "attributes": {},
        }
        for place in range(3 * depth)
    ]
    return {
        "schema": "fuseplan.graph/1",
        "opset": {"": 18},
        "inputs": [{"name": "x", "dtype": "f32", "shape": [64, width]}],
        "weights": [
            {"name": f"w{place}", "dtype": "f32", "shape": shapes[place % 3]}
            for place in range(3 * depth)
            if place % 3 in shapes
        ],
        "constants": [],
        "nodes": nodes,
        "outputs": [names[-1]],
    }


@contextmanager
def workers(
    client: httpx.Client, url: str, folder: str, devices: Sequence[str]
) -> Iterator[None]:
    """Workers that tune for as long as the block lasts.

    Raises:
        SystemExit: they do not all tune from its begin to its end.
    """
    variables = {"FUSEPLAN_DATABASE_URL": url, "XDG_DATA_HOME": folder}
    with ExitStack() as stack:
        for device in devices:
            words = ["-c", _SERVE, "worker", "--device", device]
            stack.enter_context(process(words, "", **variables))
        _until(lambda: _alive(client) >= len(devices))
        for number in range(JOBS):
            body = {"graph": layers(number), "target": "cpu", "mode": "tuned"}
            client.post("/v1/plans", json=body).raise_for_status()
        _until(lambda: len(_jobs(client, "running")) == len(devices))
        yield
        # One that has just ended a job has none for a moment.
        if not _jobs(client, "queued") and len(_jobs(client, "running")) < len(devices):
            raise SystemExit("a worker had nothing to do any more")
        for state in ("queued", "running"):
            for job in _jobs(client, state):
                client.delete(f"/v1/jobs/{job['id']}")


def _alive(client: httpx.Client) -> int:
    told = client.get("/v1/devices").json()["devices"]
    return len({one["worker"] for device in told for one in device["workers"]})


def _jobs(client: httpx.Client, state: str) -> Sequence[Mapping[str, Any]]:
    asked = {"state": state, "limit": JOBS}
    found: Sequence[Mapping[str, Any]] = client.get("/v1/jobs", params=asked).json()[
        "jobs"
    ]
    return found


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise SystemExit("the workers do not begin")


def busy(client: httpx.Client, url: str, folder: str, seconds: float) -> None:
    """Print how much later answers come while workers tune on the machine.

    The bare handler, asked in turns, tells what the machine alone makes of it.
    """
    path = f"/v1/plans/{key_of(_FIRST)}"
    print("\n| workers | p99 idle | meanwhile | ratio | bare idle | meanwhile | |")
    print("|---|---|---|---|---|---|---|")
    with bare({"200": client.get(path)}, folder) as other:
        urls = (f"{client.base_url}{path}", f"{other}/200")
        for devices in (SMALL, WHOLE):
            idle, bare_idle = _late(urls, seconds)
            with workers(client, url, folder, devices):
                meanwhile, bare_meanwhile = _late(urls, seconds)
            # What a worker does that has the whole machine is told, not judged.
            good = meanwhile / idle <= MOST_SLOWDOWN
            judged = verdict(good=good) if devices == SMALL else ""
            print(
                f"| {', '.join(devices)} | {1e3 * idle:.1f} ms "
                f"| {1e3 * meanwhile:.1f} ms | {meanwhile / idle:.2f} "
                f"| {1e3 * bare_idle:.1f} ms | {1e3 * bare_meanwhile:.1f} ms "
                f"| {judged} |",
                flush=True,
            )


def _late(urls: Sequence[str], seconds: float) -> Sequence[float]:
    """The 99th percentile of each of these, asked in turns, in seconds."""
    token = f"Authorization: Bearer {TOKEN}"
    for url in urls:
        wrk(url, WARM_SECONDS, token)
    rounds = [
        [wrk(url, seconds, token).p99_seconds for url in urls] for _ in range(ROUNDS)
    ]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def measure(
    kind: str, urls: Sequence[str], seconds: float, plans: int, parts: Sequence[str]
) -> None:
    """Print everything about one kind of database.

    Args:
        kind: what it is called.
        urls: two empty databases.
        seconds: of each run of `wrk`.
        plans: how many the second one holds.
        parts: what is measured, of `PARTS`.
    """
    print(f"\n## {kind}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        counts = (FEW, plans) if "growth" in parts else (FEW,)
        clients = []
        for url, count in zip(urls, counts, strict=False):
            upgrade(url)
            began = time.perf_counter()
            fill(url, count)
            print(f"\n{count} plans stored in {time.perf_counter() - began:.0f} s")
            clients.append(stack.enter_context(service(url, folder)))
        if "bare" in parts:
            against_bare(clients[0], folder, seconds)
        if "growth" in parts:
            growth(clients, plans, folder, seconds)
        if "busy" in parts:
            busy(clients[0], urls[0], folder, seconds)


def databases(server: str) -> Iterator[str]:
    """Two new databases on a PostgreSQL server."""
    admin = make_url(server).set(drivername="postgresql+psycopg")
    engine = create_engine(admin, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for name in ("fuseplan_few", "fuseplan_many"):
            connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            connection.execute(text(f"CREATE DATABASE {name}"))
            yield _shown(admin.set(database=name))
    engine.dispose()


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument(
        "--plans", type=int, default=1_000_000, help="of the larger one"
    )
    parser.add_argument("--database", default="", help="address of a PostgreSQL server")
    parser.add_argument("--only", choices=("SQLite", "PostgreSQL"), help="a database")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args(arguments)
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed")
    asked = (options.seconds, options.plans, options.parts)
    if options.only != "PostgreSQL":
        with tempfile.TemporaryDirectory() as folder:
            urls = [f"sqlite:///{folder}/{name}.db" for name in ("few", "many")]
            measure("SQLite", urls, *asked)
    if options.database and options.only != "SQLite":
        measure("PostgreSQL", list(databases(options.database)), *asked)


if __name__ == "__main__":
    main()
