"""What can be wrong with the database, said so that an operator can act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

Reason = Literal[
    "locked",
    "full",
    "read-only",
    "corrupt",
    "missing",
    "network-file-system",
    "outdated",
    "newer",
    "unreachable",
    "busy",
]

_HINTS: Final[dict[Reason, str]] = {
    "locked": "another process holds the write lock; try again, or stop that process",
    "full": "free space on that disk; nothing was stored by halves",
    "read-only": "make the file and its folder writable for this user",
    "corrupt": "restore a backup, or move the file away and start with an empty one",
    "missing": "create the folder, or point FUSEPLAN_DATABASE_URL elsewhere",
    "network-file-system": "SQLite needs a local disk: set FUSEPLAN_DATABASE_URL",
    "newer": "upgrade fuseplan, or point FUSEPLAN_DATABASE_URL elsewhere",
    "outdated": "run `fuseplan db upgrade`",
    "unreachable": "check FUSEPLAN_DATABASE_URL and that the server runs",
    "busy": "try again; where it lasts, start another API beside this one",
}


class StoreError(Exception):
    """Base of every deliberate error of the store.

    Attributes:
        code: stable identifier, also used over HTTP.
        where: the database, table or record that the error is about.
        problem: what is wrong there.
        hint: what the user can do.
    """

    code = "store-error"

    def __init__(self, where: str, problem: str, *, hint: str = "") -> None:
        self.where = where
        self.problem = problem
        self.hint = hint
        text = f"{where}: {problem}"
        super().__init__(f"{text} ({hint})" if hint else text)


class StoreUnavailable(StoreError):
    """The database cannot be used now.

    Attributes:
        reason: which of the known troubles it is.
    """

    code = "store-unavailable"

    def __init__(self, where: str, reason: Reason, detail: str) -> None:
        self.reason = reason
        super().__init__(
            where, f"the database is {reason}: {detail}", hint=_HINTS[reason]
        )


class BrokenReference(StoreError):
    """A record names another one that is not stored; a fault of ours."""

    code = "broken-reference"


class BackupFailed(StoreError):
    """A copy of the database cannot be made."""

    code = "backup-failed"


class StoreDamaged(StoreError):
    """Plans that are served are not whole.

    Attributes:
        faults: one line for each.
    """

    code = "store-damaged"

    def __init__(self, where: str, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        super().__init__(
            where,
            f"{faults[0]}{more}",
            hint="restore a backup, or import the plans from a bundle",
        )
