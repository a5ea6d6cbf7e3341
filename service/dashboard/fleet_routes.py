"""Pages of the fleet: the queue, a device's time, drift, and runs beside each other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Query, Response

from service.dashboard.accuracy import by_size, quality
from service.dashboard.cache_routes import recent_trials
from service.dashboard.comparison import MAX_RUNS, compared_runs
from service.dashboard.figures import device_figures, timeline_figures
from service.dashboard.jobs import job_line, moment
from service.dashboard.shared import Json, new_router, pages
from service.dashboard.source import ApiDep

SPANS: Final = (1.0, 6.0, 24.0, 168.0, 744.0)
"""Hours that the timeline offers: an hour to a month."""

MAX_GAPS: Final = 50
"""Gaps in the table, the longest first."""

OFFERED: Final = 30
"""Runs to choose from."""

router = new_router()


@router.get("/fleet")
async def fleet_page(
    api: ApiDep,
    device: Annotated[str, Query(max_length=100)] = "",
    hours: Annotated[float, Query(gt=0, le=24 * 366)] = 24.0,
) -> Response:
    """Who waits, who works, and what a device did with its time."""
    queue, listed = await asyncio.gather(api.get("/v1/queue"), api.get("/v1/devices"))
    workers = device_figures(listed)
    chosen = device or next((one["target"] for one in workers), _newest(queue))
    told = await api.get(f"/v1/devices/{chosen}/timeline", hours=f"{hours:g}")
    since = moment(told["since"]) or datetime.now(UTC)
    gaps = sorted(told["gaps"], key=lambda gap: gap["begin"] - gap["end"])
    titles = {job["job"]: job["title"] for job in told["jobs"]}
    now = datetime.now(UTC)
    return pages.page(
        "fleet.html",
        section="fleet",
        queue=[{**one, "line": job_line(one["job"], now)} for one in queue["jobs"]],
        workers=workers,
        devices=[one["id"] for one in listed["devices"]],
        device=chosen,
        hours=hours,
        spans=SPANS,
        told=told,
        figures=timeline_figures(told),
        gap_count=len(gaps),
        gaps=[
            {
                **gap,
                "seconds": gap["end"] - gap["begin"],
                "at": since + timedelta(seconds=gap["begin"]),
                "title": titles.get(gap["job"] or "", ""),
            }
            for gap in gaps[:MAX_GAPS]
        ],
        moments=[since + timedelta(seconds=job["begin"]) for job in told["jobs"]],
        source=f"/v1/devices/{chosen}/timeline?hours={hours:g}",
    )


def _newest(queue: Json) -> str:
    """A device that somebody waits for, or this machine's processor."""
    return next((str(one["job"]["target"]) for one in queue["jobs"]), "cpu")


@router.get("/devices/{device_id}/quality")
async def quality_page(api: ApiDep, device_id: str) -> Response:
    """How well a device is predicted, and whether that drifts."""
    device, told = await asyncio.gather(
        api.get(f"/v1/devices/{device_id}"),
        api.get(f"/v1/devices/{device_id}/quality"),
    )
    trials = await recent_trials(api, [one["job"] for one in told["jobs"]][-5:])
    decisions = [one for one in told["jobs"] if one["decision"]]
    judged = [one for one in decisions if not one["decision"]["contended"]]
    return pages.page(
        "quality.html",
        section="devices",
        device=device,
        told=told,
        drift=[one for one in told["jobs"] if one["accuracy"]],
        decisions=decisions,
        judged=len(judged),
        right=sum(one["decision"]["gain"] >= 1 for one in judged),
        quality=quality(trials),
        sizes=by_size(trials),
        source=f"/v1/devices/{device['id']}/quality",
    )


@router.get("/compare")
async def compare_page(
    api: ApiDep,
    job: Annotated[list[str] | None, Query(max_length=MAX_RUNS)] = None,
) -> Response:
    """The best plan so far of several runs, in one drawing."""
    chosen = list(dict.fromkeys(one for one in job or () if one))
    listed, *found = await asyncio.gather(
        api.get("/v1/jobs", limit=OFFERED),
        *(api.get(f"/v1/jobs/{one}") for one in chosen),
    )
    now = datetime.now(UTC)
    histories = await asyncio.gather(
        *(api.get(f"/v1/jobs/{one}/history", points=400) for one in chosen)
    )
    lines = [job_line(one, now) for one in found]
    return pages.page(
        "compare.html",
        section="jobs",
        chosen=chosen,
        offered=[job_line(one, now) for one in listed["jobs"]],
        runs=compared_runs(lines, histories),
        most=MAX_RUNS,
    )
