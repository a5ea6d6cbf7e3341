"""How much slower lookups are with many plans than with few."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from benchmarks.service.filling import FIRST, key_of
from benchmarks.service.load import ROUNDS, WARM_SECONDS, verdict, wrk
from benchmarks.service.processes import TOKEN
from service.api.hot import FRESH_SECONDS

BATCH: Final = 1000
SPREAD: Final = 1000
"""Keys that the lookups of changing keys go through."""
FEW: Final = 1000
MOST_BATCH_SECONDS: Final = 0.1
BATCHES: Final = "1000 keys"
MOST_GROWTH: Final = 1.3


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
    keys = [key_of(FIRST + place * step) for place in range(min(SPREAD, plans))]
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
    return _batches(asked, 10, 0.0)


def _read_batch(asked: Asked, _seconds: float) -> float:
    """What was told a moment ago is believed for a second; here nothing is."""
    return _batches(asked, 5, FRESH_SECONDS)


def _batches(asked: Asked, times_asked: int, pause_seconds: float) -> float:
    """Median time of a lookup of many keys, always the same ones."""
    body = {"keys": asked.keys[:BATCH], "evidence": "measured"}
    times = []
    for _ in range(times_asked):
        time.sleep(pause_seconds)
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
    "1000 keys, read again": _read_batch,
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
        good = good and (BATCHES not in name or most < MOST_BATCH_SECONDS)
        print(
            f"| {name} | {1e3 * least:.2f} ms | {1e3 * most:.2f} ms "
            f"| {ratio:.2f} | {verdict(good=good)} |",
            flush=True,
        )
