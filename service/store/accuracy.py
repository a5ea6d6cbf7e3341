"""How accurate predictions for a device were found to be, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRun:
    """One run of `fuseplan accuracy`.

    Attributes:
        target: catalogue id of the device.
        digest: of the numbers that predicted.
        summary: what the run found, as the command prints it as JSON.
    """

    target: str
    host: str
    digest: str
    summary: Mapping[str, Any]
    created_at: datetime


class AccuracyRow(Base):
    """Table `accuracy_runs`."""

    __tablename__ = "accuracy_runs"

    id: Mapped[int] = mapped_column(primary_key=True)
    target: Mapped[str] = mapped_column(String(100), index=True)
    host: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64))
    summary: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


def record(session: Session, run: AccuracyRun) -> None:
    """Remember a run; none replaces another."""
    session.add(
        AccuracyRow(
            target=run.target,
            host=run.host[:200],
            digest=run.digest,
            summary=dict(run.summary),
            created_at=run.created_at,
        )
    )
    session.flush()


def runs(session: Session, target: str, *, limit: int) -> tuple[AccuracyRun, ...]:
    """The newest runs for a device, the oldest of them first."""
    rows = session.scalars(
        select(AccuracyRow)
        .where(AccuracyRow.target == target)
        .order_by(AccuracyRow.id.desc())
        .limit(limit)
    ).all()
    return tuple(
        AccuracyRun(
            target=row.target,
            host=row.host,
            digest=row.digest,
            summary=row.summary,
            created_at=row.created_at,
        )
        for row in reversed(rows)
    )
