"""Keys of the cache, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.graphs import GraphRow
from service.store.plans import PlanPointerRow, PlanRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A key that has a plan, with the title of its graph."""

    key: str
    graph_hash: str
    title: str
    target: str
    created_at: datetime


def page(
    session: Session, *, target: str = "", graph: str = "", before: str = "", limit: int
) -> tuple[Listed, ...]:
    """Keys with a plan, the newest first.

    Args:
        session: where to look.
        target: only plans for this device, unless empty.
        graph: only plans of this graph, unless empty.
        before: a key; only older ones are given.
        limit: at most so many.
    """
    query = (
        select(PlanRow, GraphRow.title)
        .join(GraphRow, GraphRow.hash == PlanRow.graph_hash)
        .where(PlanRow.key.in_(select(PlanPointerRow.key)))
        .order_by(PlanRow.created_at.desc(), PlanRow.key.desc())
    )
    if target:
        query = query.where(PlanRow.target == target)
    if graph:
        query = query.where(PlanRow.graph_hash == graph)
    if before and (last := session.get(PlanRow, before)) is not None:
        query = query.where(
            (PlanRow.created_at < last.created_at)
            | ((PlanRow.created_at == last.created_at) & (PlanRow.key < last.key))
        )
    return tuple(
        Listed(
            key=row.key,
            graph_hash=row.graph_hash,
            title=title,
            target=row.target,
            created_at=row.created_at,
        )
        for row, title in session.execute(query.limit(limit))
    )


def title(session: Session, graph: str) -> str:
    """What the first submitter of a graph called it."""
    row = session.get(GraphRow, graph)
    return "" if row is None else row.title
