"""The pages: overview, jobs, a job, a plan, devices."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from service.dashboard.assets import CACHE_CONTROL, load_assets
from service.dashboard.figures import cache_figures, job_figures, plan_figures
from service.dashboard.jobs import STATES, JobLine, job_line
from service.dashboard.kernels import KernelRow, baseline_rows, kernel_rows
from service.dashboard.pages import HEADERS, Pages, explaining
from service.dashboard.partition import DEFAULT_BOXES, MAX_BOXES, partition_view
from service.dashboard.source import Api, ApiDep, ApiProblem

Json = Mapping[str, Any]
Order = Literal["launch", "time", "ratio", "roof", "traffic"]

RECENT: Final = 8
PAGE_JOBS: Final = 50
PAGE_KERNELS: Final = 200
"""Kernels in one table; more are on the next page, so that a page stays small."""

_NOT_FOUND: Final = 404
_KEY: Final = re.compile("[0-9a-f]{64}")

assets = load_assets()
pages = Pages(assets)
router = APIRouter(route_class=explaining(pages), include_in_schema=False)


@router.get("/")
async def overview(request: Request, api: ApiDep) -> Response:
    """What goes on now, and what the cache holds."""
    recent, cache = await asyncio.gather(
        api.get("/v1/jobs", limit=RECENT), api.get("/v1/cache-info")
    )
    return pages.page(
        "overview.html",
        section="overview",
        jobs=_lines(recent),
        figures=cache_figures(cache),
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


@router.get("/jobs/{job_id}")
async def job_page(
    api: ApiDep,
    job_id: str,
    order: Order = "launch",
    start: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """One job: how far it is, and the best plan that it has found."""
    values = await _job_values(api, job_id, order, start)
    return pages.page("job.html", section="jobs", **values)


@router.get("/jobs/{job_id}/head")
async def job_head(api: ApiDep, job_id: str) -> Response:
    """The head of a job's page, for a page that is open already."""
    values = await _job_values(api, job_id, "launch", 0)
    return pages.page("_job_head.html", **values)


@router.get("/jobs/{job_id}/tables")
async def job_tables(
    api: ApiDep,
    job_id: str,
    order: Order = "launch",
    start: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """The tables of a job's page, for a page that is open already."""
    values = await _job_values(api, job_id, order, start)
    return pages.page("_job_tables.html", **values)


async def _job_values(
    api: Api, job_id: str, order: Order, start: int
) -> dict[str, Any]:
    job = job_line(await api.get(f"/v1/jobs/{job_id}"), datetime.now(UTC))
    plan = await api.find(f"/v1/plans/{job.plan_key}")
    values = _plan_values(plan, job.names, order, start) if plan else {"plan": None}
    return {**values, "job": job, "job_figures": job_figures(job)}


def _plan_values(
    plan: Json, names: Mapping[str, Any], order: Order, start: int
) -> dict[str, Any]:
    rows = _sorted(kernel_rows(plan, names), order)
    return {
        "plan": plan,
        "figures": plan_figures(plan),
        "rows": rows[start : start + PAGE_KERNELS],
        "row_count": len(rows),
        "page_rows": PAGE_KERNELS,
        "start": start,
        "order": order,
        "baselines": baseline_rows(plan),
        "largest_share": max((row.share for row in rows), default=0.0) or 1.0,
        "has_measured": any(row.measured_seconds is not None for row in rows),
    }


def _sorted(rows: tuple[KernelRow, ...], order: Order) -> tuple[KernelRow, ...]:
    """Rows with what matters most first; launch order breaks ties."""
    match order:
        case "launch":
            return rows
        case "time":
            return tuple(sorted(rows, key=lambda row: -row.seconds))
        case "ratio":
            return tuple(sorted(rows, key=lambda row: -(row.ratio or 0)))
        case "roof":
            return tuple(sorted(rows, key=lambda row: row.roof or 0))
        case "traffic":
            return tuple(sorted(rows, key=lambda row: -row.traffic_bytes))


@router.get("/plans")
async def find_plan(
    api: ApiDep, key: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Go to the plan whose key was typed in."""
    wanted = key.strip().lower()
    await _plan(api, wanted)
    return RedirectResponse(f"/plans/{wanted}", status_code=303)


async def _plan(api: Api, key: str) -> Json:
    """The plan of a key that somebody may have typed."""
    if not _KEY.fullmatch(key):
        raise ApiProblem(
            _NOT_FOUND,
            {
                "title": "This is not a plan key",
                "detail": "A plan key has 64 hexadecimal digits.",
                "hint": "copy it from a job, or from `fuseplan plan`",
            },
        )
    return await api.get(f"/v1/plans/{key}")


@router.get("/plans/{key}")
async def plan_page(
    api: ApiDep,
    key: str,
    order: Order = "launch",
    start: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """The best stored plan of a key, in canonical ids."""
    plan = await _plan(api, key)
    values = _plan_values(plan, {}, order, start)
    return pages.page("plan.html", section="", key=key, **values)


@router.get("/plans/{key}/partition")
async def plan_partition(
    api: ApiDep,
    key: str,
    limit: Annotated[int, Query(ge=3, le=MAX_BOXES)] = DEFAULT_BOXES,
    expand: Annotated[str, Query(max_length=30)] = "",
    job: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Boxes and arrows of a plan; with a job, in the names of its submitter."""
    plan = await _plan(api, key)
    submitted = await api.find(f"/v1/jobs/{job}") if job else None
    names = (submitted or {}).get("names") or {}
    view = partition_view(plan, names, limit=limit, expand=expand)
    return JSONResponse(view, headers={"Cache-Control": HEADERS["Cache-Control"]})


@router.get("/devices")
async def device_list(api: ApiDep) -> Response:
    """The catalogue that plans can be made for."""
    listed = await api.get("/v1/devices")
    return pages.page("devices.html", section="devices", devices=_devices(listed))


@router.get("/static/{stamp}/{name:path}")
async def static_file(stamp: str, name: str) -> Response:
    """A style sheet, script or library."""
    found = assets.files.get(name)
    if found is None or stamp != assets.stamp:
        raise ApiProblem(_NOT_FOUND, {"title": "There is no such file"})
    headers = {"ETag": f'"{stamp}"', "Cache-Control": CACHE_CONTROL}
    headers["X-Content-Type-Options"] = "nosniff"
    return Response(found.content, media_type=found.media_type, headers=headers)


def _address(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _lines(listed: Json) -> tuple[JobLine, ...]:
    now = datetime.now(UTC)
    return tuple(job_line(job, now) for job in listed["jobs"])


def _devices(listed: Json) -> list[Json]:
    """Devices that somebody offers come first."""
    return sorted(listed["devices"], key=lambda device: not device["workers"])
