"""Alembic's entry: runs revisions on the connection that it is given."""

from typing import Literal

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.schema import SchemaItem

from service.settings import Settings
from service.store import connect
from service.store.base import UtcDateTime
from service.store.schema import METADATA


def ours(name: str | None, kind: str, _: object) -> bool:
    """Whether a table of the database is ours; the job engine has its own."""
    return kind != "table" or name in METADATA.tables


def wanted(item: SchemaItem, *_: object) -> bool:
    """Whether this kind of database has an item; an index may be for the other one."""
    condition = getattr(item, "_ddl_if", None)
    return condition is None or condition.dialect == context.get_bind().dialect.name


def plain(_kind: str, item: object, _context: object) -> str | Literal[False]:
    """A migration names SQL's own types, so that it outlives our classes."""
    return "sa.DateTime()" if isinstance(item, UtcDateTime) else False


def run(connection: Connection) -> None:
    """Bring the connection's database to the revision asked for."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        include_name=ours,
        include_object=wanted,
        render_item=plain,
        render_as_batch=True,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = connect(Settings().url)
    with database.writer.begin() as own:
        run(own)
    database.close()
