"""Tests of connections, transactions and the troubles of a database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import get_args

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from service.settings import Settings
from service.store import Database, StoreUnavailable, connect, upgrade
from service.store.database import explain
from service.store.errors import Reason
from service.store.filesystem import (
    database_file,
    file_system,
    network_file_system,
)

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
60 22 0:52 / /home rw,relatime shared:30 - nfs4 server:/home rw,vers=4.2
61 60 259:3 / /home/me/local\\040disk rw shared:31 - xfs /dev/sdb rw
"""


@pytest.fixture
def url(file_url: str) -> str:
    """A file: the tests of this module are about SQLite, unless they say so."""
    return file_url


def path_of(url: str) -> Path:
    """The file of a SQLite address."""
    return Path(url.removeprefix("sqlite:///"))


def test_writers_take_turns_and_readers_go_on(database: Database) -> None:
    """In WAL mode a reader sees the last commit while a writer works."""
    with database.write() as writing:
        writing.execute(text("DELETE FROM kernels"))
        with database.read() as reading:
            assert reading.scalar(text("SELECT count(*) FROM kernels")) == 0
    with database.read() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA foreign_keys")) == 1


def test_a_failed_transaction_stores_nothing(database: Database) -> None:
    """An error inside a write undoes all of it."""
    statement = "INSERT INTO kernels VALUES ('k', 'f', '2026-01-01 00:00:00')"

    def fail() -> None:
        with database.write() as session:
            session.execute(text(statement))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM kernels")) == 0


def test_a_locked_database_is_said_to_be_locked(
    database: Database, file_url: str
) -> None:
    """A writer that waits too long gets the reason and a hint."""
    statement = text("DELETE FROM kernels")
    hasty = connect(file_url, busy_timeout_seconds=0.2)
    with database.write() as first:
        first.execute(statement)
        with pytest.raises(StoreUnavailable) as caught, hasty.write() as second:
            second.execute(statement)
    hasty.close()
    assert caught.value.reason == "locked"
    assert "try again" in caught.value.hint


def test_a_database_whose_connections_are_all_in_use_is_busy(url: str) -> None:
    """Whoever waits in vain is told so; the next one is served again."""
    engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    database = Database(reader=engine, writer=engine, location="here")
    Path(url.removeprefix("sqlite:///")).parent.mkdir()
    with database.read() as session:
        session.execute(text("SELECT 1"))
        for use in (database.read, database.write):
            with pytest.raises(StoreUnavailable) as caught, use() as waiting:
                waiting.execute(text("SELECT 1"))
            assert caught.value.reason == "busy"
    database.check()
    database.close()


def test_the_page_of_errors_names_every_reason() -> None:
    """An operator looks there for what a database may be."""
    page = (Path(__file__).parents[3] / "docs" / "errors.md").read_text()
    part = page.partition("## store-unavailable")[2].partition("## ")[0]
    listed = part.partition("is one of ")[2].partition(".")[0]
    assert {word.strip() for word in listed.split(",")} == set(get_args(Reason))


def test_a_corrupt_file_is_said_to_be_corrupt(url: str) -> None:
    """Bytes that are no database are refused, and left as they are."""
    path = path_of(url)
    path.parent.mkdir()
    path.write_bytes(b"this is no database, and it is long enough to be read" * 20)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable) as caught:
        upgrade(url)
    assert caught.value.reason == "corrupt"
    assert path.read_bytes() == before


def test_a_full_disk_is_said_to_be_full(database: Database) -> None:
    """Running out of pages is told as a full disk, and nothing is stored."""
    statement = text("INSERT INTO kernels VALUES (:k, 'f', '2026-01-01')")
    rows = [{"k": f"{number}" * 400} for number in range(200)]
    with database.write() as session:
        session.execute(text("PRAGMA max_page_count = 1"))
        with pytest.raises(OperationalError) as caught:
            session.execute(statement, rows)
        session.rollback()
    told = explain(caught.value, database.location)
    assert told.reason == "full"


def test_a_read_only_database_is_said_to_be_read_only(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to a database that is opened for reading says so.

    The address is a URI: its file is found, and no folder of its name is made.
    """
    upgrade(url)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    opened = connect(f"sqlite:///file:{path_of(url)}?mode=ro&uri=true")
    with (
        pytest.raises(StoreUnavailable) as caught,
        opened.write() as session,
    ):
        session.execute(text("DELETE FROM kernels"))
    opened.close()
    assert caught.value.reason == "read-only"
    assert caught.value.where == str(path_of(url))
    assert list(here.iterdir()) == []


def test_a_database_that_is_not_upgraded_says_how_to_upgrade(url: str) -> None:
    """Missing tables are told as an outdated database."""
    opened = connect(url)
    with (
        pytest.raises(StoreUnavailable) as caught,
        opened.read() as session,
    ):
        session.execute(text("SELECT * FROM plans"))
    opened.close()
    assert caught.value.reason == "outdated"
    assert "fuseplan db upgrade" in caught.value.hint


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A file where the folder should be gives a reason, not a traceback."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StoreUnavailable) as caught:
        connect(f"sqlite:///{tmp_path}/data/fuseplan.db")
    assert caught.value.reason == "missing"


def test_an_in_memory_database_is_refused() -> None:
    """It would be another one in each thread."""
    with pytest.raises(StoreUnavailable, match="in-memory"):
        connect("sqlite://")


@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("sqlite:////data/x.db", "/data/x.db"),
        ("sqlite+pysqlite:////data/x.db", "/data/x.db"),
        ("sqlite:////data/a%20b.db", "/data/a b.db"),
        ("sqlite:///file:/data/a%20b.db?mode=ro&uri=true", "/data/a b.db"),
        ("sqlite:///file:/data/x.db?mode=memory&uri=true", None),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("postgresql+psycopg://me@host/x.db", None),
    ],
)
def test_an_address_names_its_file(address: str, file: str | None) -> None:
    """Whatever driver or form it has; a server and a memory have none."""
    assert database_file(address) == (None if file is None else Path(file))


@pytest.mark.parametrize(
    "name", ["data", "100%41?mode=memory", "a b#c", "d\u00e9j\u00e0"]
)
def test_a_data_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    """The database lies in it, and its address stays readable."""
    url = Settings(data_home=tmp_path / name).url
    assert database_file(url) == tmp_path / name / "fuseplan" / "fuseplan.db"
    upgrade(url)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_the_closest_mount_decides() -> None:
    """A local disk mounted inside a network one is local, and the other way round."""
    assert file_system(Path("/var/lib/x.db"), MOUNTS) == "ext4"
    assert file_system(Path("/home/me/x.db"), MOUNTS) == "nfs4"
    assert file_system(Path("/home/me/local disk/x.db"), MOUNTS) == "xfs"
    assert file_system(Path("/homework/x.db"), MOUNTS) == "ext4"


def test_a_network_disk_is_recognised(tmp_path: Path) -> None:
    """Only names of shared file systems count; no list of mounts means local."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert network_file_system(Path("/home/me/x.db"), mounts) == "nfs4"
    assert network_file_system(Path("/var/x.db"), mounts) == ""
    assert network_file_system(Path("/home/me"), tmp_path / "absent") == ""


def test_the_file_is_for_its_owner_alone(url: str) -> None:
    """The folder of the database is closed to other users."""
    upgrade(url)
    assert path_of(url).parent.stat().st_mode & 0o077 == 0
    sqlite3.connect(path_of(url)).close()
