"""All tables, and the upgrade of a database to the newest of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError

from service.store import (
    accuracy,
    audit,
    blobs,
    devices,
    graphs,
    heartbeats,
    idempotency,
    jobs,
    kernels,
    measurements,
    pins,
    plans,
    tokens,
)
from service.store.base import Base
from service.store.database import Database, connect, explain
from service.store.errors import StoreUnavailable

if TYPE_CHECKING:
    from alembic.config import Config

# Alembic is loaded by who upgrades: a command that only plans starts without it.

FAMILIES: Final = (
    accuracy,
    audit,
    blobs,
    devices,
    graphs,
    heartbeats,
    idempotency,
    jobs,
    kernels,
    measurements,
    pins,
    plans,
    tokens,
)
"""Every module that declares tables."""

METADATA: Final[MetaData] = Base.metadata

_ROOT: Final = Path(__file__).resolve().parents[2]


def configuration() -> Config:
    """Alembic's configuration, wherever the package is installed."""
    from alembic.config import Config  # noqa: PLC0415 - see above

    packaged = Path(__file__).resolve().parents[1] / "_migrations"
    config = Config(stdout=sys.stdout)  # not that of when alembic was imported
    script = packaged if packaged.exists() else _ROOT / "migrations"
    config.set_main_option("script_location", str(script).replace("%", "%%"))
    return config


def upgrade(url: str, *, busy_timeout_seconds: float = 5.0) -> str:
    """Bring a database to the newest revision; a missing one is made.

    Returns:
        The revision that it has now.

    Raises:
        StoreUnavailable: the database is locked, full, corrupt, from the future ...
    """
    database = connect(url, busy_timeout_seconds=busy_timeout_seconds)
    try:
        return upgrade_database(database)
    finally:
        database.close()


def upgrade_database(database: Database) -> str:
    """Bring an open database to the newest revision, in one transaction."""
    from alembic import command  # noqa: PLC0415 - see above

    config = configuration()
    head = newest_revision()
    if revision(database) == head:
        return head
    try:
        with database.writer.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except DBAPIError as error:
        raise explain(error, database.location) from error
    return head


def revision(database: Database) -> str | None:
    """Revision of an open database; None for an empty one.

    Raises:
        StoreUnavailable: it was written by a newer version of this program, or
            cannot be read.
    """
    from alembic.migration import MigrationContext  # noqa: PLC0415 - see above
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    with database.read() as session:
        context = MigrationContext.configure(session.connection())
        current = context.get_current_revision()
    known = {
        script.revision
        for script in ScriptDirectory.from_config(configuration()).walk_revisions()
    }
    if current is not None and current not in known:
        detail = f"revision {current} was made by a newer version of fuseplan"
        raise StoreUnavailable(database.location, "newer", detail)
    return current


def newest_revision() -> str:
    """The revision that this version of the program works with."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    head = ScriptDirectory.from_config(configuration()).get_current_head()
    assert head is not None, "there is at least one migration"
    return head
