"""What is remembered is checked in the background, so that no request waits for it.

An answer of the database is believed for a second. Long before that time is over, the
database is asked again for all that was used lately, in few queries; whatever has not
changed is believed for another second. A task of the event loop asks for plans
(`store.watching` says why). A thread asks for tokens, and only when one is due: even
one that wakes up for nothing takes Python's lock, and on a busy machine the event loop
stands still until that thread has had its turn. When the database does not answer,
what is remembered grows too old, and requests find out for themselves what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from fastapi.concurrency import run_in_threadpool

from service.api.access import Gate
from service.api.hot import HotAnswers, check_answers
from service.store import StoreError
from service.store.watching import Watcher

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 0.2
"""Pause between two checks: several fit into the time that an answer is believed."""


async def keep_fresh(
    tasks: Sequence[Callable[[], Awaitable[None]]],
    *,
    every_seconds: float = EVERY_SECONDS,
) -> None:
    """Run tasks again and again, until it is cancelled.

    Args:
        tasks: each looks whether there is anything to do; one that fails is tried
            again at the next turn.
        every_seconds: pause between two turns.
    """
    while True:
        await asyncio.sleep(every_seconds)
        for task in tasks:
            try:
                await task()
            except StoreError as error:
                log.debug("nothing is renewed", error=str(error))
            except Exception:
                # The top of a task: without it every request would be slow.
                log.exception("renewal failed")


async def renew_answers(hot: HotAnswers, watcher: Watcher) -> None:
    """Check the answers that were used lately; forget those that have changed.

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    await check_answers(hot, watcher, hot.due())


async def renew_tokens(gate: Gate) -> None:
    """Ask again for the tokens that were used lately.

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    if gate.is_due():
        await run_in_threadpool(gate.renew)
