"""Graphs that were handed in, by their name-free hash."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.store.base import Base, insert_new


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGraph:
    """What is remembered of a graph.

    Attributes:
        hash: its fingerprint, as in the plan key.
        title: how its first submitter's model calls itself, for people only.
        nodes, tensors: how many primitives and tensors the canonical graph has.
    """

    hash: str
    title: str
    nodes: int
    tensors: int
    created_at: datetime


class GraphRow(Base):
    """Table `graphs`."""

    __tablename__ = "graphs"

    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    title: Mapped[str] = mapped_column(String(200))
    nodes: Mapped[int]
    tensors: Mapped[int]
    created_at: Mapped[datetime]


def put(session: Session, graph: StoredGraph) -> None:
    """Remember a graph, unless its hash is known already."""
    row = {
        "hash": graph.hash,
        "title": graph.title[:200],
        "nodes": graph.nodes,
        "tensors": graph.tensors,
        "created_at": graph.created_at,
    }
    insert_new(session, GraphRow, [row])


def find(session: Session, hash_: str) -> StoredGraph | None:
    """What is remembered of the graph with this hash."""
    row = session.get(GraphRow, hash_)
    if row is None:
        return None
    return StoredGraph(
        hash=row.hash,
        title=row.title,
        nodes=row.nodes,
        tensors=row.tensors,
        created_at=row.created_at,
    )
