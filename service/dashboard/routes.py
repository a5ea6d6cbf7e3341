"""The pages: overview, jobs, a job; those of plans, trials, cache stand apart."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request, Response

from service.dashboard import cache_routes, fleet_routes, plan_routes, trial_routes
from service.dashboard.assets import CACHE_CONTROL
from service.dashboard.contests import plan_lines
from service.dashboard.figures import (
    cache_figures,
    device_figures,
    job_figures,
)
from service.dashboard.jobs import STATES, JobLine, job_line
from service.dashboard.metrics import read_counters
from service.dashboard.plan_routes import Order, plan_values
from service.dashboard.shared import (
    NOT_FOUND,
    Json,
    assets,
    find_plan_or_none,
    new_router,
    pages,
)
from service.dashboard.source import ApiDep, ApiProblem
from service.jobs.numbers import Number

RECENT: Final = 8
PAGE_JOBS: Final = 50

router = new_router()
for part in (plan_routes, trial_routes, cache_routes, fleet_routes):
    router.include_router(part.router)


@router.get("/")
async def overview(request: Request, api: ApiDep) -> Response:
    """What goes on now, and what the cache holds."""
    recent, cache, scrape, devices = await asyncio.gather(
        api.get("/v1/jobs", limit=RECENT),
        api.get("/v1/cache-info"),
        api.find_text("/metrics"),
        api.get("/v1/devices"),
    )
    counters = read_counters(scrape)
    return pages.page(
        "overview.html",
        section="overview",
        jobs=_lines(recent),
        figures=cache_figures(cache, counters),
        counters=counters,
        workers=device_figures(devices),
        address=_address(request),
    )


@router.get("/jobs")
async def job_list(
    request: Request,
    api: ApiDep,
    state: Annotated[str, Query(max_length=20)] = "",
    cursor: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Jobs, the newest first, one page at a time."""
    listed = await api.get(
        "/v1/jobs", limit=PAGE_JOBS, state=state or None, cursor=cursor or None
    )
    return pages.page(
        "jobs.html",
        section="jobs",
        jobs=_lines(listed),
        states=STATES,
        state=state,
        cursor=cursor,
        address=_address(request),
        next_cursor=listed["next"],
    )


async def _read_job(
    api: ApiDep,
    job_id: str,
    order: Order = "launch",
    start: Annotated[Number, Query()] = 0,
) -> dict[str, Any]:
    """What a job's page shows; its table of kernels in this order, from this row on."""
    job = job_line(await api.get(f"/v1/jobs/{job_id}"), datetime.now(UTC))
    plan, contest = await asyncio.gather(
        find_plan_or_none(api, job.plan_key), api.find(f"/v1/jobs/{job_id}/contest")
    )
    values = plan_values(plan, job.names, order, start) if plan else {"plan": None}
    return {
        **values,
        "job": job,
        "job_figures": job_figures(job),
        "contest": plan_lines((contest or {}).get("plans", ()), job.names),
    }


JobValues = Annotated[dict[str, Any], Depends(_read_job)]


@router.get("/jobs/{job_id}")
async def job_page(values: JobValues) -> Response:
    """One job: how far it is, and the best plan that it has found."""
    return pages.page("job.html", section="jobs", **values)


@router.get("/jobs/{job_id}/head")
async def job_head(values: JobValues) -> Response:
    """The head of a job's page, for a page that is open already."""
    return pages.page("_job_head.html", **values)


@router.get("/jobs/{job_id}/tables")
async def job_tables(values: JobValues) -> Response:
    """The tables of a job's page, for a page that is open already."""
    return pages.page("_job_tables.html", **values)


@router.get("/static/{stamp}/{name:path}")
async def static_file(stamp: str, name: str) -> Response:
    """A style sheet, script or library."""
    found = assets.files.get(name)
    if found is None or stamp != assets.stamp:
        raise ApiProblem(NOT_FOUND, {"title": "There is no such file"})
    headers = {"ETag": f'"{stamp}"', "Cache-Control": CACHE_CONTROL}
    headers["X-Content-Type-Options"] = "nosniff"
    return Response(found.content, media_type=found.media_type, headers=headers)


def _address(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _lines(listed: Json) -> tuple[JobLine, ...]:
    now = datetime.now(UTC)
    return tuple(job_line(job, now) for job in listed["jobs"])
