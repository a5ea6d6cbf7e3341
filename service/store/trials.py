"""Trials of a job: its events of that type, and what it decided between them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from service.store.events import Event, EventRow, event_of

CURVE: Final = ("trial", "resolve")
"""Types of events after each of which the best plan's time is known."""

DECISIONS: Final = ("resolve", "plan")


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


def curve(session: Session, job: str, *, until: int) -> tuple[tuple[int, float], ...]:
    """Number and best time of every event that tells one, in order, and nothing else.

    A curve of 10,000 trials is thinned to a few hundred before a whole event is read.

    Args:
        session: where to look.
        job: id of the job.
        until: only events up to this number.
    """
    best = EventRow.data["best_seconds"].as_float()
    query = (
        select(EventRow.number, best)
        .where(EventRow.job == job, EventRow.number <= until)
        .where(EventRow.type.in_(CURVE))
        .order_by(EventRow.number)
    )
    return tuple(
        (number, seconds) for number, seconds in session.execute(query) if seconds
    )


def chosen(session: Session, job: str, numbers: Collection[int]) -> tuple[Event, ...]:
    """The events of a job with these numbers, in order."""
    query = (
        select(EventRow)
        .where(EventRow.job == job, EventRow.number.in_(numbers))
        .order_by(EventRow.number)
    )
    return _events(session, query)


def decisions(session: Session, job: str) -> tuple[Event, ...]:
    """What a job decided between its trials: partitions solved, whole plans timed."""
    query = (
        select(EventRow)
        .where(EventRow.job == job, EventRow.type.in_(DECISIONS))
        .order_by(EventRow.number)
    )
    return _events(session, query)


def last_told(session: Session, job: str, kind: str) -> Event | None:
    """The newest event of a job of one type; None before the first."""
    query = (
        select(EventRow)
        .where(EventRow.job == job, EventRow.type == kind)
        .order_by(EventRow.number.desc())
        .limit(1)
    )
    return next(iter(_events(session, query)), None)


def last_number(session: Session, job: str) -> int:
    """Number of the newest event of a job; zero before the first."""
    query = select(func.max(EventRow.number)).where(EventRow.job == job)
    return session.scalar(query) or 0


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
