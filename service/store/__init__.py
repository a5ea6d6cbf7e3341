"""The database: one table family per module, plain values in and out."""

from service.store.database import Database, connect
from service.store.errors import StoreDamaged, StoreError, StoreUnavailable
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
