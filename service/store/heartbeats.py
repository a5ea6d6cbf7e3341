"""Signs of life of the workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import String, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """When a worker last said that it lives.

    Attributes:
        worker: its executor id, unique and stable: `host/device`.
        job: the job that it works on.
    """

    worker: str
    host: str
    pid: int
    device: str
    queue: str
    job: str | None
    started_at: datetime
    seen_at: datetime


class HeartbeatRow(Base):
    """Table `heartbeats`."""

    __tablename__ = "heartbeats"

    worker: Mapped[str] = mapped_column(String(300), primary_key=True)
    host: Mapped[str] = mapped_column(String(200))
    pid: Mapped[int]
    device: Mapped[str] = mapped_column(String(100))
    queue: Mapped[str] = mapped_column(String(100))
    job: Mapped[str | None] = mapped_column(String(40))
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


def beat(session: Session, heartbeat: Heartbeat) -> None:
    """Store a sign of life."""
    session.merge(
        HeartbeatRow(
            worker=heartbeat.worker,
            host=heartbeat.host,
            pid=heartbeat.pid,
            device=heartbeat.device,
            queue=heartbeat.queue,
            job=heartbeat.job,
            started_at=heartbeat.started_at,
            seen_at=heartbeat.seen_at,
        )
    )
    session.flush()


def remove(session: Session, worker: str) -> None:
    """Forget a worker that ended in order."""
    session.execute(delete(HeartbeatRow).where(HeartbeatRow.worker == worker))


def all_workers(session: Session) -> tuple[Heartbeat, ...]:
    """Every worker that has not ended in order."""
    rows = session.scalars(select(HeartbeatRow).order_by(HeartbeatRow.worker))
    return tuple(
        Heartbeat(
            worker=row.worker,
            host=row.host,
            pid=row.pid,
            device=row.device,
            queue=row.queue,
            job=row.job,
            started_at=row.started_at,
            seen_at=row.seen_at,
        )
        for row in rows
    )
