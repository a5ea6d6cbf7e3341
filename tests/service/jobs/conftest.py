"""Databases for the tests of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import Database, connect
from tests.service.tables import place


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Address of a database with all tables, the job engine's too."""
    place(tmp_path / "fuseplan.db")
    return f"sqlite:///{tmp_path / 'fuseplan.db'}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """An open database."""
    opened = connect(url)
    yield opened
    opened.close()
