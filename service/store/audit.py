"""Who changed what, and when; rows are only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDraft:
    """Something that somebody did.

    Attributes:
        actor: name of the token, `local` without tokens, or `cli`.
        action: what was done, such as `job.submit` or `token.revoke`.
        subject: what it was done to.
        request_id: the request that did it; empty outside of HTTP.
    """

    actor: str
    action: str
    subject: str
    request_id: str = ""
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """The same, with its number and its moment."""

    id: int
    draft: AuditDraft
    created_at: datetime


class AuditRow(Base):
    """Table `audit_events`."""

    __tablename__ = "audit_events"

    id: Mapped[int] = mapped_column(primary_key=True)
    actor: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(50))
    subject: Mapped[str] = mapped_column(String(200))
    request_id: Mapped[str] = mapped_column(String(64))
    details: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


def record(session: Session, draft: AuditDraft, *, now: datetime) -> None:
    """Add an event, in the transaction of what it tells of."""
    session.add(
        AuditRow(
            actor=draft.actor[:100],
            action=draft.action,
            subject=draft.subject[:200],
            request_id=draft.request_id,
            details=dict(draft.details),
            created_at=now,
        )
    )
    session.flush()


def page(
    session: Session, *, before: int | None = None, limit: int = 50
) -> tuple[AuditEvent, ...]:
    """Events, the newest first.

    Args:
        session: where to look.
        before: only events with a smaller number.
        limit: at most so many.
    """
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditRow.id < before)
    return tuple(
        AuditEvent(
            id=row.id,
            draft=AuditDraft(
                actor=row.actor,
                action=row.action,
                subject=row.subject,
                request_id=row.request_id,
                details=row.details,
            ),
            created_at=row.created_at,
        )
        for row in session.scalars(query)
    )
