"""Content-addressed bytes: plan bodies, kernel sources, submitted models."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from sqlalchemy import ForeignKey, LargeBinary, String, select
from sqlalchemy.orm import Mapped, Session, deferred, mapped_column

from service.store.base import Base, insert_new, pass_together
from service.store.errors import BrokenReference
from service.store.values import Blob

STORING_TURN: Final = 7302
"""Place that many who store blobs pass together, and a collection alone."""


class BlobRow(Base):
    """Table `blobs`."""

    __tablename__ = "blobs"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    media_type: Mapped[str] = mapped_column(String(100))
    size_bytes: Mapped[int]
    public: Mapped[bool]
    created_at: Mapped[datetime]
    content: Mapped[bytes] = deferred(mapped_column(LargeBinary, nullable=False))


class BlobLinkRow(Base):
    """Table `blob_links`: a blob that names another keeps it alive."""

    __tablename__ = "blob_links"

    parent: Mapped[str] = mapped_column(ForeignKey("blobs.digest"), primary_key=True)
    child: Mapped[str] = mapped_column(ForeignKey("blobs.digest"), primary_key=True)


def put(session: Session, blobs: Iterable[Blob], *, now: datetime) -> None:
    """Store blobs; those that are there already stay as they are.

    Until the transaction ends no collection takes any of them away.
    """
    pass_together(session, STORING_TURN)
    wanted = {blob.digest: blob for blob in blobs}
    held = set(
        session.scalars(select(BlobRow.digest).where(BlobRow.digest.in_(wanted)))
    )
    rows = [
        {
            "digest": digest,
            "media_type": blob.media_type,
            "size_bytes": len(blob.content),
            "public": blob.public,
            "created_at": now,
            "content": blob.content,
        }
        for digest, blob in sorted(wanted.items())
        if digest not in held
    ]
    insert_new(session, BlobRow, rows)


def link(session: Session, parent: str, children: Iterable[str]) -> None:
    """Record that the blob `parent` names the blobs `children`.

    Raises:
        BrokenReference: a named blob is not stored.
    """
    wanted = set(children)
    held = set(
        session.scalars(select(BlobRow.digest).where(BlobRow.digest.in_(wanted)))
    )
    if missing := sorted(wanted - held):
        raise BrokenReference(f"blob {parent}", f"names {missing[0]}, not stored")
    rows = [{"parent": parent, "child": child} for child in sorted(wanted)]
    insert_new(session, BlobLinkRow, rows)


def find(session: Session, digest: str) -> Blob | None:
    """The blob of this digest, public or not."""
    row = session.execute(
        select(
            BlobRow.digest, BlobRow.media_type, BlobRow.content, BlobRow.public
        ).where(BlobRow.digest == digest)
    ).first()
    if row is None:
        return None
    return Blob(
        digest=row.digest,
        media_type=row.media_type,
        content=row.content,
        public=row.public,
    )


def children(session: Session, parents: Iterable[str]) -> tuple[str, ...]:
    """Digests of everything that these blobs name, sorted."""
    query = select(BlobLinkRow.child).where(BlobLinkRow.parent.in_(set(parents)))
    return tuple(sorted(set(session.scalars(query))))


def sizes(session: Session, digests: Iterable[str]) -> dict[str, int]:
    """Bytes of each of these blobs that is stored."""
    query = select(BlobRow.digest, BlobRow.size_bytes).where(
        BlobRow.digest.in_(set(digests))
    )
    return {row.digest: row.size_bytes for row in session.execute(query)}
