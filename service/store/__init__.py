"""The database: one table family per module, plain values in and out.

The modules of values and of errors load no database: what is named here is loaded when
it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from service.store.errors import StoreDamaged, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from service.store.database import Database, connect
    from service.store.schema import upgrade, upgrade_database

__all__ = [
    "Database",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "connect",
    "upgrade",
    "upgrade_database",
]

_HOMES = {
    "Database": "service.store.database",
    "connect": "service.store.database",
    "upgrade": "service.store.schema",
    "upgrade_database": "service.store.schema",
}


def __getattr__(name: str) -> Any:
    """A name of the list above, from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(_HOMES[name]), name)
