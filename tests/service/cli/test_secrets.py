"""What the commands print of an address that has a password."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url, text

from service.cli.serving import location
from service.settings import Settings
from tests.service.cli.conftest import Fuseplan
from tests.service.conftest import NewDatabase

SECRET = "hunter2"


def test_an_address_is_told_without_its_password() -> None:
    """All else of it stays."""
    given = Settings(database_url=f"postgresql+psycopg://me:{SECRET}@plans:5432/tuned")
    assert location(given) == "postgresql+psycopg://me:***@plans:5432/tuned"


def test_a_password_behind_the_question_mark_is_hidden() -> None:
    """PostgreSQL takes it there, too; the other parameters are told."""
    told = location(
        Settings(
            database_url=f"postgresql+psycopg://me@plans/tuned?password={SECRET}"
            f"&sslmode=require&sslpassword={SECRET}"
        )
    )
    assert SECRET not in told
    assert told == (
        "postgresql+psycopg://me@plans/tuned"
        "?password=***&sslmode=require&sslpassword=***"
    )


@pytest.mark.parametrize("words", [("db", "upgrade"), ("db", "verify"), ("doctor",)])
def test_no_error_tells_the_password(
    fuseplan: Fuseplan, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A server that does not answer is named without it."""
    address = f"postgresql+psycopg://me@127.0.0.1:1/tuned?password={SECRET}"
    monkeypatch.setenv("FUSEPLAN_DATABASE_URL", address)
    ended = fuseplan(*words)
    assert ended.code == 7
    assert "127.0.0.1" in ended.out + ended.err
    assert SECRET not in ended.out + ended.err


def test_no_command_tells_the_password(
    fuseplan: Fuseplan, postgres: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for people nor as JSON."""
    url = make_url(postgres())
    name = f"role_{url.database}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(
            text(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{SECRET}'")
        )
    address = url.set(username=name, password=SECRET)
    monkeypatch.setenv(
        "FUSEPLAN_DATABASE_URL", address.render_as_string(hide_password=False)
    )
    for words in (
        ("db", "upgrade"),
        ("db", "upgrade", "--json"),
        ("db", "verify"),
        ("db", "verify", "--json"),
        ("doctor",),
        ("doctor", "--json"),
    ):
        ended = fuseplan(*words)
        told = "".join(ended.out.split())  # a table breaks long words
        assert "***" in told, (words, ended.out)
        assert SECRET not in told + "".join(ended.err.split()), words
    with engine.connect() as connection:
        connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP ROLE {name}"))
    engine.dispose()
