"""What a fleet did and when: jobs of a span of time, and the steps in each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from service.store.events import EventRow
from service.store.jobs import ACTIVE, Job, JobRow, find


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Trials that were stored together, alike in failure and contention.

    Attributes:
        at: when they were stored.
        failure: empty, or the kind of failure.
    """

    job: str
    at: datetime
    trials: int
    failure: str
    contended: bool


def queued(session: Session) -> tuple[Job, ...]:
    """Jobs that wait or run, queue by queue; those that are next come first."""
    ids = session.scalars(
        select(JobRow.id)
        .where(JobRow.state.in_(ACTIVE))
        .order_by(
            JobRow.queue,
            JobRow.state.desc(),
            JobRow.priority,
            JobRow.created_at,
            JobRow.id,
        )
    ).all()
    return tuple(job for id_ in ids if (job := find(session, id_)) is not None)


def between(
    session: Session, target: str, since: datetime, until: datetime, *, limit: int
) -> tuple[Job, ...]:
    """Jobs for a device that ran or waited in a span, the newest first.

    Args:
        session: where to look.
        target: catalogue id of the device.
        since: begin of the span.
        until: its end.
        limit: at most so many.
    """
    ids = session.scalars(
        select(JobRow.id)
        .where(JobRow.target == target, JobRow.created_at <= until)
        .where(or_(JobRow.finished_at.is_(None), JobRow.finished_at >= since))
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(limit)
    ).all()
    return tuple(job for id_ in ids if (job := find(session, id_)) is not None)


def steps(session: Session, job_ids: Collection[str]) -> tuple[Step, ...]:
    """What these jobs stored, in the order of time."""
    failure = EventRow.data["failure"].as_string()
    contended = EventRow.data["contended"].as_boolean()
    is_trial = and_(EventRow.job.in_(job_ids), EventRow.type == "trial")
    rows = session.execute(
        select(EventRow.job, EventRow.created_at, failure, contended, func.count())
        .where(is_trial)
        .group_by(EventRow.job, EventRow.created_at, failure, contended)
        .order_by(EventRow.created_at, EventRow.job)
    ).all()
    return tuple(
        Step(
            job=row[0],
            at=row[1],
            trials=row[4],
            failure=row[2] or "",
            contended=bool(row[3]),
        )
        for row in rows
    )
