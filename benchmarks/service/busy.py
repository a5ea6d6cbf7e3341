"""How much later answers come while workers tune on the machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, Final

import httpx

from benchmarks.service.filling import FIRST, key_of
from benchmarks.service.load import ROUNDS, WARM_SECONDS, verdict, wrk
from benchmarks.service.processes import SERVE, TOKEN, bare, process

MOST_SLOWDOWN: Final = 2.0
"""Of the 99th percentile, while workers tune on the machine."""
SMALL: Final[Sequence[str]] = ("null:0", "null:1", "cpu:0")
WHOLE: Final[Sequence[str]] = ("cpu",)
"""Workers beside the service: some on a part of the machine, one on all of it."""
JOBS: Final = 80
"""Jobs that wait for them: more than they do while `wrk` asks."""


def layers(number: int) -> dict[str, object]:
    """Graph JSON of a network whose plan takes a while to tune; one of many.

    No two of its products have the same shape, and none has that of another network:
    a kernel that was measured before would cost no run.
    """
    rows, depth = 32 + number, 6
    widths = [96 + 32 * place for place in range(depth + 1)]
    weights, nodes, last = [], [], "x"
    for place, (wide, next_wide) in enumerate(pairwise(widths)):
        for name, shape in (
            (f"w{place}", [wide, next_wide]),
            (f"b{place}", [next_wide]),
        ):
            weights.append({"name": name, "dtype": "f32", "shape": shape})
        for op, more in (
            ("MatMul", [f"w{place}"]),
            ("Add", [f"b{place}"]),
            ("Relu", []),
        ):
            name = f"{op.lower()}{place}"
            nodes.append(
                {
                    "name": name,
                    "op": op,
                    "domain": "",
                    "inputs": [last, *more],
                    "outputs": [name],
                    "attributes": {},
                }
            )
            last = name
    return {
        "schema": "fuseplan.graph/1",
        "opset": {"": 18},
        "inputs": [{"name": "x", "dtype": "f32", "shape": [rows, widths[0]]}],
        "weights": weights,
        "constants": [],
        "nodes": nodes,
        "outputs": [last],
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
            words = ["-c", SERVE, "worker", "--device", device]
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
    path = f"/v1/plans/{key_of(FIRST)}"
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
