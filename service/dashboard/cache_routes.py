"""Pages beside the jobs: handing a model in, the cache, devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query, Response

from service.dashboard.accuracy import quality
from service.dashboard.figures import cache_figures
from service.dashboard.metrics import read_counters
from service.dashboard.shared import Json, new_router, pages
from service.dashboard.source import Api, ApiDep

PAGE_PLANS: Final = 50
ACCURACY_JOBS: Final = 5
"""Jobs whose trials say how well a device is predicted now."""

router = new_router()


@router.get("/submit")
async def submit_page(
    api: ApiDep, target: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Hand a model in and watch it run."""
    listed = await api.get("/v1/devices")
    devices = _offered_first(listed)
    return pages.page(
        "submit.html",
        section="submit",
        devices=devices,
        target=target or (devices[0]["id"] if devices else ""),
    )


@router.get("/cache")
async def plan_list(
    api: ApiDep,
    target: Annotated[str, Query(max_length=100)] = "",
    cursor: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """Keys with what they stand for, their evidence and where they come from."""
    listed, cache, scrape, devices = await asyncio.gather(
        api.get(
            "/v1/plans", limit=PAGE_PLANS, target=target or None, cursor=cursor or None
        ),
        api.get("/v1/cache-info"),
        api.find_text("/metrics"),
        api.get("/v1/devices"),
    )
    counters = read_counters(scrape)
    return pages.page(
        "cache.html",
        section="cache",
        plans=listed["plans"],
        next_cursor=listed["next"],
        cursor=cursor,
        target=target,
        targets=[device["id"] for device in devices["devices"]],
        figures=cache_figures(cache, counters)[-3:],
        counters=counters,
        cache=cache,
    )


@router.get("/devices")
async def device_list(api: ApiDep) -> Response:
    """The catalogue that plans can be made for."""
    listed = await api.get("/v1/devices")
    return pages.page("devices.html", section="devices", devices=_offered_first(listed))


@router.get("/devices/{device_id}")
async def device_page(api: ApiDep, device_id: str) -> Response:
    """A device: its numbers and their sources, and how well it is predicted."""
    device, jobs = await asyncio.gather(
        api.get(f"/v1/devices/{device_id}"), api.get("/v1/jobs", limit=100)
    )
    ours = [job for job in jobs["jobs"] if job["target"] == device["id"]]
    trials = await recent_trials(api, [job["id"] for job in ours[:ACCURACY_JOBS]])
    numbers = dict(device["numbers"])
    sources = numbers.pop("sources", {}) or {}
    return pages.page(
        "device.html",
        section="devices",
        device=device,
        numbers=_lines(numbers, sources),
        quality=quality(trials),
        jobs=len(ours[:ACCURACY_JOBS]),
    )


async def recent_trials(api: Api, jobs: Sequence[str]) -> list[Json]:
    """Trials of these jobs, an even sample of each."""
    pages_ = await asyncio.gather(
        *(api.find(f"/v1/jobs/{job}/trials", sample=500) for job in jobs)
    )
    return [dict(trial) for page in pages_ if page for trial in page["trials"]]


def _lines(numbers: Json, sources: Json) -> list[tuple[str, str, str]]:
    """(name, value, source) of each number; tables of rates are opened."""
    found: list[tuple[str, str, str]] = []
    for name, value in numbers.items():
        source = str(sources.get(name, ""))
        if name in {"id", "name", "kind", "architecture"}:
            continue
        if isinstance(value, dict):
            found += ((f"{name} {k}", _number(v), source) for k, v in value.items())
        else:
            found.append((name, _number(value), source))
    return [(name.replace("_", " "), value, source) for name, value, source in found]


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _offered_first(listed: Json) -> list[Json]:
    """Devices that somebody offers come first."""
    return sorted(listed["devices"], key=lambda device: not device["workers"])
