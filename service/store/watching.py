"""Whether plans are still what they were, asked from an event loop.

A thread that asks through the pool hands Python's lock over a dozen times for one
answer, and each time the loop stands still until the other thread is scheduled. Here
nothing leaves the loop: PostgreSQL answers it like any other socket, and a read of
SQLite, which in WAL mode waits for nobody, takes microseconds.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
from sqlalchemy import make_url

from service.store.address import shown
from service.store.database import CACHE_KIB
from service.store.errors import StoreUnavailable
from service.store.filesystem import database_file

MOST_KEYS: Final = 50
"""Keys of one question: more would hold the loop up."""

_QUERY: Final = (
    "SELECT key, evidence, CASE WHEN copy_of = revision_id THEN digest ELSE"
    " (SELECT digest FROM plan_revisions WHERE id = plan_pointers.revision_id) END"
    " FROM plan_pointers WHERE key "
)
"""The copy in a pointer, while it is of what is pointed to; see `PlanPointerRow`."""
_ANSWER_SECONDS: Final = 2.0

Digests = Mapping[str, Mapping[str, str]]


class Watcher(Protocol):
    """Tells what keys point to now."""

    async def digests(self, keys: Sequence[str]) -> Digests:
        """Digest of what each of these keys points to, by evidence.

        Raises:
            StoreUnavailable: the database gives no answer.
        """

    async def close(self) -> None:
        """Let go of the database; it can be asked again."""


def watch(url: str) -> Watcher:
    """What asks a database that is there; it connects when it is first asked."""
    parsed = make_url(url)
    file = database_file(parsed)
    if file is not None:
        return _File(file)
    server = parsed.set(drivername="postgresql")
    return _Server(
        server.render_as_string(hide_password=False),
        shown(server),
    )


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    async def digests(self, keys: Sequence[str]) -> Digests:
        marks = ", ".join("?" * len(keys))
        try:
            if self._connection is None:
                # It must not wait: whoever is locked out asks again a moment later.
                # A file that is gone is not made again.
                self._connection = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=rw",
                    uri=True,
                    timeout=0,
                    isolation_level=None,
                    check_same_thread=False,
                )
                self._connection.execute(f"PRAGMA cache_size = {-CACHE_KIB}")
            rows = self._connection.execute(f"{_QUERY} IN ({marks})", keys).fetchall()
        except sqlite3.Error as error:
            await self.close()
            raise StoreUnavailable(
                str(self._path), "unreachable", str(error)
            ) from error
        return _grouped(rows)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Server:
    def __init__(self, address: str, location: str) -> None:
        self._address = address
        self._location = location
        self._connecting = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def digests(self, keys: Sequence[str]) -> Digests:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return _grouped(await self._rows(list(keys)))
        except (psycopg.Error, TimeoutError) as error:
            await self.close()
            raise StoreUnavailable(
                self._location, "unreachable", str(error) or "no answer"
            ) from error

    async def _rows(self, keys: list[str]) -> list[Any]:
        async with self._connecting:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._address, autocommit=True
                )
            connection = self._connection
        cursor = await connection.execute(f"{_QUERY} = ANY(%s)", [keys])
        return await cursor.fetchall()

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()


def _grouped(rows: Iterable[tuple[str, str, str]]) -> Digests:
    found: dict[str, dict[str, str]] = {}
    for key, evidence, digest in rows:
        found.setdefault(key, {})[evidence] = digest
    return found
