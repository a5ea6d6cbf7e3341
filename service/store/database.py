"""One database: connections, transactions, and its troubles by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.orm import Session

from service.store.address import shown
from service.store.errors import Reason, StoreUnavailable
from service.store.filesystem import database_file, network_file_system

_SQLITE: Final[dict[int, Reason]] = {
    5: "locked",  # SQLITE_BUSY
    6: "locked",  # SQLITE_LOCKED
    8: "read-only",  # SQLITE_READONLY
    10: "full",  # SQLITE_IOERR: in practice a full or failing disk
    11: "corrupt",  # SQLITE_CORRUPT
    13: "full",  # SQLITE_FULL
    14: "missing",  # SQLITE_CANTOPEN
    26: "corrupt",  # SQLITE_NOTADB
}
"""SQLite's primary result codes (sqlite.org/rescode.html) as our reasons."""

_POSTGRES: Final[tuple[tuple[str, Reason], ...]] = (
    ("42P01", "outdated"),  # undefined table
    ("42703", "outdated"),  # undefined column
    ("25006", "read-only"),
    ("53100", "full"),
    ("53", "unreachable"),  # no memory, too many connections
    ("55P03", "locked"),
    ("40", "locked"),  # deadlock, serialisation
    ("57P", "unreachable"),  # the server stops or starts
    ("08", "unreachable"),
    ("XX001", "corrupt"),
    ("XX002", "corrupt"),
)
"""PostgreSQL's SQLSTATE by prefix (its manual, appendix A) as our reasons."""

_BEGIN: Final = "fuseplan_begin"
_TURN_SECONDS: Final = 30.0
"""How long a thread waits for the others of its process that write."""

CACHE_KIB: Final = 16 * 1024
"""Pages of a SQLite file that one connection keeps, at most.

A lookup of 1000 keys among a million plans reads some 3000 pages of 4 KiB; with
SQLite's own 2 MiB it would read most of them again each time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A place that keeps plans.

    Attributes:
        reader: engine whose transactions only read.
        writer: the same connections; on SQLite its transactions take the write lock
            at once, so that they cannot fail half-way because another one wrote.
        location: what a message calls the database.
        turns: held by whoever of this process writes. On SQLite those that wait for
            its write lock try again and again, and some never are in time: here they
            wait in turn, and only for other processes by trying.
    """

    reader: Engine
    writer: Engine
    location: str
    turns: Lock | None = None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one moment of the database and changes nothing.

        Raises:
            StoreUnavailable: the database is locked, corrupt, gone ...
        """
        with self._explained(), Session(self.reader, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that is stored as a whole at the end, or not at all.

        Raises:
            StoreUnavailable: the database is locked, full, read-only ...
        """
        with (
            self._explained(),
            self._turn(),
            Session(self.writer, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def claim(self, name: str) -> Callable[[], None] | None:
        """Hold a name until this process ends or lets go of it.

        A server gives it to one client at a time, and takes it back when the client's
        connection ends. SQLite is for one host, where locks on files do the same.

        Returns:
            What lets go of the name, or None when somebody else holds it.
        """
        if self.writer.dialect.name != "postgresql":
            return lambda: None
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        with self._explained():
            connection = self.writer.connect()
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            taken = connection.scalar(
                text("SELECT pg_try_advisory_lock(:number)"), {"number": number}
            )
        if not taken:
            connection.close()
            return None

        def let_go() -> None:
            # A pooled connection would keep the lock: this one must end.
            connection.invalidate()
            connection.close()

        return let_go

    def check(self) -> None:
        """Raise `StoreUnavailable` when the database cannot be read."""
        with self.read() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close all connections; the database can be opened again."""
        self.writer.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self.turns is None:
            yield
            return
        if not self.turns.acquire(timeout=_TURN_SECONDS):
            told = f"no turn to write within {_TURN_SECONDS:g} s"
            raise StoreUnavailable(self.location, "locked", told)
        try:
            yield
        finally:
            self.turns.release()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise explain(error, self.location) from error
        except NoConnection as error:
            told = "all of its connections here are in use, and none came free in time"
            raise StoreUnavailable(self.location, "busy", told) from error


def connect(url: str, *, busy_timeout_seconds: float = 5.0) -> Database:
    """Open a database; a SQLite file and its folder are made when missing.

    Raises:
        StoreUnavailable: the folder cannot be made, or lies on a network disk.
    """
    # One table names others: whoever uses one has to know all of them.
    import_module("service.store.schema")
    parsed = make_url(url)
    # The connection used last has in its cache what is asked for again: `lifo`.
    if parsed.get_backend_name() != "sqlite":
        engine = create_engine(parsed, pool_pre_ping=True, pool_use_lifo=True)
        return Database(reader=engine, writer=engine, location=shown(parsed))
    location = _prepare_file(parsed)
    engine = create_engine(
        parsed, connect_args={"check_same_thread": False}, pool_use_lifo=True
    )
    event.listen(engine, "connect", _on_connect(busy_timeout_seconds))
    event.listen(engine, "begin", _on_begin)
    writer = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
    return Database(reader=engine, writer=writer, location=location, turns=Lock())


def explain(error: DBAPIError, location: str) -> StoreUnavailable:
    """Say which known trouble a database error is; re-raise a fault of ours.

    Raises:
        DBAPIError: the error is none of the known troubles.
    """
    code = getattr(error.orig, "sqlite_errorcode", None)
    text_ = str(error.orig)
    if code is None:
        reason = _postgres_reason(error)
        if reason is None:
            raise error
        return StoreUnavailable(location, reason, text_)
    if "no such table" in text_ or "no such column" in text_:
        return StoreUnavailable(location, "outdated", text_)
    reason = _SQLITE.get(code & 0xFF)
    if reason is None:
        raise error
    return StoreUnavailable(location, reason, text_)


def _postgres_reason(error: DBAPIError) -> Reason | None:
    state = getattr(error.orig, "sqlstate", None) or ""
    if not state:
        gone = error.connection_invalidated or "connection" in str(error.orig).lower()
        return "unreachable" if gone else None
    return next((r for prefix, r in _POSTGRES if state.startswith(prefix)), None)


def _prepare_file(url: URL) -> str:
    path = database_file(url)
    if path is None:
        msg = "an in-memory database cannot be shared between threads"
        raise StoreUnavailable(shown(url), "missing", msg)
    kind = network_file_system(path)
    if kind:
        raise StoreUnavailable(str(path), "network-file-system", f"it is on {kind}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreUnavailable(str(path), "missing", str(error)) from error
    return str(path)


def _on_connect(busy_timeout_seconds: float) -> Any:
    def prepare(connection: Any, _record: object) -> None:
        # Transactions are begun by `_on_begin`; the driver must not add its own.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(busy_timeout_seconds * 1000)}")
        cursor.execute(f"PRAGMA cache_size = {-CACHE_KIB}")
        cursor.execute("PRAGMA foreign_keys = ON")
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.close()

    return prepare


def _on_begin(connection: Connection) -> None:
    statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
    connection.exec_driver_sql(statement)
