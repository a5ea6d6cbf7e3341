"""The application: wiring only."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from datetime import UTC, datetime
from functools import partial
from typing import TextIO

import structlog
from fastapi import Depends, FastAPI
from fastapi.concurrency import run_in_threadpool

from service import __version__
from service.api import (
    audit,
    blobs,
    bundles,
    comparing,
    contests,
    devices,
    fleet,
    health,
    jobs,
    keeping,
    listing,
    openapi,
    partitions,
    plans,
    problems,
    quality,
    trials,
)
from service.api.access import AccessMiddleware, Gate, Rates
from service.api.context import PLANNING_THREADS, Context
from service.api.hot import HotAnswers, HotMiddleware
from service.api.metrics import Metrics
from service.api.places import Places
from service.api.queries import known_query
from service.api.renewal import keep_fresh, renew_answers, renew_tokens
from service.api.requests import RequestMiddleware
from service.api.tracing import TracingMiddleware, open_provider
from service.api.warming import warm
from service.dashboard import routes as dashboard
from service.errors import UnsafeAddress
from service.jobs import engine
from service.jobs.devices import open_runner
from service.jobs.engine import JobQueue
from service.jobs.planning import Planner
from service.jobs.reader import ReaderLimits, ReaderPool
from service.jobs.registered import registered
from service.jobs.submission import Submissions
from service.jobs.worker import Worker
from service.settings import Settings
from service.store import Database, connect, upgrade
from service.store.watching import watch
from tuner.runtime.requests import Measures

log = structlog.get_logger(__name__)

ROUTERS = (
    comparing.router,
    plans.router,
    bundles.router,
    blobs.router,
    jobs.router,
    trials.router,
    contests.router,
    listing.router,
    keeping.router,
    partitions.router,
    devices.router,
    fleet.router,
    quality.router,
    audit.router,
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
        async with running(settings) as context:
            app.state.context = context
            yield
            if settings.otlp_url:
                # Spans that wait are sent before the process ends.
                await run_in_threadpool(app.state.tracing.shutdown)

    app = FastAPI(
        title="Fuseplan",
        version=__version__,
        description="Fusion plans for tensor graphs: priced, proved, measured, cached.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # Spans are our own (`api.tracing`): these would tell messages and stacks, too.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.add_middleware(HotMiddleware)
    app.add_middleware(AccessMiddleware)
    app.add_middleware(RequestMiddleware, max_body_bytes=settings.max_body_bytes)
    if settings.otlp_url:
        provider = open_provider(settings.otlp_url)
        app.state.tracing = provider
        app.add_middleware(TracingMiddleware, provider=provider)
    problems.install(app)
    openapi.install(app, settings)
    for router in ROUTERS:
        # A page's address may carry what others add to a link.
        checks = [] if router is dashboard.router else [Depends(known_query)]
        app.include_router(router, dependencies=checks)
    return app


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Context]:
    """Everything that the routes need, for as long as the service runs.

    Raises:
        UnsafeAddress: others could reach it, and nobody has a token.
        StoreUnavailable: the database cannot be used.
        DeviceBusy: another worker has the device of the one that runs beside it.
    """
    await run_in_threadpool(prepare, settings)
    async with AsyncExitStack() as stack:
        database = open_database(settings)
        stack.callback(database.close)
        queue = JobQueue(database)
        stack.callback(queue.close)
        readers = make_readers(settings)
        context = make_context(settings, database, queue, readers)
        await run_in_threadpool(check_keys, settings, context.gate)
        if readers is not None:
            stack.callback(readers.close)
            await run_in_threadpool(readers.warm)
        await warm(context)
        await stack.enter_async_context(kept_fresh(context))
        if settings.worker:
            worker = make_worker(settings, database)
            await run_in_threadpool(worker.start)
            stack.push_async_callback(run_in_threadpool, worker.stop)
        yield context


@asynccontextmanager
async def kept_fresh(context: Context) -> AsyncIterator[None]:
    """What is remembered and in use is checked for as long as the block lasts."""
    tasks = (
        partial(renew_answers, context.hot, context.watcher),
        partial(renew_tokens, context.gate),
    )
    task = asyncio.create_task(keep_fresh(tasks))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await context.watcher.close()


def check_address(settings: Settings) -> None:
    """Refuse an address that other hosts reach when nobody is asked for a token.

    Raises:
        UnsafeAddress: the address is not this host's own, and tokens are off.
    """
    if settings.tokens == "off" and _is_exposed(settings):
        raise _unsafe(settings, "FUSEPLAN_TOKENS=off lets anybody in")


def check_keys(settings: Settings, gate: Gate) -> None:
    """Refuse an address that other hosts reach while there is no valid token.

    Raises:
        UnsafeAddress: the address is not this host's own, and nobody has a token.
    """
    if _is_exposed(settings) and not gate.has_key(now()):
        raise _unsafe(settings, "there is no token yet")


def _is_exposed(settings: Settings) -> bool:
    return not settings.allow_remote and settings.host not in LOOPBACK


def _unsafe(settings: Settings, why: str) -> UnsafeAddress:
    return UnsafeAddress(
        settings.host,
        f"other hosts could hand in models and read plans there: {why}",
        hint="make a token with `fuseplan token create NAME`, listen on 127.0.0.1, or"
        " set FUSEPLAN_ALLOW_REMOTE=1 behind a proxy that checks who asks",
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


def make_readers(settings: Settings) -> ReaderPool | None:
    """The processes that read models, unless this process is to do it."""
    if settings.planner_processes == 0:
        return None
    limits = ReaderLimits(
        memory_bytes=settings.planner_memory_bytes,
        read_seconds=settings.read_seconds,
        plan_seconds=settings.plan_seconds,
    )
    rules = registered(settings.rules)
    return ReaderPool(processes=settings.planner_processes, limits=limits, rules=rules)


def planner_of(settings: Settings) -> Planner:
    """A planner in this process, with the rules that the settings name."""
    rules = registered(settings.rules)
    return Planner(plan_seconds=settings.plan_seconds, rules=rules)


def make_context(
    settings: Settings,
    database: Database,
    queue: JobQueue,
    readers: ReaderPool | None = None,
) -> Context:
    """What the routes work with."""
    submissions = Submissions(
        settings=settings,
        database=database,
        planner=readers or planner_of(settings),
        queue=queue,
        clock=now,
        new_id=new_id,
    )
    gate = Gate(
        database,
        mode=settings.tokens,
        admin_token=settings.admin_token.get_secret_value(),
        clock=time.monotonic,
    )
    rates = Rates(
        per_second=settings.rate_per_second,
        burst=settings.rate_burst,
        clock=time.monotonic,
    )
    return Context(
        settings=settings,
        database=database,
        submissions=submissions,
        planning=asyncio.Semaphore(PLANNING_THREADS),
        gate=gate,
        rates=rates,
        hot=HotAnswers(time.monotonic),
        places=Places(time.monotonic),
        watcher=watch(settings.url),
        metrics=Metrics(database, now),
        clock=now,
    )


def make_worker(
    settings: Settings,
    database: Database,
    open_: Callable[[str], AbstractContextManager[Measures]] = open_runner,
) -> Worker:
    """A worker for the device that the settings name.

    Args:
        settings: how it works.
        database: where its jobs are.
        open_: starts the process that measures on a device.
    """
    return Worker(
        settings=settings,
        database=database,
        planner=planner_of(settings),
        clock=now,
        open_runner=open_,
    )


def run_worker(
    settings: Settings,
    until: Callable[[], object],
    open_: Callable[[str], AbstractContextManager[Measures]] = open_runner,
) -> None:
    """Tune what is queued for one device, with the API elsewhere.

    Args:
        settings: the database, and the device to measure on.
        until: returns when the worker should end, at the next step of its job.
        open_: starts the process that measures on a device.

    Raises:
        DeviceBusy: another worker has the device.
        StoreUnavailable: the database cannot be used.
    """
    prepare(settings)
    database = open_database(settings)
    try:
        worker = make_worker(settings, database, open_)
        worker.start()
        try:
            until()
        finally:
            worker.stop()
    finally:
        database.close()


def configure_logging(settings: Settings) -> None:
    """Log lines as JSON for machines, or coloured for people; warnings are lines, too.

    A bound that was refuted, and whatever else a library warns of, would be words on
    stderr that nobody collects.
    """
    warnings.showwarning = _log_warning
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


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 - given by the standard library
    line: str | None = None,  # noqa: ARG001 - given by the standard library
) -> None:
    """A line of the log in place of the two on stderr; see `warnings.showwarning`."""
    place = f"{filename}:{lineno}"
    log.warning("warning", kind=category.__name__, problem=str(message), place=place)
