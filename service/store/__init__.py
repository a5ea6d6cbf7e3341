"""The database: one table family per module, plain values in and out.

The modules of values and of errors load no database: what is named here is loaded when
it is asked for.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

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

_HOMES: Final = MappingProxyType(
    {
        "Database": "service.store.database",
        "connect": "service.store.database",
        "upgrade": "service.store.schema",
        "upgrade_database": "service.store.schema",
    }
)


def __getattr__(name: str) -> Any:
    """A name of the list above, from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
