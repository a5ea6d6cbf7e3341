"""Devices that workers offer, and calibrations of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDevice:
    """A device as a worker described it.

    Attributes:
        name: device string of the worker, such as `cpu` or `cuda:0`.
        target: catalogue id that its measurements belong to.
        queues: queues that the worker serves with it.
        facts: driver, processor, compiler ..., JSON-ready.
    """

    name: str
    host: str
    target: str
    queues: tuple[str, ...]
    facts: Mapping[str, Any]
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Numbers of a device, fitted to micro-benchmarks.

    Attributes:
        digest: SHA-256 of the numbers.
    """

    target: str
    host: str
    digest: str
    numbers: Mapping[str, Any]
    created_at: datetime


class DeviceRow(Base):
    """Table `devices`."""

    __tablename__ = "devices"

    host: Mapped[str] = mapped_column(String(200), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    target: Mapped[str] = mapped_column(String(100), index=True)
    queues: Mapped[list[Any]]
    facts: Mapped[dict[str, Any]]
    seen_at: Mapped[datetime]


class CalibrationRow(Base):
    """Table `calibrations`."""

    __tablename__ = "calibrations"

    id: Mapped[int] = mapped_column(primary_key=True)
    target: Mapped[str] = mapped_column(String(100), index=True)
    host: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64))
    numbers: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


def put(session: Session, device: StoredDevice) -> None:
    """Store what a worker says about its device."""
    session.merge(
        DeviceRow(
            host=device.host,
            name=device.name,
            target=device.target,
            queues=list(device.queues),
            facts=dict(device.facts),
            seen_at=device.seen_at,
        )
    )
    session.flush()


def offered(session: Session) -> tuple[StoredDevice, ...]:
    """Every device that a worker ever offered."""
    rows = session.scalars(select(DeviceRow).order_by(DeviceRow.host, DeviceRow.name))
    return tuple(
        StoredDevice(
            name=row.name,
            host=row.host,
            target=row.target,
            queues=tuple(row.queues),
            facts=row.facts,
            seen_at=row.seen_at,
        )
        for row in rows
    )


def calibrate(session: Session, calibration: Calibration) -> None:
    """Store a calibration; the newest of a target is the one in force."""
    session.add(
        CalibrationRow(
            target=calibration.target,
            host=calibration.host,
            digest=calibration.digest,
            numbers=dict(calibration.numbers),
            created_at=calibration.created_at,
        )
    )
    session.flush()


def calibration(session: Session, target: str) -> Calibration | None:
    """The newest calibration of a target."""
    row = session.scalars(
        select(CalibrationRow)
        .where(CalibrationRow.target == target)
        .order_by(CalibrationRow.id.desc())
        .limit(1)
    ).first()
    if row is None:
        return None
    return Calibration(
        target=row.target,
        host=row.host,
        digest=row.digest,
        numbers=row.numbers,
        created_at=row.created_at,
    )


def calibrations(session: Session, target: str) -> tuple[Calibration, ...]:
    """Every calibration of a target, newest first."""
    rows = session.scalars(
        select(CalibrationRow)
        .where(CalibrationRow.target == target)
        .order_by(CalibrationRow.id.desc())
    )
    return tuple(
        Calibration(
            target=row.target,
            host=row.host,
            digest=row.digest,
            numbers=row.numbers,
            created_at=row.created_at,
        )
        for row in rows
    )
