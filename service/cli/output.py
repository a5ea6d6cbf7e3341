"""What commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

_PIPE_COLUMNS: Final = 140
"""Width of tables where no terminal says its own."""

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console


def emit(data: object) -> None:
    """Print one JSON document to standard output."""
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def line(text: str = "") -> None:
    """Print one line to standard output, whatever its encoding can show."""
    encoding = sys.stdout.encoding or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    sys.stdout.write(shown + "\n")


def note(text: str) -> None:
    """Print one line to standard error: progress, never data."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def console(*, to_errors: bool = False) -> Console:
    """A rich console; plain text where the output is not a terminal.

    COLUMNS is the user's word on the width, in a pipe too.
    """
    from rich.console import Console

    terminal = (sys.stderr if to_errors else sys.stdout).isatty()
    asked = shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns
    width = None if terminal else asked
    return Console(stderr=to_errors, highlight=False, width=width)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; a column whose name starts with `>` is aligned to the right.

    In a pipe the table is wide, unless COLUMNS says otherwise; no cell is cut.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD)
    for name in columns:
        justify: Any = "right" if name.startswith(">") else "left"
        numeric = justify == "right"
        title = name.removeprefix(">")
        grid.add_column(title, justify=justify, overflow="fold", no_wrap=numeric)
    for row in rows:
        grid.add_row(*(escape(cell) for cell in row))
    console().print(grid)


def facts(pairs: Mapping[str, str]) -> None:
    """Print names and values in two columns, without lines."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        line(f"{name:<{width}}  {value}")
