"""The job engine (DBOS Transact): the only module that imports it.

Jobs are queued in the caller's own transaction, taken up by exactly one worker, and go
on at the last finished step after a crash. Arguments and results are plain JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import structlog
from dbos import (
    DBOS,
    DBOSClient,
    DBOSConfig,
    DBOSPortableJSONSerializer,
    WorkflowSerializationFormat,
)
from dbos import error as engine_errors
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from service.errors import WorkerUnavailable
from service.store import Database, StoreUnavailable, devices
from service.store.jobs import NORMAL_PRIORITY

log = structlog.get_logger(__name__)

TROUBLE: Final = (StoreUnavailable, DBAPIError)
"""What our store, and the engine's own, raise while the database is away."""

TAKEN_AWAY: Final = (
    engine_errors.DBOSWorkflowConflictIDError,
    engine_errors.DBOSWorkflowCancelledError,
)
"""What the engine raises in a worker that was silent for so long that another one has
taken its job over, or that was told to end it: it lives."""

APPLICATION: Final = "fuseplan"
VERSION: Final = "plan-v3"
"""Pinned: a worker takes up jobs of its own version only. Grows with the workflow."""

WORKFLOW: Final = "tune"
QUEUE_POLL_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 0.5
"""How long a step waits before it tries a database again that is away."""

_OVER: Final = frozenset(
    {"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"}
)

_ACTIVE: Final = frozenset({"PENDING", "ENQUEUED", "DELAYED"})
_UNDONE: Final = sorted((_OVER | {"PENDING", "ENQUEUED"}) - {"SUCCESS"})

Step = Callable[[str, Callable[[], Any]], Any]
"""Runs a function once, by name: repeated after a crash, it gives the old result."""


class Attempts(Protocol):
    """Counts the workers that began a job and did not leave it in order."""

    def begin(self, job: str) -> bool:
        """Count one more; False when the job has ended instead."""

    def leave(self, job: str) -> None:
        """Count one less."""


class Draining(BaseException):
    """Raised in a workflow to leave it unfinished; it goes on after a restart.

    It is no `Exception`, so that the engine does not take it for the workflow's end.
    """


def migrate(url: str) -> None:
    """Make the engine's own tables, or bring them up to date."""
    DBOS.migrate(url)


