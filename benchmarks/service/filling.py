"""Databases with plans that are made up, and where they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import URL, Connection, create_engine, event, make_url, text

_ROWS: Final = """
INSERT INTO graphs (hash, title, nodes, tensors, created_at)
  VALUES (:graph, 'synthetic', 1, 2, '2026-01-01 00:00:00');
INSERT INTO blobs (digest, media_type, size_bytes, public, created_at, content)
  SELECT digest, 'application/vnd.fuseplan.plan+json', 2, true, '2026-01-01 00:00:00',
    {content} FROM synthetic ORDER BY digest;
INSERT INTO plans (key, graph_hash, target, parts, options, created_at)
  SELECT key, :graph, 'h100-sxm', '{{}}', '{{}}', '2026-01-01 00:00:00' FROM synthetic
    ORDER BY key;
INSERT INTO plan_revisions (id, key, revision, evidence, digest, seconds,
    objective_seconds, bound_seconds, kernels, job, created_at)
  SELECT number, key, 1, 'measured', digest, 0.1, 0.1, 0.1, 1, NULL,
    '2026-01-01 00:00:00' FROM synthetic ORDER BY number;
INSERT INTO plan_pointers (key, evidence, revision_id, copy_of, digest,
    objective_seconds, kernels)
  SELECT key, 'measured', number, number, digest, 0.1, 1 FROM synthetic ORDER BY key;
DROP TABLE synthetic;
"""
_NUMBERS: Final[Mapping[str, str]] = {
    "sqlite": "WITH RECURSIVE n(number) AS (SELECT {first} UNION ALL SELECT number + 1"
    " FROM n WHERE number < {last}) SELECT number, hashed('key ' || number) AS key,"
    " hashed('body ' || number) AS digest FROM n",
    "postgresql": "SELECT number, encode(sha256(convert_to('key ' || number, 'UTF8')),"
    " 'hex') AS key, encode(sha256(convert_to('body ' || number, 'UTF8')), 'hex') AS"
    " digest FROM generate_series({first}, {last}) AS number",
}
_UNCHECKED: Final = """
SELECT set_config('session_replication_role', 'replica', true) FROM pg_roles
  WHERE rolname = current_user AND rolsuper
"""
"""Rows are not looked up in the tables that they refer to, which takes longest."""
FIRST: Final = 1_000_000
"""Ids of the rows that are made up begin here, behind those of real plans."""


def key_of(number: int) -> str:
    """Key of a plan that is made up."""
    return hashlib.sha256(f"key {number}".encode()).hexdigest()


def fill(url: str, plans: int) -> None:
    """Store so many plans without their work: rows as the service has them."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _quick)
    last = FIRST + plans - 1
    numbers = _NUMBERS[engine.dialect.name].format(first=FIRST, last=last)
    content = {"sqlite": "x'7b7d'", "postgresql": "'{}'::bytea"}[engine.dialect.name]
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(_UNCHECKED))
        connection.execute(text(f"CREATE TEMPORARY TABLE synthetic AS {numbers}"))
        for statement in _ROWS.format(content=content).split(";\n"):
            if statement.strip():
                _execute(connection, statement)
    # What the server does by itself a minute later.
    after = {"sqlite": "ANALYZE", "postgresql": "VACUUM ANALYZE"}[engine.dialect.name]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(after))
    engine.dispose()


def _execute(connection: Connection, statement: str) -> None:
    given = {"graph": "b" * 64} if ":graph" in statement else {}
    connection.execute(text(statement), given)


def _quick(connection: Any, _record: object) -> None:
    """What filling needs: the hash of a text, room for all indexes, and no waiting."""
    connection.create_function(
        "hashed", 1, lambda value: hashlib.sha256(value.encode()).hexdigest()
    )
    connection.execute("PRAGMA cache_size = -1000000")  # KiB
    connection.execute("PRAGMA synchronous = OFF")  # it is thrown away afterwards


def databases(server: str) -> Iterator[str]:
    """Two new databases on a PostgreSQL server."""
    admin = make_url(server).set(drivername="postgresql+psycopg")
    engine = create_engine(admin, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for name in ("fuseplan_few", "fuseplan_many"):
            connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            connection.execute(text(f"CREATE DATABASE {name}"))
            yield _shown(admin.set(database=name))
    engine.dispose()


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=False)
