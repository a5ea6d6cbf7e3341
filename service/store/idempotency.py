"""Requests that may be repeated: the client's key, and what it was answered.

A key lives for a day; after that a repeated request is a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import String, delete
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base, insert_new

LIFETIME: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What the first request with a key was, and led to.

    Attributes:
        key_hash: SHA-256 of the client's key and of who sent it.
        fingerprint: SHA-256 of the whole request.
        job: the job that it made or joined, if one.
    """

    key_hash: str
    fingerprint: str
    plan_key: str
    job: str | None


class IdempotencyRow(Base):
    """Table `idempotency_keys`."""

    __tablename__ = "idempotency_keys"

    key_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    plan_key: Mapped[str] = mapped_column(String(64))
    job: Mapped[str | None] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(index=True)


def find(session: Session, key_hash: str, *, now: datetime) -> Repeated | None:
    """The first request with this key, unless it is too long ago."""
    row = session.get(IdempotencyRow, key_hash)
    if row is None or row.created_at < now - LIFETIME:
        return None
    return Repeated(
        key_hash=row.key_hash,
        fingerprint=row.fingerprint,
        plan_key=row.plan_key,
        job=row.job,
    )


def remember(session: Session, first: Repeated, *, now: datetime) -> None:
    """Remember a request by its key, and forget those that are too old."""
    session.execute(
        delete(IdempotencyRow).where(IdempotencyRow.created_at < now - LIFETIME)
    )
    insert_new(
        session,
        IdempotencyRow,
        [
            {
                "key_hash": first.key_hash,
                "fingerprint": first.fingerprint,
                "plan_key": first.plan_key,
                "job": first.job,
                "created_at": now,
            }
        ],
    )
