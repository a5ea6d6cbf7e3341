"""What is remembered is checked in the background, so that no request waits for it.

An answer of the database is believed for a second. Long before that time is over, the
database is asked again for all that was used lately, in few queries; whatever has not
changed is believed for another second. Plans are asked for by a task of the event loop
(`store.watching` says why), tokens by a thread. When the database does not answer,
what is remembered grows too old, and requests find out for themselves what is wrong.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from service.api.hot import HotAnswers, check_answers
from service.store import StoreError
from service.store.watching import Watcher

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 0.2
"""Pause between two checks: several fit into the time that an answer is believed."""


class Renewal:
    """Runs tasks again and again in a thread of its own.

    Args:
        tasks: each looks whether there is anything to do; one that fails is tried
            again at the next turn.
        every_seconds: pause between two turns.
    """

    def __init__(
        self,
        tasks: Sequence[Callable[[], None]],
        *,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._tasks = tuple(tasks)
        self._every_seconds = every_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="fuseplan-renewal", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the task that runs."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every_seconds):
            for task in self._tasks:
                try:
                    task()
                except StoreError as error:
                    log.debug("nothing is renewed", error=str(error))
                except Exception:
                    # The top of a thread: without it every request would be slow.
                    log.exception("renewal failed")


async def keep_fresh(hot: HotAnswers, watcher: Watcher) -> None:
    """Check the answers in use again and again, until it is cancelled."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        try:
            await renew_answers(hot, watcher)
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
