"""What is kept and what goes: a collection of the old, and a check of the rest.

A pointer is never broken: what a pointer, a kept revision or a kept job names stays,
and all that it names in turn. On PostgreSQL a collection and whoever stores blobs
exclude each other (`blobs.put`), so that nothing is taken away between being found and
being named; SQLite has one writer at a time anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    CursorResult,
    Delete,
    Select,
    Update,
    delete,
    func,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.orm import Session

from service.store.audit import AuditRow
from service.store.base import take_turns
from service.store.blobs import STORING_TURN, BlobLinkRow, BlobRow
from service.store.events import EventRow
from service.store.jobs import ACTIVE, JobRow
from service.store.measurements import MeasurementRow
from service.store.plans import PlanPointerRow, PlanRevisionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is too old.

    Attributes:
        revisions_before: older plans of a key that were stored before go ...
        keep_revisions: ... but for so many, the newest ones.
        jobs_before: jobs that ended before go, with events and handed-in models.
        audit_before: audit events before go.
    """

    revisions_before: datetime
    keep_revisions: int
    jobs_before: datetime
    audit_before: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """How much went."""

    revisions: int
    jobs: int
    audit_events: int
    blobs: int
    blob_bytes: int


def collect(session: Session, retention: Retention) -> Collected:
    """Remove what is too old, and every blob that then is named by nothing.

    Measurements stay, and save other jobs the same work; so does what a key stands for.
    """
    take_turns(session, STORING_TURN)
    revisions = _run(
        session,
        delete(PlanRevisionRow).where(PlanRevisionRow.id.in_(_outlived(retention))),
    )
    ended = (
        select(JobRow.id)
        .where(JobRow.state.not_in(ACTIVE))
        .where(JobRow.finished_at < retention.jobs_before)
    )
    _run(
        session,
        update(MeasurementRow).where(MeasurementRow.job.in_(ended)).values(job=None),
    )
    _run(session, delete(EventRow).where(EventRow.job.in_(ended)))
    jobs = _run(session, delete(JobRow).where(JobRow.id.in_(ended)))
    audit_events = _run(
        session, delete(AuditRow).where(AuditRow.created_at < retention.audit_before)
    )
    named = _named()
    blobs, blob_bytes = session.execute(
        select(func.count(), func.sum(BlobRow.size_bytes)).where(
            BlobRow.digest.not_in(named)
        )
    ).one()
    _run(session, delete(BlobLinkRow).where(BlobLinkRow.parent.not_in(named)))
    _run(session, delete(BlobRow).where(BlobRow.digest.not_in(named)))
    return Collected(
        revisions=revisions,
        jobs=jobs,
        audit_events=audit_events,
        blobs=blobs,
        blob_bytes=int(blob_bytes or 0),
    )


def faults(session: Session) -> Iterator[str]:
    """What is wrong with what is stored: one line for each fault.

    Every pointer leads to a body that has its digest, and so does all that it names;
    what it holds a copy of is as the copy says.
    """
    other = or_(
        PlanPointerRow.digest.is_distinct_from(PlanRevisionRow.digest),
        PlanPointerRow.objective_seconds.is_distinct_from(
            PlanRevisionRow.objective_seconds
        ),
        PlanPointerRow.kernels.is_distinct_from(PlanRevisionRow.kernels),
    )
    for key, evidence in session.execute(
        select(PlanPointerRow.key, PlanPointerRow.evidence)
        .join(PlanRevisionRow, PlanRevisionRow.id == PlanPointerRow.copy_of)
        .where(other)
        .order_by(PlanPointerRow.key, PlanPointerRow.evidence)
    ):
        yield f"the {evidence} pointer of plan {key} is no copy of its revision"
    rows = session.execute(
        select(PlanPointerRow.key, PlanPointerRow.evidence, PlanRevisionRow.digest)
        .join(PlanRevisionRow, PlanRevisionRow.id == PlanPointerRow.revision_id)
        .order_by(PlanPointerRow.key, PlanPointerRow.evidence)
    ).all()
    bodies: dict[str, str] = {row.digest: f"plan {row.key}" for row in rows}
    names = dict(bodies)
    links = select(BlobLinkRow.parent, BlobLinkRow.child)
    for parent, child in session.execute(links).all():
        if parent in bodies:
            names.setdefault(child, f"{bodies[parent]}, which names it")
    for digest in sorted(names):
        content = session.scalar(
            select(BlobRow.content).where(BlobRow.digest == digest)
        )
        if content is None:
            yield f"blob {digest} is missing ({names[digest]})"
        elif hashlib.sha256(content).hexdigest() != digest:
            yield f"blob {digest} has other bytes ({names[digest]})"


def _outlived(retention: Retention) -> Select[Any]:
    """Revisions that nobody is given, older than wanted, and neither of the newest."""
    pointed = select(PlanPointerRow.revision_id)
    place = func.row_number().over(
        partition_by=PlanRevisionRow.key, order_by=PlanRevisionRow.revision.desc()
    )
    older = (
        select(PlanRevisionRow.id, PlanRevisionRow.created_at, place.label("place"))
        .where(PlanRevisionRow.id.not_in(pointed))
        .subquery()
    )
    newest = select(func.max(PlanRevisionRow.id)).group_by(PlanRevisionRow.key)
    return (
        select(older.c.id)
        .where(older.c.place > retention.keep_revisions)
        .where(older.c.created_at < retention.revisions_before)
        # Numbers of revisions go on from the newest one: they never come twice.
        .where(older.c.id.not_in(newest))
    )


def _named() -> Select[Any]:
    """Digests of all that a revision or a job names, and of what that names in turn."""
    roots = union(
        select(PlanRevisionRow.digest), select(JobRow.input_digest)
    ).subquery()
    found = select(roots.c[0].label("digest")).cte("named", recursive=True)
    found = found.union(
        select(BlobLinkRow.child).join(found, found.c.digest == BlobLinkRow.parent)
    )
    return select(found.c.digest)


def _run(session: Session, statement: Delete | Update) -> int:
    done = session.execute(statement, execution_options={"synchronize_session": False})
    assert isinstance(done, CursorResult)
    return done.rowcount
