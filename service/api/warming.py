"""The questions of the hot path, asked once before anybody waits for an answer.

The first query of a kind is put into the database's words, which takes tens of
milliseconds, and the first question of all opens a connection.
"""

from __future__ import annotations

from typing import Final

import structlog
from fastapi.concurrency import run_in_threadpool

from service.api.comparing import missing_reasons
from service.api.context import Context
from service.store import StoreError, blobs, plans, tokens

log = structlog.get_logger(__name__)

_NOBODY: Final = "0" * 64
"""A key, digest and hash that nothing has."""


async def warm(context: Context) -> None:
    """Ask what lookups ask; a database in trouble is told by who needs it."""
    try:
        await run_in_threadpool(_ask, context)
        await context.watcher.digests([_NOBODY])
    except StoreError as error:
        log.debug("nothing is warm", error=str(error))


def _ask(context: Context) -> None:
    with context.database.read() as session:
        for place in range(len(plans.ORDER)):
            plans.find(session, _NOBODY, plans.ORDER[: place + 1])
        plans.places(session, (_NOBODY,))
        missing_reasons(session, (_NOBODY,), "analytic")
        blobs.find(session, _NOBODY)
        tokens.count(session)
        tokens.by_hashes(session, (_NOBODY,))
