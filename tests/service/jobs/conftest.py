"""Databases for the tests of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.jobs import engine
from service.store import Database, connect, upgrade


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Address of a database with all tables, the job engine's too."""
    address = f"sqlite:///{tmp_path / 'fuseplan.db'}"
    upgrade(address)
    engine.migrate(address)
    return address


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """An open database."""
    opened = connect(url)
    yield opened
    opened.close()
