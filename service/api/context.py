"""What every route may use; it lives on the application, not in globals."""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, ParamSpec, TypeVar, cast

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from service.api.access import Gate, Rates
from service.api.hot import HotAnswers
from service.api.metrics import Metrics
from service.api.places import Places
from service.jobs.submission import Submissions
from service.settings import Settings
from service.store import Database
from service.store.watching import Watcher

P = ParamSpec("P")
T = TypeVar("T")

PLANNING_THREADS: Final = 20
"""Requests that a planner may keep waiting: half of the threads that answer requests
(40, `anyio.to_thread`), so that lookups find one however many models wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of the service that routes work with.

    Attributes:
        planning: holds a place for each request that may wait for a planner.
        watcher: asked from the event loop whether what is remembered is right.
        clock: gives the present moment, with its zone.
    """

    settings: Settings
    database: Database
    submissions: Submissions
    planning: Semaphore
    gate: Gate
    rates: Rates
    hot: HotAnswers
    places: Places
    watcher: Watcher
    metrics: Metrics
    clock: Callable[[], datetime]

    async def run_planning(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run what may wait for a planner in a thread; others wait in line for one."""
        async with self.planning:
            return await run_in_threadpool(function, *args, **kwargs)


def get_context(request: Request) -> Context:
    """The context of the application that a request came to."""
    return cast("Context", request.app.state.context)


ContextDep = Annotated[Context, Depends(get_context)]
