"""How often a job may kill its worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from service.errors import JobLost
from service.errors.problems import problem_of
from service.store import Database, jobs

log = structlog.get_logger(__name__)

MOST_DEATHS: Final = 4
"""Workers that may die of one job: the first one, and three that repeated it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Counts the workers that began a job and neither ended it nor left it in order.

    Those are dead, but for the one that works on it. The engine's own count would take
    a restart for a death, and forget all of them when another worker takes a job over.

    Attributes:
        clock: gives the present moment.
    """

    database: Database
    clock: Callable[[], datetime]

    def begin(self, job: str) -> bool:
        """Count a worker that begins a job; one that killed too many ends instead.

        Returns:
            Whether it may begin.

        Raises:
            StoreUnavailable: the database is away; nothing was counted.
        """
        with self.database.write() as session:
            begun = jobs.begin_attempt(session, job)
        if begun > MOST_DEATHS:
            self.give_up(job)
        return begun <= MOST_DEATHS

    def leave(self, job: str) -> None:
        """Take back what was counted: the worker left the job in order.

        Raises:
            StoreUnavailable: the database is away; nothing was taken back.
        """
        with self.database.write() as session:
            jobs.leave_attempt(session, job)

    def give_up(self, job: str) -> None:
        """End a job that nobody will run again, unless it came to its end."""
        lost = JobLost(
            f"job {job}",
            f"{MOST_DEATHS} workers died while they did it, one after the other",
            hint="look into the worker's log; a smaller model may get through",
        )
        told = problem_of(lost).document()
        with self.database.write() as session:
            found = jobs.find(session, job)
            if found is None or not found.active:
                return
            jobs.finish(session, job, "failed", now=self.clock(), error=told)
        log.error("job given up", job=job)
