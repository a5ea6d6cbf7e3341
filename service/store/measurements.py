"""Measurements of kernels and whole plans: all samples, not only the best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, Index, String, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base, take_turns

_TURN: Final = 7301
"""Place at which writers take turns, so that ids become visible in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMeasurement:
    """One verified and timed run of a kernel under a schedule, or its failure.

    Attributes:
        subject: what makes two measurements comparable: kernel, schedule, toolchain.
        kernel: fingerprint of the kernel; None for a whole plan.
        device: catalogue id of the target it was made for.
        seconds: median of the samples; None when it failed.
        samples: every timed run, in seconds, in order.
        failure: empty, or the kind of failure.
        result: what the tuner said, as it wants it back.
    """

    job: str | None
    subject: str
    kernel: str | None
    device: str
    schedule: Mapping[str, Any]
    seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    samples: tuple[float, ...]
    failure: str
    result: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        result: Mapping[str, Any],
        *,
        subject: str,
        device: str,
        kernel: str | None = None,
        schedule: Mapping[str, Any] | None = None,
        job: str | None = None,
    ) -> StoredMeasurement:
        """A run as the tuner told it; times that are no numbers become none."""
        return cls(
            job=job,
            subject=subject,
            kernel=kernel,
            device=device,
            schedule=schedule or {},
            seconds=_finite(result["seconds"]),
            low_seconds=_finite(result.get("low_seconds")),
            high_seconds=_finite(result.get("high_seconds")),
            samples=tuple(result.get("samples", ())),
            failure=result.get("failure", ""),
            result=result,
        )


def _finite(value: Any) -> float | None:
    if isinstance(value, float | int) and math.isfinite(value):
        return float(value)
    return None


class MeasurementRow(Base):
    """Table `measurements`."""

    __tablename__ = "measurements"
    __table_args__ = (Index(None, "device", "subject"), Index(None, "kernel"))

    id: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), index=True)
    subject: Mapped[str] = mapped_column(String(200))
    kernel: Mapped[str | None] = mapped_column(
        String(100), ForeignKey("kernels.fingerprint")
    )
    device: Mapped[str] = mapped_column(String(100))
    schedule: Mapped[dict[str, Any]]
    seconds: Mapped[float | None]
    low_seconds: Mapped[float | None]
    high_seconds: Mapped[float | None]
    samples: Mapped[list[Any]]
    failure: Mapped[str] = mapped_column(String(20))
    result: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


def add(
    session: Session, measurements: Iterable[StoredMeasurement], *, now: datetime
) -> None:
    """Store measurements; none replaces another.

    A smaller id is never seen after a greater one, on no database: a job that is
    repeated after a crash finds exactly what it found before (`known`).
    """
    take_turns(session, _TURN)
    session.add_all(
        MeasurementRow(
            job=one.job,
            subject=one.subject,
            kernel=one.kernel,
            device=one.device,
            schedule=dict(one.schedule),
            seconds=one.seconds,
            low_seconds=one.low_seconds,
            high_seconds=one.high_seconds,
            samples=list(one.samples),
            failure=one.failure,
            result=dict(one.result),
            created_at=now,
        )
        for one in measurements
    )
    session.flush()


def known(
    session: Session, device: str, *, until: int
) -> Mapping[str, Mapping[str, Any]]:
    """What the tuner said last about each kernel and schedule on a device.

    Measurements are only ever added, so equal arguments give equal answers.

    Args:
        session: where to look.
        device: catalogue id of the target.
        until: id of the last measurement that counts.
    """
    query = (
        select(MeasurementRow.subject, MeasurementRow.result)
        .where(MeasurementRow.device == device, MeasurementRow.kernel.is_not(None))
        .where(MeasurementRow.id <= until)
        .order_by(MeasurementRow.id)
    )
    return {row.subject: row.result for row in session.execute(query)}


def elsewhere(
    session: Session, device: str, *, until: int
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The fastest run of each kernel on each other device, with the device's id.

    Args:
        session: where to look.
        device: catalogue id of the target; its own runs are left out.
        until: id of the last measurement that counts.
    """
    place = func.row_number().over(
        partition_by=(MeasurementRow.device, MeasurementRow.kernel),
        order_by=(MeasurementRow.seconds, MeasurementRow.id),
    )
    ranked = (
        select(MeasurementRow.id, place.label("place"))
        .where(MeasurementRow.device != device, MeasurementRow.kernel.is_not(None))
        .where(MeasurementRow.seconds.is_not(None), MeasurementRow.id <= until)
        .subquery()
    )
    query = (
        select(MeasurementRow.device, MeasurementRow.result)
        .join(ranked, ranked.c.id == MeasurementRow.id)
        .where(ranked.c.place == 1)
        .order_by(MeasurementRow.id)
    )
    return tuple((row.device, row.result) for row in session.execute(query))


def last_id(session: Session) -> int:
    """Id of the newest measurement; 0 when there is none."""
    return session.scalar(select(func.max(MeasurementRow.id))) or 0


def of_job(session: Session, job: str) -> tuple[StoredMeasurement, ...]:
    """Measurements that a job made, in order."""
    rows = session.scalars(
        select(MeasurementRow)
        .where(MeasurementRow.job == job)
        .order_by(MeasurementRow.id)
    )
    return tuple(map(_measurement, rows))


def last_of_job(session: Session, job: str, subject: str) -> StoredMeasurement | None:
    """What a job measured last under a measurement key."""
    row = session.scalars(
        select(MeasurementRow)
        .where(MeasurementRow.job == job, MeasurementRow.subject == subject)
        .order_by(MeasurementRow.id.desc())
        .limit(1)
    ).first()
    return None if row is None else _measurement(row)


def count(session: Session) -> int:
    """How many measurements are stored."""
    return session.scalar(select(func.count()).select_from(MeasurementRow)) or 0


def failures(session: Session) -> Mapping[str, int]:
    """How many measurements failed, by kind of failure."""
    rows = session.execute(
        select(MeasurementRow.failure, func.count())
        .where(MeasurementRow.failure != "")
        .group_by(MeasurementRow.failure)
    ).all()
    return {row[0]: row[1] for row in rows}


def _measurement(row: MeasurementRow) -> StoredMeasurement:
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
