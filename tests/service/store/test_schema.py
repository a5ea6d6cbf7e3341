"""Tests of the tables and their upgrade."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import MetaData, create_engine, inspect, select, text

from service.store import Database, StoreUnavailable, connect, retention, upgrade
from service.store import plans as plan_store
from service.store.schema import (
    METADATA,
    configuration,
    newest_revision,
    revision,
)
from tests.service.conftest import NewDatabase
from tests.service.store import samples

STORED = Path(__file__).parent / "stored"


@pytest.fixture
def url(file_url: str) -> str:
    """A file: the tests of this module are about SQLite, unless they say so."""
    return file_url


def test_a_new_database_has_the_newest_revision(url: str) -> None:
    """`upgrade` makes the folder, the file and every table."""
    assert upgrade(url) == newest_revision()
    database = connect(url)
    with database.read() as session:
        found = set(
            session.scalars(text("SELECT name FROM sqlite_master WHERE type='table'"))
        )
    database.close()
    assert set(METADATA.tables) <= found


def test_upgrading_twice_changes_nothing(url: str) -> None:
    """A second upgrade gives the same revision."""
    assert upgrade(url) == upgrade(url)


def check_migrations(database: Database) -> None:
    """Alembic finds no difference, and leaves tables that are not ours alone."""
    with database.write() as session:
        session.execute(text("CREATE TABLE IF NOT EXISTS workflow_status (id INTEGER)"))
    config = configuration()
    with database.writer.begin() as connection:
        config.attributes["connection"] = connection
        command.check(config)


def test_migrations_make_exactly_the_tables_of_the_code(database: Database) -> None:
    """The tables after all migrations are those that the classes declare."""
    check_migrations(database)


def test_postgresql_gets_the_same_tables(postgres: NewDatabase) -> None:
    """On a server, too: no difference, upgrading twice is harmless, and back down."""
    url = postgres()
    assert upgrade(url) == upgrade(url) == newest_revision()
    database = connect(url)
    check_migrations(database)
    undo(database)
    database.close()


def test_an_upgrade_can_be_undone(database: Database) -> None:
    """Going down to nothing removes every table of ours."""
    undo(database)


def undo(database: Database) -> None:
    """Go down to nothing, and check that nothing is left."""
    config = configuration()
    with database.writer.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert revision(database) is None
    with database.read() as session:
        left = set(inspect(session.connection()).get_table_names())
    assert not left & set(METADATA.tables)


def test_a_used_database_goes_down_and_up_again(tmp_path: Path) -> None:
    """Jobs with events keep both on the way down, revision by revision, and back."""
    url = stored(newest_revision(), tmp_path)
    upgrade(url)
    database = connect(url)
    config = configuration()
    counted = text("SELECT (SELECT count(*) FROM jobs), count(*) FROM job_events")
    for name in ("0006", "0005", "0004", "0003", "0002", "0001", newest_revision()):
        go = command.upgrade if name == newest_revision() else command.downgrade
        with database.writer.begin() as connection:
            config.attributes["connection"] = connection
            go(config, name)
        with database.read() as session:
            assert tuple(session.execute(counted).one()) == (1, 4), name
    check_upgrade(url)
    undo(database)
    database.close()


REVISIONS = sorted(path.stem for path in STORED.glob("*.sql"))


def stored(name: str, folder: Path) -> str:
    """The file that an earlier version wrote; gives its address."""
    path = folder / "old.db"
    with closing(sqlite3.connect(path)) as old:
        old.executescript((STORED / f"{name}.sql").read_text())
    return f"sqlite:///{path}"


def check_upgrade(url: str) -> None:
    """Upgraded, a stored database still has its plans."""
    upgrade(url)
    database = connect(url)
    with database.read() as session:
        found = plan_store.find(session, samples.KEY)
        damaged = list(retention.faults(session))
        (place,) = plan_store.places(session, [samples.KEY]).values()
        copied = session.scalars(
            text("SELECT copy_of = revision_id FROM plan_pointers")
        ).all()
    database.close()
    assert found is not None
    assert copied == [True, True]
    assert (place.digest, place.kernels) == (
        found.pointer.digest,
        found.pointer.kernels,
    )
    assert place.objective_seconds == found.pointer.objective_seconds
    assert found.body == b'{"plan":"measured"}'
    assert damaged == []


@pytest.mark.parametrize("name", REVISIONS)
def test_a_stored_old_database_upgrades(name: str, tmp_path: Path) -> None:
    """A file that an earlier version wrote keeps its plans."""
    check_upgrade(stored(name, tmp_path))


@pytest.mark.parametrize("name", REVISIONS)
def test_an_old_database_on_a_server_upgrades(
    name: str, tmp_path: Path, postgres: NewDatabase
) -> None:
    """The same tables with the same rows, in PostgreSQL."""
    old, new = create_engine(stored(name, tmp_path)), create_engine(url := postgres())
    config = configuration()
    with new.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, name)
    before, after = MetaData(), MetaData()
    before.reflect(old)
    after.reflect(new)
    with old.connect() as source, new.begin() as connection:
        for table in after.sorted_tables:
            rows = source.execute(select(before.tables[table.name])).mappings().all()
            if rows and table.name != "alembic_version":
                connection.execute(table.insert(), [dict(row) for row in rows])
    old.dispose()
    new.dispose()
    check_upgrade(url)


def test_there_is_a_stored_database_of_each_revision() -> None:
    """Each revision has its file, so that no upgrade goes untested."""
    assert (STORED / f"{newest_revision()}.sql").exists()


def test_a_database_from_the_future_is_refused(database: Database, url: str) -> None:
    """A revision that this version does not know is never touched."""
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreUnavailable, match="newer version") as caught:
        upgrade(url)
    assert caught.value.reason == "newer"
    assert "db upgrade" not in str(caught.value)


def test_a_failed_upgrade_leaves_nothing(url: str, tmp_path: Path) -> None:
    """An upgrade that cannot take the lock stores nothing by halves."""
    path = tmp_path / "data" / "fuseplan.db"
    path.parent.mkdir()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        upgrade(url, busy_timeout_seconds=0.1)
    other.execute("ROLLBACK")
    tables = other.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    other.close()
    assert caught.value.reason == "locked"
    assert tables == 0
