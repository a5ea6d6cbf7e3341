"""What happens in jobs, in order: what a client that watches is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import ForeignKey, String, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a job; numbers count from 1 without holes."""

    job: str
    number: int
    type: str
    data: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """An event before it has a number."""

    type: str
    data: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


class EventRow(Base):
    """Table `job_events`."""

    __tablename__ = "job_events"

    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str] = mapped_column(String(20))
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


def add(
    session: Session, job: str, drafts: tuple[EventDraft, ...], *, now: datetime
) -> None:
    """Give events the next numbers of a job; the caller holds the job."""
    last = session.scalar(select(func.max(EventRow.number)).where(EventRow.job == job))
    session.add_all(
        EventRow(
            job=job,
            number=(last or 0) + position,
            type=draft.type,
            data=dict(draft.data),
            created_at=now,
        )
        for position, draft in enumerate(drafts, start=1)
    )
    session.flush()


def of_job(
    session: Session,
    id_: str,
    *,
    after: int = 0,
    types: tuple[str, ...] = (),
    limit: int = 500,
) -> tuple[Event, ...]:
    """Events of a job in order.

    Args:
        session: where to look.
        id_: the job.
        after: only events with a greater number.
        types: only these types; empty means all.
        limit: at most so many.
    """
    query = (
        select(EventRow)
        .where(EventRow.job == id_, EventRow.number > after)
        .order_by(EventRow.number)
        .limit(limit)
    )
    if types:
        query = query.where(EventRow.type.in_(types))
    return tuple(map(event_of, session.scalars(query)))


def event_of(row: EventRow) -> Event:
    """The event that a row holds."""
    return Event(
        job=row.job,
        number=row.number,
        type=row.type,
        data=row.data,
        created_at=row.created_at,
    )
