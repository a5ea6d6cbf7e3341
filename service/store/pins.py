"""Plans that somebody keeps as they are, and plans that are given out no more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ForeignKey, String, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base, insert_new


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A key whose plan stays the one that it is.

    Attributes:
        actor: who pinned it.
    """

    key: str
    actor: str
    created_at: datetime


class PinRow(Base):
    """Table `plan_pins`."""

    __tablename__ = "plan_pins"

    key: Mapped[str] = mapped_column(ForeignKey("plans.key"), primary_key=True)
    actor: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]


def pin(session: Session, key: str, *, actor: str, now: datetime) -> None:
    """Keep the plan of a key: no better one replaces it, nobody evicts it."""
    insert_new(session, PinRow, [{"key": key, "actor": actor[:100], "created_at": now}])


def unpin(session: Session, key: str) -> bool:
    """Let a key go again; False when it was not pinned."""
    found = session.execute(delete(PinRow).where(PinRow.key == key))
    return bool(found.rowcount)  # type: ignore[attr-defined]


def pinned(session: Session, keys: Collection[str]) -> Mapping[str, Pin]:
    """The pins of these keys."""
    rows = session.scalars(select(PinRow).where(PinRow.key.in_(keys)))
    return {
        row.key: Pin(key=row.key, actor=row.actor, created_at=row.created_at)
        for row in rows
    }
