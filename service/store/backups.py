"""A copy of a SQLite database, taken while others read and write it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from service.store.address import shown
from service.store.errors import BackupFailed
from service.store.filesystem import database_file


def copy(url: str, path: Path) -> int:
    """Copy a database into a new file; gives its size in bytes.

    The copy is of one moment (sqlite.org/backup.html). It appears under its name only
    when it is whole.

    Raises:
        BackupFailed: it is no SQLite database, or the copy cannot be made.
    """
    source = database_file(url)
    if source is None:
        raise BackupFailed(
            shown(url),
            "only SQLite is copied by this command",
            hint="use pg_dump, and pg_restore to get it back",
        )
    if not source.is_file():
        raise BackupFailed(
            str(source),
            "there is no such file",
            hint="FUSEPLAN_DATABASE_URL names the database",
        )
    if path.exists():
        raise BackupFailed(str(path), "it exists already", hint="choose another file")
    part = path.with_name(f".{path.name}.part")
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as reader,
            closing(sqlite3.connect(part)) as writer,
        ):
            reader.backup(writer)
        part.rename(path)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise BackupFailed(
            str(path), f"the copy cannot be made: {error}", hint="is there room?"
        ) from error
    return path.stat().st_size
