"""What every route may use; it lives on the application, not in globals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, cast

from fastapi import Depends, Request

from service.api.access import Gate, Rates
from service.api.hot import HotAnswers
from service.api.metrics import Metrics
from service.api.places import Places
from service.jobs.submission import Submissions
from service.settings import Settings
from service.store import Database
from service.store.watching import Watcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of the service that routes work with.

    Attributes:
        watcher: asked from the event loop whether what is remembered is right.
        clock: gives the present moment, with its zone.
    """

    settings: Settings
    database: Database
    submissions: Submissions
    gate: Gate
    rates: Rates
    hot: HotAnswers
    places: Places
    watcher: Watcher
    metrics: Metrics
    clock: Callable[[], datetime]


def get_context(request: Request) -> Context:
    """The context of the application that a request came to."""
    return cast("Context", request.app.state.context)


ContextDep = Annotated[Context, Depends(get_context)]
