"""The table base, and column types that both databases share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import JSON, DateTime, Dialect, MetaData, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.types import TypeDecorator

MOST_NUMBER: Final = 2**53 - 1
"""Largest number of an event, or of a row, that a client may name: both databases hold
it, and every reader of JSON tells it from its neighbours (RFC 8259, section 6)."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with its time zone, kept as UTC without one."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(
        self,
        value: datetime | None,
        dialect: Dialect,  # noqa: ARG002 - given by SQLAlchemy
    ) -> datetime | None:
        """Refuse a moment without a zone; store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            msg = "a stored moment needs a time zone"
            raise ValueError(msg)
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(
        self,
        value: datetime | None,
        dialect: Dialect,  # noqa: ARG002 - given by SQLAlchemy
    ) -> datetime | None:
        """Give the moment its zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """Base of all tables of the service; the job engine's tables are not here."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own class attribute
        datetime: UtcDateTime,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


def insert_new(
    session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Insert rows; those whose key is taken, even a moment ago, stay as they are."""
    if not rows:
        return
    is_postgres = session.get_bind().dialect.name == "postgresql"
    insert = postgresql.insert if is_postgres else sqlite.insert
    session.execute(insert(table).on_conflict_do_nothing(), [dict(row) for row in rows])


def take_turns(session: Session, turn: int) -> None:
    """Let one transaction at a time pass here; the others wait for its end.

    SQLite has one writer at a time anyway.

    Args:
        session: a writing session.
        turn: number of the place; any number that no other place uses.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": turn})


def pass_together(session: Session, turn: int) -> None:
    """Pass a place where others may pass at the same time, but nobody `take_turns`.

    Args:
        session: a writing session.
        turn: number of the place.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(
            text("SELECT pg_advisory_xact_lock_shared(:turn)"), {"turn": turn}
        )
