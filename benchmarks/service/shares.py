"""How much of a bare handler's speed is left in a lookup."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx

from benchmarks.service.load import ROUNDS, WARM_SECONDS, Load, verdict, wrk
from benchmarks.service.processes import TOKEN, bare

LEAST_SHARE: Final[Mapping[str, float]] = {"200": 0.70, "304": 0.70, "blob": 0.85}
MOST_P99_SECONDS: Final = 0.015
_MODEL: Final = Path(__file__).parents[2] / "examples" / "encoder.onnx"


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
