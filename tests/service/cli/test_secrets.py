"""What the commands print of an address that has a password."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from service.cli.serving import location
from service.settings import Settings
from tests.service.cli.conftest import Fuseplan
from tests.service.conftest import NewDatabase

SECRET = "hunter2"


def test_an_address_is_told_without_its_password() -> None:
    """All else of it stays."""
    given = Settings(database_url=f"postgresql+psycopg://me:{SECRET}@plans:5432/tuned")
    assert location(given) == "postgresql+psycopg://me:***@plans:5432/tuned"


def test_no_command_tells_the_password(
    fuseplan: Fuseplan, postgres: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for people nor as JSON."""
    url = make_url(postgres()).set(password=SECRET)
    address = url.render_as_string(hide_password=False)
    monkeypatch.setenv("FUSEPLAN_DATABASE_URL", address)
    for words in (
        ("db", "upgrade"),
        ("db", "upgrade", "--json"),
        ("db", "verify"),
        ("db", "verify", "--json"),
        ("doctor",),
    ):
        ended = fuseplan(*words)
        assert "***" in ended.out, words
        assert SECRET not in ended.out + ended.err, words
