"""Trials of a job: its events of that type, and the samples behind each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from service.store.jobs import Event, EventRow, event_of
from service.store.measurements import MeasurementRow, StoredMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which trials of a job are asked for; what is empty does not matter.

    Attributes:
        kernel: fingerprint of the kernel.
        family: family of the kernel.
        failure: kind of failure, `any`, or `none`.
    """

    kernel: str = ""
    family: str = ""
    failure: str = ""


def count(session: Session, job: str, wanted: Wanted) -> int:
    """How many trials there are."""
    query = select(func.count()).select_from(EventRow).where(*_where(job, wanted))
    return session.scalar(query) or 0


def page(
    session: Session, job: str, wanted: Wanted, *, after: int, limit: int
) -> tuple[Event, ...]:
    """Trials in order.

    Args:
        session: where to look.
        job: id of the job.
        wanted: which trials.
        after: only events with a greater number.
        limit: at most so many.
    """
    query = _select(job, wanted).where(EventRow.number > after).limit(limit)
    return _events(session, query)


def sample(
    session: Session, job: str, wanted: Wanted, *, limit: int
) -> tuple[Event, ...]:
    """At most so many trials, evenly spaced over all of them, the last one included."""
    query = (
        select(EventRow.number).where(*_where(job, wanted)).order_by(EventRow.number)
    )
    numbers = tuple(session.scalars(query))
    if len(numbers) <= limit:
        return _events(session, _select(job, wanted))
    step = (len(numbers) - 1) / max(1, limit - 1)
    chosen = {numbers[round(place * step)] for place in range(limit)}
    return _events(session, _select(job, wanted).where(EventRow.number.in_(chosen)))


def find(session: Session, job: str, number: int) -> Event | None:
    """The trial whose event has this number."""
    query = _select(job, Wanted()).where(EventRow.number == number)
    return next(iter(_events(session, query)), None)


def failures(session: Session, job: str) -> dict[str, int]:
    """How many trials of a job failed, by kind."""
    kind = EventRow.data["failure"].as_string()
    query = (
        select(kind, func.count())
        .where(*_where(job, Wanted(failure="any")))
        .group_by(kind)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def measurement(session: Session, job: str, subject: str) -> StoredMeasurement | None:
    """What a job measured last under a measurement key."""
    row = session.scalars(
        select(MeasurementRow)
        .where(MeasurementRow.job == job, MeasurementRow.subject == subject)
        .order_by(MeasurementRow.id.desc())
        .limit(1)
    ).first()
    if row is None:
        return None
    return StoredMeasurement(
        job=row.job,
        subject=row.subject,
        kernel=row.kernel,
        device=row.device,
        schedule=row.schedule,
        seconds=row.seconds,
        low_seconds=row.low_seconds,
        high_seconds=row.high_seconds,
        samples=tuple(row.samples),
        failure=row.failure,
        result=row.result,
    )


def _where(job: str, wanted: Wanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [EventRow.job == job, EventRow.type == "trial"]
    text = {name: EventRow.data[name].as_string() for name in ("kernel", "family")}
    found += [
        column == getattr(wanted, name)
        for name, column in text.items()
        if getattr(wanted, name)
    ]
    failure = EventRow.data["failure"].as_string()
    match wanted.failure:
        case "":
            pass
        case "any":
            found.append(failure != "")
        case "none":
            found.append(failure == "")
        case kind:
            found.append(failure == kind)
    return found


def _select(job: str, wanted: Wanted) -> Select[Any]:
    return select(EventRow).where(*_where(job, wanted)).order_by(EventRow.number)


def _events(session: Session, query: Select[Any]) -> tuple[Event, ...]:
    return tuple(map(event_of, session.scalars(query)))
