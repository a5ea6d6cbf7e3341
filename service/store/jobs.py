"""Tuning jobs: what was asked, how far they are, and how they ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy import ForeignKey, Index, String, func, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store import events
from service.store.base import Base
from service.store.events import EventDraft, EventRow
from service.store.values import Progress

State = Literal["queued", "running", "succeeded", "partial", "failed", "cancelled"]

ACTIVE: Final[tuple[State, ...]] = ("queued", "running")
"""States in which a job may still find something."""

STATES: Final[tuple[State, ...]] = (
    "queued",
    "running",
    "succeeded",
    "partial",
    "failed",
    "cancelled",
)

NORMAL_PRIORITY: Final = 100

Cache = Literal["warm", "cold"]

EARLIER_PARTITIONS: Final = 3
"""How many partitions a job ran whole before there was a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a job was asked to do; it never changes.

    Attributes:
        queue: on which queue of workers it waits.
        title: how the submitter's model calls itself, for people only.
        input_digest: blob of the submitted model.
        input_form: `onnx` or `json`.
        options: options of the plan, JSON-ready.
        names: canonical id -> the names in the submitted model.
        priority: of the jobs that wait, the one with the smallest number is next.
        request_id: the request that made it.
        cache: how the caches are before every launch that is timed.
        partitions: how many distinct partitions are run whole, at most.
    """

    id: str
    plan_key: str
    graph_hash: str
    target: str
    queue: str
    title: str
    input_digest: str
    input_form: Literal["onnx", "json"]
    options: Mapping[str, Any]
    names: Mapping[str, Any]
    budget_seconds: float
    budget_trials: int
    priority: int = NORMAL_PRIORITY
    request_id: str = ""
    cache: Cache = "warm"
    partitions: int = EARLIER_PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stands now.

    Attributes:
        error: problem+json of a failed job.
        batches: how many batches of measurements are stored.
        cancel_requested: whether it ends after the batch in flight.
        attempts: how many workers began it and neither ended it nor left it in order.
    """

    request: JobRequest
    state: State
    progress: Progress
    batches: int
    cancel_requested: bool
    error: Mapping[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int = 0

    @property
    def id(self) -> str:
        """Identity of the job."""
        return self.request.id

    @property
    def active(self) -> bool:
        """Whether it may still find something."""
        return self.state in ACTIVE


class JobRow(Base):
    """Table `jobs`."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(
            "uq_jobs_active_plan_key",
            "plan_key",
            unique=True,
            sqlite_where=text("state IN ('queued', 'running')"),
            postgresql_where=text("state IN ('queued', 'running')"),
        ),
        Index(None, "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    plan_key: Mapped[str] = mapped_column(ForeignKey("plans.key"), index=True)
    graph_hash: Mapped[str] = mapped_column(ForeignKey("graphs.hash"))
    target: Mapped[str] = mapped_column(String(100))
    queue: Mapped[str] = mapped_column(String(100))
    title: Mapped[str] = mapped_column(String(200))
    input_digest: Mapped[str] = mapped_column(ForeignKey("blobs.digest"))
    input_form: Mapped[str] = mapped_column(String(10))
    options: Mapped[dict[str, Any]]
    names: Mapped[dict[str, Any]]
    budget_seconds: Mapped[float]
    budget_trials: Mapped[int]
    priority: Mapped[int] = mapped_column(server_default="100")
    request_id: Mapped[str] = mapped_column(String(64), server_default="")
    cache: Mapped[str] = mapped_column(String(10), server_default="warm")
    partitions: Mapped[int] = mapped_column(server_default=str(EARLIER_PARTITIONS))
    state: Mapped[str] = mapped_column(String(20), index=True)
    trials: Mapped[int]
    best_seconds: Mapped[float | None]
    gap: Mapped[float | None]
    remaining_seconds: Mapped[float | None]
    kernels: Mapped[int | None]
    batches: Mapped[int]
    cancel_requested: Mapped[bool]
    error: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(server_default="0")


def create(
    session: Session,
    request: JobRequest,
    *,
    now: datetime,
    progress: Progress | None = None,
) -> Job | None:
    """Queue a job, or give None when one for the same plan key is active."""
    progress = progress or Progress()
    row = JobRow(
        id=request.id,
        plan_key=request.plan_key,
        graph_hash=request.graph_hash,
        target=request.target,
        queue=request.queue,
        title=request.title[:200],
        input_digest=request.input_digest,
        input_form=request.input_form,
        options=dict(request.options),
        names=dict(request.names),
        budget_seconds=request.budget_seconds,
        budget_trials=request.budget_trials,
        priority=request.priority,
        request_id=request.request_id,
        cache=request.cache,
        partitions=request.partitions,
        state="queued",
        trials=progress.trials,
        best_seconds=progress.best_seconds,
        gap=progress.gap,
        remaining_seconds=progress.remaining_seconds,
        kernels=progress.kernels,
        batches=0,
        cancel_requested=False,
        error=None,
        created_at=now,
        started_at=None,
        finished_at=None,
        attempts=0,
    )
    if active(session, request.plan_key) is not None:
        return None
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        if active(session, request.plan_key) is None:
            raise
        return None
    append(session, request.id, (EventDraft(type="state", data=_state(row)),), now=now)
    return _job(row)


def find(session: Session, id_: str) -> Job | None:
    """The job of this id."""
    row = session.get(JobRow, id_, populate_existing=True)
    return None if row is None else _job(row)


def active(session: Session, plan_key: str) -> Job | None:
    """The queued or running job for a plan key."""
    row = session.scalars(
        select(JobRow).where(JobRow.plan_key == plan_key, JobRow.state.in_(ACTIVE))
    ).first()
    return None if row is None else _job(row)


def latest(session: Session, plan_key: str) -> Job | None:
    """The job that was last made for a plan key, in any state."""
    row = session.scalars(
        select(JobRow)
        .where(JobRow.plan_key == plan_key)
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(1)
    ).first()
    return None if row is None else _job(row)


def latest_of(session: Session, plan_keys: Collection[str]) -> Mapping[str, Job]:
    """The job that was last made for each of these plan keys."""
    rows = session.scalars(
        select(JobRow)
        .where(JobRow.plan_key.in_(plan_keys))
        .order_by(JobRow.created_at, JobRow.id)
    )
    return {row.plan_key: _job(row) for row in rows}


def waiting(session: Session) -> Mapping[str, int]:
    """How many jobs wait on each queue."""
    rows = session.execute(
        select(JobRow.queue, func.count())
        .where(JobRow.state == "queued")
        .group_by(JobRow.queue)
    ).all()
    return {row[0]: row[1] for row in rows}


def page(
    session: Session,
    *,
    state: State | None = None,
    before: str | None = None,
    limit: int = 50,
) -> tuple[Job, ...]:
    """Jobs, the newest first.

    Args:
        session: where to look.
        state: only jobs in this state.
        before: id of a job; only older ones are given.
        limit: at most so many.
    """
    query = select(JobRow).order_by(JobRow.created_at.desc(), JobRow.id.desc())
    if state is not None:
        query = query.where(JobRow.state == state)
    if before is not None and (last := session.get(JobRow, before)) is not None:
        query = query.where(
            (JobRow.created_at < last.created_at)
            | ((JobRow.created_at == last.created_at) & (JobRow.id < last.id))
        )
    return tuple(map(_job, session.scalars(query.limit(limit))))


def count(session: Session) -> Mapping[State, int]:
    """How many jobs there are in each state."""
    rows = session.execute(
        select(JobRow.state, func.count()).group_by(JobRow.state)
    ).all()
    found: dict[str, int] = {row[0]: row[1] for row in rows}
    return {state: found.get(state, 0) for state in STATES}


def start(session: Session, id_: str, *, now: datetime) -> Job | None:
    """Take a queued job up; a running one goes on (its worker came back).

    Returns:
        The job, or None when it has ended or nobody knows it.
    """
    row = _held(session, id_)
    if row is None or row.state not in ACTIVE:
        return None
    if row.state == "queued":
        row.state = "running"
        row.started_at = now
        append(session, id_, (EventDraft(type="state", data=_state(row)),), now=now)
    return _job(row)


def begin_attempt(session: Session, id_: str) -> int:
    """Count a worker that begins a job; gives how many are counted now."""
    query = update(JobRow).where(JobRow.id == id_)
    query = query.values(attempts=JobRow.attempts + 1)
    return session.execute(query.returning(JobRow.attempts)).scalar() or 0


def leave_attempt(session: Session, id_: str) -> None:
    """Count a worker less: it left the job in order."""
    query = update(JobRow).where(JobRow.id == id_, JobRow.attempts > 0)
    session.execute(query.values(attempts=JobRow.attempts - 1))


def begin_anew(session: Session, id_: str, *, now: datetime) -> Job | None:
    """Bring an active job back to its beginning: what it stored stays known.

    A running one that was to be cancelled ends at once, since nobody runs it.

    Returns:
        The job, or None when nobody knows it.
    """
    row = _held(session, id_)
    if row is None or row.state not in ACTIVE:
        return None if row is None else _job(row)
    if row.cancel_requested:
        return finish(session, id_, "cancelled", now=now)
    row.batches = 0
    row.attempts = 0  # others may have died of a workflow that is no more
    if row.state == "running":
        row.state = "queued"
        append(session, id_, (EventDraft(type="state", data=_state(row)),), now=now)
    return _job(row)


def advance(session: Session, id_: str, *, batch: int, progress: Progress) -> bool:
    """Record that a batch is stored; False when it was already.

    A worker that was killed between the commit and its own note of it repeats the
    batch's end; this is what makes the repetition harmless.
    """
    changed = session.execute(
        update(JobRow)
        .where(JobRow.id == id_, JobRow.batches < batch)
        .values(
            batches=batch,
            attempts=1,  # what got further does not kill whoever works on it
            trials=progress.trials,
            best_seconds=progress.best_seconds,
            gap=progress.gap,
            remaining_seconds=progress.remaining_seconds,
        )
    )
    return bool(changed.rowcount)  # type: ignore[attr-defined]


def settle(
    session: Session, id_: str, progress: Progress, *, kernels: int | None = None
) -> None:
    """Record the last progress of a job, and the kernels of its best plan."""
    row = session.get(JobRow, id_, populate_existing=True)
    if row is None:
        return
    row.trials = progress.trials
    row.best_seconds = progress.best_seconds
    row.gap = progress.gap
    row.kernels = kernels or row.kernels
    session.flush()


def finish(
    session: Session,
    id_: str,
    state: Literal["succeeded", "partial", "failed", "cancelled"],
    *,
    now: datetime,
    error: Mapping[str, Any] | None = None,
    summary: Mapping[str, Any] | None = None,
) -> Job | None:
    """End an active job; a job that has ended stays as it is.

    Args:
        session: a writing session.
        id_: the job.
        state: how it ends.
        now: the present moment.
        error: problem+json, for a failed job.
        summary: what the `done` event says besides the state.
    """
    row = _held(session, id_)
    if row is None or row.state not in ACTIVE:
        return None if row is None else _job(row)
    row.state = state
    row.finished_at = now
    row.remaining_seconds = 0.0
    row.error = None if error is None else dict(error)
    done = {**_state(row), **(summary or {})}
    append(
        session,
        id_,
        (
            EventDraft(type="state", data=_state(row)),
            EventDraft(type="done", data=done),
        ),
        now=now,
    )
    return _job(row)


def request_cancel(session: Session, id_: str, *, now: datetime) -> Job | None:
    """Cancel a queued job at once, a running one after the batch in flight."""
    row = _held(session, id_)
    if row is None:
        return None
    if row.state == "queued":
        return finish(session, id_, "cancelled", now=now)
    if row.state == "running":
        row.cancel_requested = True
        session.flush()
    return _job(row)


def append(
    session: Session, id_: str, drafts: tuple[EventDraft, ...], *, now: datetime
) -> None:
    """Add events to a job; they get the next numbers."""
    _held(session, id_)
    events.add(session, id_, drafts, now=now)


def compared(
    session: Session, target: str, *, limit: int
) -> tuple[tuple[float, float], ...]:
    """Predicted and measured seconds of the newest kernel runs on a device.

    Args:
        session: where to look.
        target: catalogue id of the device.
        limit: at most so many.
    """
    rows = session.scalars(
        select(EventRow.data)
        .join(JobRow, JobRow.id == EventRow.job)
        .where(JobRow.target == target, EventRow.type == "trial")
        .order_by(EventRow.created_at.desc(), EventRow.job, EventRow.number.desc())
        .limit(limit)
    )
    pairs = ((data.get("predicted_seconds"), data.get("seconds")) for data in rows)
    return tuple((p, m) for p, m in pairs if p and m)


def _held(session: Session, id_: str) -> JobRow | None:
    """The row of a job; until the transaction ends nobody else changes it."""
    session.flush()
    return session.get(JobRow, id_, populate_existing=True, with_for_update=True)


def _state(row: JobRow) -> Mapping[str, Any]:
    return {
        "state": row.state,
        "plan_key": row.plan_key,
        "trials": row.trials,
        "best_seconds": row.best_seconds,
        "gap": row.gap,
        "error": row.error,
    }


def _job(row: JobRow) -> Job:
    request = JobRequest(
        id=row.id,
        plan_key=row.plan_key,
        graph_hash=row.graph_hash,
        target=row.target,
        queue=row.queue,
        title=row.title,
        input_digest=row.input_digest,
        input_form="json" if row.input_form == "json" else "onnx",
        options=row.options,
        names=row.names,
        budget_seconds=row.budget_seconds,
        budget_trials=row.budget_trials,
        priority=row.priority,
        request_id=row.request_id,
        cache="cold" if row.cache == "cold" else "warm",
        partitions=row.partitions,
    )
    return Job(
        request=request,
        state=next(state for state in STATES if state == row.state),
        progress=Progress(
            trials=row.trials,
            best_seconds=row.best_seconds,
            gap=row.gap,
            remaining_seconds=row.remaining_seconds,
            kernels=row.kernels,
        ),
        batches=row.batches,
        cancel_requested=row.cancel_requested,
        error=row.error,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        attempts=row.attempts,
    )
