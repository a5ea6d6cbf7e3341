"""An empty database with all tables: migrated once, and copied wherever one is needed.

Migrations have tests of their own (`tests/service/store/test_schema.py`); all others
start from their result.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from service.jobs import engine
from service.settings import Settings
from service.store import upgrade


def place(path: Path) -> None:
    """Put a database where there is none yet, the job engine's tables in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(_migrated())


def furnish(folder: Path) -> Path:
    """Put a database where a service looks that keeps everything in a folder.

    Returns:
        the folder.
    """
    place(Settings(data_home=folder).data_folder / "fuseplan.db")
    return folder


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory(prefix="fuseplan-tables-") as folder:
        path = Path(folder) / "fuseplan.db"
        upgrade(f"sqlite:///{path}")
        engine.migrate(f"sqlite:///{path}")
        (only,) = Path(folder).iterdir()  # nothing is left in a log beside the file
        return only.read_bytes()
