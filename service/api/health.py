"""What an operator and a build system ask of the service itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict

from service import __version__
from service.api.context import Context, ContextDep
from service.api.metrics import CONTENT_TYPE
from service.api.problems import told
from service.store import StoreUnavailable, heartbeats, jobs, measurements, plans
from service.store.filesystem import database_file
from service.store.jobs import State
from service.store.schema import newest_revision, revision
from tuner.document import PLAN_SCHEMA
from tuner.keys import COMPILERS
from tuner.plan import CODEGEN_REVISION

router = APIRouter(tags=["service"])

FREE_BYTES: Final = 64 * 2**20
"""A disk with less room than this is full."""


class CacheInfo(BaseModel):
    """What this service's plans are made with, and how many there are.

    Attributes:
        toolchain: code generator and compilers that enter the plan key.
        plans: keys with a plan, by evidence.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": "0.1.0",
                    "schemas": {"plan": "fuseplan.plan/1", "graph": "fuseplan.graph/1"},
                    "toolchain": {
                        "codegen_revision": 1,
                        "compilers": {"gpu": "nvrtc-13"},
                    },
                    "plans": {"analytic": 12, "measured": 9},
                    "measurements": 1480,
                    "jobs": {"succeeded": 9},
                }
            ]
        }
    )

    version: str
    schemas: dict[str, str]
    toolchain: dict[str, Any]
    plans: dict[str, int]
    measurements: int
    jobs: dict[str, int]


class Live(BaseModel):
    """The process answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "alive"}]})

    status: Literal["alive"] = "alive"


class Check(BaseModel):
    """One thing that readiness depends on."""

    ok: bool
    detail: str


class Ready(BaseModel):
    """Whether the service can do its work."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "status": "ready",
                    "checks": {"database": {"ok": True, "detail": "revision 0001"}},
                }
            ]
        }
    )

    status: Literal["ready", "not ready"]
    checks: dict[str, Check]


@router.get(
    "/v1/cache-info",
    operation_id="getCacheInfo",
    summary="Versions and counts",
    responses=told(503),
)
def get_cache_info(context: ContextDep) -> CacheInfo:
    """Versions that enter the plan key, and what is stored."""
    with context.database.read() as session:
        return CacheInfo(
            version=__version__,
            schemas={"plan": PLAN_SCHEMA, "graph": "fuseplan.graph/1"},
            toolchain={
                "codegen_revision": CODEGEN_REVISION,
                "compilers": dict(COMPILERS),
            },
            plans=dict(plans.count(session)),
            measurements=measurements.count(session),
            jobs=_counts(jobs.count(session)),
        )


def _counts(numbers: Mapping[State, int]) -> dict[str, int]:
    return {str(state): number for state, number in numbers.items()}


@router.get("/livez", operation_id="getLiveness")
def get_liveness() -> Live:
    """The process answers; nothing else is looked at."""
    return Live()


@router.get(
    "/readyz",
    operation_id="getReadiness",
    responses={503: {"model": Ready, "description": "Something is missing"}},
)
def get_readiness(context: ContextDep, response: Response) -> Ready:
    """Database, its revision, the worker's age, and room on the disk."""
    checks = {
        "database": _check_database(context),
        "worker": _check_worker(context),
        "disk": _check_disk(context),
    }
    ready = all(check.ok for check in checks.values())
    response.status_code = 200 if ready else 503
    response.headers["Cache-Control"] = "no-store"
    return Ready(status="ready" if ready else "not ready", checks=checks)


def _check_database(context: Context) -> Check:
    try:
        current = revision(context.database)
    except StoreUnavailable as error:
        return Check(ok=False, detail=error.problem)
    newest = newest_revision()
    if current != newest:
        return Check(ok=False, detail=f"revision {current}, expected {newest}")
    return Check(ok=True, detail=f"revision {current}")


def _check_worker(context: Context) -> Check:
    if not context.settings.worker:
        return Check(ok=True, detail="workers run elsewhere")
    try:
        with context.database.read() as session:
            beats = heartbeats.all_workers(session)
    except StoreUnavailable as error:
        return Check(ok=False, detail=error.problem)
    oldest = context.clock() - timedelta(seconds=context.settings.dead_after_seconds)
    alive = sum(beat.seen_at >= oldest for beat in beats)
    return Check(ok=alive > 0, detail=f"{alive} of {len(beats)} alive")


def _check_disk(context: Context) -> Check:
    file = database_file(context.settings.url)
    if file is None:
        return Check(ok=True, detail="the database is elsewhere")
    try:
        free = shutil.disk_usage(file.parent).free
    except OSError as error:
        return Check(ok=False, detail=str(error))
    return Check(ok=free >= FREE_BYTES, detail=f"{free >> 20} MiB free")


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Figures for Prometheus",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "Metrics",
            "content": {"text/plain": {"example": 'fuseplan_jobs{state="queued"} 0.0'}},
        },
        **told(503),
    },
)
def get_metrics(context: ContextDep) -> Response:
    """Counters and gauges in the text format of Prometheus."""
    return Response(context.metrics.text(), media_type=CONTENT_TYPE)
