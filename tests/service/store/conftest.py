"""Databases for the tests of the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.store import Database, connect
from tests.service.conftest import Furnish, NewDatabase
from tests.service.tables import place

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.fixture
def now() -> datetime:
    """The moment at which the tests happen."""
    return NOW


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """Address of a SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'data' / 'fuseplan.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, file_url: str) -> str:
    """Address of an empty database, of each kind."""
    if request.param == "sqlite":
        return file_url
    new_database: NewDatabase = request.getfixturevalue("postgres")
    return new_database()


@pytest.fixture
def database(request: pytest.FixtureRequest, url: str) -> Iterator[Database]:
    """An empty database with all tables."""
    if url.startswith("sqlite:///"):
        place(Path(url.removeprefix("sqlite:///")))
    else:
        furnish: Furnish = request.getfixturevalue("furnish_postgres")
        furnish(url)
    opened = connect(url)
    yield opened
    opened.close()
