"""Plans: the pointer from key to digest, for each evidence, and its history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    ForeignKey,
    Index,
    Row,
    Select,
    String,
    case,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store import blobs, pins
from service.store.base import Base, insert_new
from service.store.values import Blob, Evidence, PlanIdentity, PlanRevision

ORDER: Final[tuple[Evidence, ...]] = ("measured", "compiled", "analytic")
"""Evidence from best to worst."""

BODY_TYPE: Final = "application/vnd.fuseplan.plan+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPointer:
    """The best plan of a key for one evidence."""

    key: str
    evidence: Evidence
    digest: str
    revision: int
    seconds: float
    objective_seconds: float
    bound_seconds: float
    kernels: int
    job: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPlace:
    """Where the best plan of a key is, for whoever asks for many."""

    key: str
    evidence: Evidence
    digest: str
    objective_seconds: float
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A pointer with the bytes that it points to."""

    pointer: PlanPointer
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """A line of a list of plans."""

    identity: PlanIdentity
    pointer: PlanPointer


class PlanRow(Base):
    """Table `plans`."""

    __tablename__ = "plans"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    graph_hash: Mapped[str] = mapped_column(ForeignKey("graphs.hash"), index=True)
    target: Mapped[str] = mapped_column(String(100))
    parts: Mapped[dict[str, Any]]
    options: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class PlanRevisionRow(Base):
    """Table `plan_revisions`: every plan that was ever stored under a key."""

    __tablename__ = "plan_revisions"
    __table_args__ = (Index(None, "key", "revision", unique=True),)

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(ForeignKey("plans.key"))
    revision: Mapped[int]
    evidence: Mapped[str] = mapped_column(String(20))
    digest: Mapped[str] = mapped_column(ForeignKey("blobs.digest"))
    seconds: Mapped[float]
    objective_seconds: Mapped[float]
    bound_seconds: Mapped[float]
    kernels: Mapped[int]
    job: Mapped[str | None] = mapped_column(String(40))
    created_at: Mapped[datetime]


class PlanPointerRow(Base):
    """Table `plan_pointers`: the revision that is served, for each evidence.

    It holds a copy of what a lookup of many keys answers with: a search in two tables
    for each of a thousand keys takes twice as long, and the longer the more there are.
    The copy counts only while it is of the revision pointed to: a program of before
    revision 0006, which may write beside this one, moves the pointer alone.

    Attributes:
        copy_of: id of the revision that the other columns are a copy of.
    """

    __tablename__ = "plan_pointers"
    __table_args__ = (
        # One page in place of the four of a tree; SQLite has nothing like it.
        Index(None, "key", postgresql_using="hash").ddl_if(dialect="postgresql"),
    )

    key: Mapped[str] = mapped_column(ForeignKey("plans.key"), primary_key=True)
    evidence: Mapped[str] = mapped_column(String(20), primary_key=True)
    revision_id: Mapped[int] = mapped_column(ForeignKey("plan_revisions.id"))
    copy_of: Mapped[int | None]
    digest: Mapped[str | None] = mapped_column(String(64))
    objective_seconds: Mapped[float | None]
    kernels: Mapped[int | None]


def register(session: Session, identity: PlanIdentity, *, now: datetime) -> None:
    """Remember what a key stands for, unless it is known already."""
    row = {
        "key": identity.key,
        "graph_hash": identity.graph_hash,
        "target": identity.target,
        "parts": dict(identity.parts),
        "options": dict(identity.options),
        "created_at": now,
    }
    insert_new(session, PlanRow, [row])


def publish(
    session: Session, key: str, revision: PlanRevision, *, now: datetime
) -> PlanPointer:
    """Store a plan with all that it names, and point to it if it is better.

    A plan of equal evidence that is not faster than the one pointed to is kept in the
    history only: the service never gets worse. Equal bytes are stored once. While a
    key is pinned, whatever is found goes to the history only.

    Returns:
        The pointer after the call.
    """
    body = Blob.of(revision.body, BODY_TYPE)
    session.get(PlanRow, key, with_for_update=True)  # one writer per key at a time
    held = pointer(session, key, (revision.evidence,))
    if held is not None and held.digest == body.digest:
        return held
    blobs.put(session, (body, *revision.blobs), now=now)
    blobs.link(session, body.digest, (blob.digest for blob in revision.blobs))
    row = _append(session, key, body.digest, revision, now)
    if held is not None and (revision.contended or held.seconds <= revision.seconds):
        return held
    best = pointer(session, key)
    if best is not None and pins.pinned(session, (key,)):
        return best
    _point(session, row)
    return _pointer(row)


