"""What may go to the library, and which cases are excused: the list and its reasons."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).with_name("library.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The committed list.

    Attributes:
        operators: that may run in the library, with the reason.
        excused: beginnings of names of cases that fail for a known reason.
    """

    operators: Mapping[str, str]
    excused: Mapping[str, str]

    def excuse(self, case: str) -> str:
        """The reason why a case may fail; empty if it may not."""
        found = (why for name, why in self.excused.items() if case.startswith(name))
        return next(found, "")


def read_ledger() -> Ledger:
    """The list as it is committed."""
    table = tomllib.loads(PATH.read_text())
    return Ledger(operators=table["operators"], excused=table["excused"])
