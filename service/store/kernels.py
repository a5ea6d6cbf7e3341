"""Kernels that were ever measured, by their name-free fingerprint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base, insert_new


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKernel:
    """A kernel's own small graph, whatever its place in whichever model."""

    fingerprint: str
    family: str


class KernelRow(Base):
    """Table `kernels`."""

    __tablename__ = "kernels"

    fingerprint: Mapped[str] = mapped_column(String(100), primary_key=True)
    family: Mapped[str] = mapped_column(String(30))
    created_at: Mapped[datetime]


def put(session: Session, kernels: Iterable[StoredKernel], *, now: datetime) -> None:
    """Remember kernels; those known already stay as they are."""
    wanted = {kernel.fingerprint: kernel for kernel in kernels}
    rows = [
        {"fingerprint": fingerprint, "family": kernel.family, "created_at": now}
        for fingerprint, kernel in sorted(wanted.items())
    ]
    insert_new(session, KernelRow, rows)
