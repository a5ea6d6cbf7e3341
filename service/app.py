"""The application: wiring only."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import structlog
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from service import __version__
from service.api import blobs, devices, health, jobs, openapi, plans, problems
from service.api.context import Context
from service.api.requests import RequestMiddleware
from service.dashboard import routes as dashboard
from service.errors import UnsafeAddress
from service.jobs import engine
from service.jobs.devices import open_runner
from service.jobs.engine import JobQueue
from service.jobs.planning import Planner
from service.jobs.submission import Submissions
from service.jobs.worker import Worker
from service.settings import Settings
from service.store import Database, connect, upgrade

ROUTERS = (
    plans.router,
    blobs.router,
    jobs.router,
    devices.router,
    health.router,
    dashboard.router,
)

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def now() -> datetime:
    """The present moment."""
    return datetime.now(UTC)


def new_id() -> str:
    """An id that sorts by its moment and cannot be guessed."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}"


def create_app(settings: Settings) -> FastAPI:
    """The service as an ASGI application; it opens its database when it starts.

    Raises:
        UnsafeAddress: others could reach it, and nobody said that they may.
    """
    check_address(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(prepare, settings)
        database = open_database(settings)
        queue = JobQueue(database)
        app.state.context = make_context(settings, database, queue)
        try:
            if not settings.worker:
                yield
                return
            worker = make_worker(settings, database)
            await run_in_threadpool(worker.start)
            try:
                yield
            finally:
                await run_in_threadpool(worker.stop)
        finally:
            queue.close()
            database.close()

    app = FastAPI(
        title="Fuseplan",
        version=__version__,
        description="Fusion plans for tensor graphs: priced, proved, measured, cached.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(RequestMiddleware, max_body_bytes=settings.max_body_bytes)
    problems.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


def check_address(settings: Settings) -> None:
    """Refuse an address that other hosts reach, unless the operator allows it.

    Raises:
        UnsafeAddress: the address is not this host's own.
    """
    if settings.allow_remote or settings.host in LOOPBACK:
        return
    raise UnsafeAddress(
        settings.host,
        "other hosts could hand in models and read plans there",
        hint="listen on 127.0.0.1, or set FUSEPLAN_ALLOW_REMOTE=1 behind a proxy"
        " that checks who asks",
    )


def prepare(settings: Settings) -> None:
    """Bring the database's tables, and the job engine's, up to date.

    Raises:
        StoreUnavailable: the database is locked, full, corrupt ...
    """
    upgrade(settings.url, busy_timeout_seconds=settings.busy_timeout_seconds)
    engine.migrate(settings.url)


def open_database(settings: Settings) -> Database:
    """The database that the settings name."""
    return connect(settings.url, busy_timeout_seconds=settings.busy_timeout_seconds)


def make_context(settings: Settings, database: Database, queue: JobQueue) -> Context:
    """What the routes work with."""
    planner = Planner(plan_seconds=settings.plan_seconds)
    submissions = Submissions(
        settings=settings,
        database=database,
        planner=planner,
        queue=queue,
        clock=now,
        new_id=new_id,
    )
    return Context(
        settings=settings,
        database=database,
        submissions=submissions,
        clock=now,
    )


def make_worker(settings: Settings, database: Database) -> Worker:
    """A worker for the device that the settings name."""
    return Worker(
        settings=settings,
        database=database,
        planner=Planner(plan_seconds=settings.plan_seconds),
        clock=now,
        open_runner=open_runner,
    )


def run_worker(settings: Settings, until: Callable[[], object]) -> None:
    """Tune what is queued for one device, with the API elsewhere.

    Args:
        settings: the database, and the device to measure on.
        until: returns when the worker should end, at the next step of its job.

    Raises:
        DeviceBusy: another worker has the device.
        StoreUnavailable: the database cannot be used.
    """
    prepare(settings)
    database = open_database(settings)
    try:
        worker = make_worker(settings, database)
        worker.start()
        try:
            until()
        finally:
            worker.stop()
    finally:
        database.close()


def configure_logging(settings: Settings) -> None:
    """Log lines as JSON for machines, or coloured for people."""
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer()
    )
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