def evict(session: Session, key: str) -> int:
    """Give the plans of a key out no more; their history stays.

    Returns:
        How many plans were given out under the key until now.
    """
    found = session.execute(delete(PlanPointerRow).where(PlanPointerRow.key == key))
    return int(found.rowcount)  # type: ignore[attr-defined]


def pointer(
    session: Session, key: str, evidence: Iterable[Evidence] = ORDER
) -> PlanPointer | None:
    """The pointer of the best evidence among those asked for."""
    found = {
        found.evidence: found
        for found in map(
            _pointer,
            session.scalars(
                select(PlanRevisionRow)
                .join(PlanPointerRow, PlanPointerRow.revision_id == PlanRevisionRow.id)
                .where(PlanPointerRow.key == key)
            ),
        )
    }
    wanted = set(evidence)
    return next((found[e] for e in ORDER if e in wanted and e in found), None)


def find(
    session: Session, key: str, evidence: Iterable[Evidence] = ORDER
) -> StoredPlan | None:
    """The plan of the best evidence among those asked for, in one query."""
    wanted = set(evidence)
    rank = {kind: place for place, kind in enumerate(ORDER) if kind in wanted}
    query = (
        select(*_POINTED, blobs.BlobRow.content)
        .join(PlanPointerRow, PlanPointerRow.revision_id == PlanRevisionRow.id)
        .join(blobs.BlobRow, blobs.BlobRow.digest == PlanRevisionRow.digest)
        .where(PlanPointerRow.key == key, PlanPointerRow.evidence.in_(rank))
        .order_by(case(rank, value=PlanPointerRow.evidence))
        .limit(1)
    )
    row = session.execute(query).first()
    if row is None:
        return None
    return StoredPlan(pointer=_pointer(row), body=row.content)


def identity(session: Session, key: str) -> PlanIdentity | None:
    """What a key stands for, or None when nobody ever asked for it."""
    row = session.get(PlanRow, key)
    return None if row is None else _identity(row)


def history(session: Session, key: str) -> tuple[PlanPointer, ...]:
    """Every revision of a key, the oldest first."""
    rows = session.scalars(
        select(PlanRevisionRow)
        .where(PlanRevisionRow.key == key)
        .order_by(PlanRevisionRow.revision)
    )
    return tuple(map(_pointer, rows))


def newest(session: Session, *, limit: int = 50) -> tuple[PlanSummary, ...]:
    """The keys asked for last, each with its best plan."""
    rows = session.scalars(
        select(PlanRow).order_by(PlanRow.created_at.desc()).limit(limit)
    ).all()
    pairs = ((row, pointer(session, row.key)) for row in rows)
    return tuple(
        PlanSummary(identity=_identity(row), pointer=best)
        for row, best in pairs
        if best is not None
    )


def count(session: Session) -> Mapping[str, int]:
    """How many keys have a plan, by evidence."""
    rows = session.execute(
        select(PlanPointerRow.evidence, func.count()).group_by(PlanPointerRow.evidence)
    ).all()
    return {row[0]: row[1] for row in rows}


def places(
    session: Session, keys: Collection[str], evidence: Iterable[Evidence] = ORDER
) -> Mapping[str, PlanPlace]:
    """Where the best plan of each of these keys is that has one, in one query."""
    wanted = set(evidence)
    rank = {kind: place for place, kind in enumerate(ORDER) if kind in wanted}
    # All evidence of a key lies side by side: to ask for one kind saves no search, and
    # to ask for three costs three.
    rows = session.execute(_of_keys(session, keys))
    found: dict[str, PlanPlace] = {}
    for key, kind, digest, objective_seconds, kernels in rows:
        held = found.get(key)
        if kind in rank and (held is None or rank[kind] < rank[held.evidence]):
            found[key] = PlanPlace(
                key=key,
                evidence=kind,
                digest=digest,
                objective_seconds=objective_seconds,
                kernels=kernels,
            )
    return found


def _of_keys(session: Session, keys: Collection[str]) -> Select[Any]:
    """What the pointers of some keys hold."""
    if session.get_bind().dialect.name != "postgresql":
        return select(*_COPIED).where(PlanPointerRow.key.in_(keys))
    # One parameter for all keys; and as a join, for with `IN` the hash is not taken.
    asked = func.unnest(literal(list(keys), ARRAY(String))).column_valued("asked")
    return select(*_COPIED).where(PlanPointerRow.key == asked)