class JobQueue:
    """Puts jobs in front of workers, wherever they run.

    Args:
        database: where the queues are.
        version: of the workers that may take the jobs up.
    """

    def __init__(self, database: Database, *, version: str = VERSION) -> None:
        self._version = version
        self._client = DBOSClient(
            system_database_engine=database.writer,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def enqueue(
        self, session: Session, job: str, queue: str, *, priority: int = NORMAL_PRIORITY
    ) -> None:
        """Queue a job in the caller's transaction: both are stored, or none."""
        self._client.enqueue_in_transaction(
            session,
            {
                "workflow_name": WORKFLOW,
                "queue_name": queue,
                "workflow_id": job,
                "app_version": self._version,
                "priority": priority,
                "serialization_type": WorkflowSerializationFormat.PORTABLE,
            },
            job,
        )

    def require(self, session: Session, queue: str) -> None:
        """Check that a worker ever served a queue.

        Raises:
            WorkerUnavailable: none did, so the job would wait for ever.
        """
        served = {queue_ for one in devices.offered(session) for queue_ in one.queues}
        if queue not in served:
            raise WorkerUnavailable(
                f"queue {queue}",
                "no worker ever offered such a device",
                hint="start one with `fuseplan worker --device ...`, or ask with mode"
                " analytic",
            )

    def cancel(self, job: str) -> None:
        """Take a job that still waits from its queue."""
        self._client.cancel_workflow(job)

    def close(self) -> None:
        """Close connections of its own."""
        self._client.destroy()


class Engine:
    """Runs queued jobs in this process, one at a time.

    Attributes:
        job: the job that it works on.

    Args:
        url: database of the queues.
        executor: unique and stable name of this worker.
        queues: which queues it serves.
        run: does a job, given its id and a way to make steps.
        attempts: told of each begin, and of each time that a job is left in order.
        version: whose jobs it takes up.
    """

    def __init__(
        self,
        *,
        url: str,
        executor: str,
        queues: tuple[str, ...],
        run: Callable[[str, Step], str],
        attempts: Attempts,
        version: str = VERSION,
    ) -> None:
        self._url = url
        self._version = version
        self._executor = executor
        self._queues = queues
        self._run = run
        self._attempts = attempts
        self._draining = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._idle_claims: frozenset[str] = frozenset()
        self._counted: str | None = None
        self.job: str | None = None

    @property
    def draining(self) -> bool:
        """Whether jobs should be left at their next step."""
        return self._draining.is_set()

    def start(self) -> None:
        """Take up work: first what a crash left behind, then what is queued."""
        config = DBOSConfig(
            name=APPLICATION,
            system_database_url=self._url,
            application_version=self._version,
            executor_id=self._executor,
            log_level="WARNING",
            serializer=DBOSPortableJSONSerializer(),
            notification_listener_polling_interval_sec=1.0,
        )
        DBOS(config=config)

        @DBOS.workflow(
            name=WORKFLOW,
            max_recovery_attempts=None,  # its count takes a restart for a death
            serialization_type=WorkflowSerializationFormat.PORTABLE,
        )
        def tune(job: str) -> str:
            return self._work(job)

        DBOS.listen_queues(list(self._queues))
        DBOS.launch()
        for queue in self._queues:
            DBOS.register_queue(
                queue,
                worker_concurrency=1,
                polling_interval_sec=QUEUE_POLL_SECONDS,
            )

    def stop(self, *, patience_seconds: float) -> None:
        """Leave work at its next step; it goes on when a worker starts again."""
        self._draining.set()
        job = self.job
        if not self._idle.wait(patience_seconds) and job is not None:
            self._leave(job)  # its step is too long to wait for: no fault of the job
        DBOS.destroy(destroy_registry=True)

    def adopt(self, living: frozenset[str]) -> tuple[str, ...]:
        """Bring jobs that nobody works on back to their queue.

        They are those of dead workers, and those that this one left when the database
        was away: twice in turn they were its own, and it did not work on them.

        Args:
            living: names of the workers that gave a sign of life lately.

        Returns:
            The jobs that were brought back.
        """
        pending = DBOS.list_workflows(
            status="PENDING",
            name=WORKFLOW,
            queue_name=list(self._queues),
            load_input=False,
            load_output=False,
        )
        alive = living | {self._executor}
        mine = (one for one in pending if one.executor_id == self._executor)
        idle = frozenset(one.workflow_id for one in mine if one.workflow_id != self.job)
        left, self._idle_claims = idle & self._idle_claims, idle
        lost = [
            one
            for one in pending
            if one.executor_id not in alive or one.workflow_id in left
        ]
        for one in lost:
            DBOS.resume_workflows([one.workflow_id], queue_name=one.queue_name)
        return tuple(one.workflow_id for one in lost)

    def outdated(self) -> tuple[tuple[str, str], ...]:
        """Jobs of older versions that came to no end, each with its version.

        A job that was stopped to begin anew, by a worker that died then, is one too.
        """
        name, _, number = self._version.rpartition("v")
        older = [f"{name}v{one}" for one in range(int(number))]
        found = DBOS.list_workflows(
            status=_UNDONE,
            name=WORKFLOW,
            app_version=older,
            load_input=False,
            load_output=False,
        )
        return tuple((one.workflow_id, str(one.app_version)) for one in found)

    def begin_anew(self, job: str, queue: str) -> None:
        """Queue an outdated job under this version, without the steps that it made.

        Its steps are those of another workflow: it cannot go on with them. Nobody
        may work on it, and one worker at a time may do this.
        """
        (found,) = DBOS.list_workflows(
            workflow_ids=[job], load_input=False, load_output=False
        )
        if found.status in _ACTIVE:
            DBOS.cancel_workflows([job])
        DBOS.rewind_workflow(job, application_version=self._version, queue_name=queue)

    def given_up(self, jobs: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these jobs that will never be run again.

        Jobs of other versions are not among them: their workers see to them, or they
        begin anew.
        """
        if not jobs:
            return ()
        found = DBOS.list_workflows(
            workflow_ids=list(jobs),
            app_version=self._version,
            load_input=False,
            load_output=False,
        )
        return tuple(one.workflow_id for one in found if one.status in _OVER)

    def _work(self, job: str) -> str:
        self._idle.clear()
        self.job = job
        try:
            return self._attempt(job)
        finally:
            self.job = self._counted = None
            self._idle.set()

    def _attempt(self, job: str) -> str:
        try:
            if not self._patient(lambda: self._attempts.begin(job))():
                return "failed"
            self._counted = job
            return self._run(job, self._step)
        except TROUBLE as error:
            # It is not the job's end: the worker takes it up again (`adopt`).
            log.warning("job left until the database is back", job=job)
            self._leave(job)
            raise Draining from error
        except (Draining, *TAKEN_AWAY):
            self._leave(job)
            raise

    def _leave(self, job: str) -> None:
        """Take back what was counted; who ends while the database is away cannot."""
        if self._counted != job:
            return
        self._counted = None
        with suppress(Draining, *TROUBLE):
            self._patient(lambda: self._attempts.leave(job))()

    def _step(self, name: str, function: Callable[[], Any]) -> Any:
        if self.draining:
            raise Draining
        return cast("Any", DBOS.run_step({"name": name}, self._patient(function)))

    def _patient(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """The same, tried again until the database is there.

        What a step raises is kept as its result and comes again with each repetition;
        a database that was away for a moment must not be such a result.
        """

        def run() -> Any:
            while True:
                try:
                    return function()
                except StoreUnavailable as error:
                    log.warning("database awaited", reason=error.reason)
                    if self._draining.wait(RETRY_SECONDS):
                        raise Draining from error

        return run