def pointers(
    session: Session, keys: Collection[str], evidence: Iterable[Evidence] = ORDER
) -> Mapping[str, PlanPointer]:
    """The best plan of each of these keys that has one, in one query."""
    wanted = set(evidence)
    rank = {kind: place for place, kind in enumerate(ORDER) if kind in wanted}
    rows = session.execute(
        select(*_POINTED)
        .join(PlanPointerRow, PlanPointerRow.revision_id == PlanRevisionRow.id)
        .where(PlanPointerRow.key.in_(keys), PlanPointerRow.evidence.in_(rank))
    )
    found: dict[str, PlanPointer] = {}
    for one in map(_pointer, rows):
        held = found.get(one.key)
        if held is None or rank[one.evidence] < rank[held.evidence]:
            found[one.key] = one
    return found


def identities(session: Session, keys: Collection[str]) -> Mapping[str, PlanIdentity]:
    """What each of these keys stands for; those that nobody asked for are left out."""
    rows = session.scalars(select(PlanRow).where(PlanRow.key.in_(keys)))
    return {row.key: _identity(row) for row in rows}


def alike(session: Session, identity: PlanIdentity) -> tuple[PlanIdentity, ...]:
    """Other keys for the same graph and target, the newest first."""
    rows = session.scalars(
        select(PlanRow)
        .where(PlanRow.graph_hash == identity.graph_hash)
        .where(PlanRow.target == identity.target, PlanRow.key != identity.key)
        .order_by(PlanRow.created_at.desc(), PlanRow.key)
    )
    return tuple(map(_identity, rows))


def keys_of(
    session: Session, *, target: str | None = None, limit: int = 1000
) -> tuple[str, ...]:
    """Keys that have a plan, sorted.

    Args:
        session: where to look.
        target: only plans for this device.
        limit: at most so many.
    """
    query = select(PlanRow.key).where(
        PlanRow.key.in_(select(PlanPointerRow.key)),
    )
    if target is not None:
        query = query.where(PlanRow.target == target)
    return tuple(session.scalars(query.order_by(PlanRow.key).limit(limit)))


def _append(
    session: Session, key: str, digest: str, revision: PlanRevision, now: datetime
) -> PlanRevisionRow:
    last = session.scalar(
        select(func.max(PlanRevisionRow.revision)).where(PlanRevisionRow.key == key)
    )
    row = PlanRevisionRow(
        key=key,
        revision=(last or 0) + 1,
        evidence=revision.evidence,
        digest=digest,
        seconds=revision.seconds,
        objective_seconds=revision.objective_seconds,
        bound_seconds=revision.bound_seconds,
        kernels=revision.kernels,
        job=revision.job,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row


def _point(session: Session, revision: PlanRevisionRow) -> None:
    pointing = PlanPointerRow(
        key=revision.key,
        evidence=revision.evidence,
        revision_id=revision.id,
        copy_of=revision.id,
        digest=revision.digest,
        objective_seconds=revision.objective_seconds,
        kernels=revision.kernels,
    )
    session.merge(pointing)
    session.flush()


_POINTED: Final = (
    PlanRevisionRow.key,
    PlanRevisionRow.evidence,
    PlanRevisionRow.digest,
    PlanRevisionRow.revision,
    PlanRevisionRow.seconds,
    PlanRevisionRow.objective_seconds,
    PlanRevisionRow.bound_seconds,
    PlanRevisionRow.kernels,
    PlanRevisionRow.job,
    PlanRevisionRow.created_at,
)
"""Columns of a pointer, for queries that need no object."""


def _copied(name: str) -> ColumnElement[Any]:
    """A column of a pointer's copy; of the revision itself while the copy is another's.

    Neither database looks for the revision unless it needs it.
    """
    there = select(getattr(PlanRevisionRow, name)).where(
        PlanRevisionRow.id == PlanPointerRow.revision_id
    )
    return case(
        (
            PlanPointerRow.copy_of == PlanPointerRow.revision_id,
            getattr(PlanPointerRow, name),
        ),
        else_=there.scalar_subquery(),
    ).label(name)


_COPIED: Final = (
    PlanPointerRow.key,
    PlanPointerRow.evidence,
    _copied("digest"),
    _copied("objective_seconds"),
    _copied("kernels"),
)
"""Columns of a place."""


def _pointer(row: PlanRevisionRow | Row[*tuple[Any, ...]]) -> PlanPointer:
    return PlanPointer(
        key=row.key,
        evidence=_evidence(row.evidence),
        digest=row.digest,
        revision=row.revision,
        seconds=row.seconds,
        objective_seconds=row.objective_seconds,
        bound_seconds=row.bound_seconds,
        kernels=row.kernels,
        job=row.job,
        created_at=row.created_at,
    )


def _evidence(text: str) -> Evidence:
    return next(evidence for evidence in ORDER if evidence == text)


def _identity(row: PlanRow) -> PlanIdentity:
    return PlanIdentity(
        key=row.key,
        graph_hash=row.graph_hash,
        target=row.target,
        parts=row.parts,
        options=row.options,
    )
