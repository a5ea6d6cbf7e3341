"""How a command ends: errors become exit codes and are reported in one place.

The table of codes is that of `service.errors`; it is loaded when something failed.
"""

from __future__ import annotations

import json
import sys
import traceback
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from service.errors.problems import Problem


class Exit(IntEnum):
    """What the shell sees."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    MISS = 3
    MODEL = 4
    DEVICE = 5
    VERIFICATION = 6
    SERVICE = 7
    CONSTRAINTS = 8
    INTERRUPTED = 130


class CommandError(Exception):
    """An error that a command itself notices.

    Attributes:
        code: a row of `service.errors.table.PROBLEMS`.
        where: the file, key or address that the error is about.
        problem: what is wrong there.
        hint: what the user can do.
    """

    code = "unexpected"

    def __init__(self, where: str, problem: str, *, hint: str = "") -> None:
        self.where = where
        self.problem = problem
        self.hint = hint
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text} ({hint})" if hint else text)


class BadArgument(CommandError):
    """An argument cannot be used as given."""

    code = "bad-argument"


class CacheMiss(CommandError):
    """There is no stored plan of this kind under this key."""

    code = "cache-miss"


class ServiceDown(CommandError):
    """The service or its database gave no usable answer."""

    code = "service-unavailable"


def told(error: BaseException) -> Problem:
    """The error as the service tells it, with its exit code."""
    from service.errors import ServiceError
    from service.errors.problems import problem, problem_of
    from service.errors.table import PROBLEMS

    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return problem("interrupted", "interrupted")
    if isinstance(error, typer.TyperException):
        hint = "see `fuseplan --help`"
        return problem("bad-argument", error.format_message(), hint=hint)
    code = getattr(error, "code", None)
    if isinstance(error, ServiceError) or code not in PROBLEMS:
        return problem_of(error)
    return problem(
        str(code),
        str(getattr(error, "problem", error)),
        where=str(getattr(error, "where", "")),
        hint=str(getattr(error, "hint", "")),
    )


def line(problem: Problem) -> str:
    """One line that says where, what, and what to do."""
    text = f"{problem.where}: {problem.detail}" if problem.where else problem.detail
    hint = f" ({problem.hint})" if problem.hint else ""
    return " ".join(f"{text}{hint}".split())


def report(error: BaseException, *, as_json: bool, log: Path) -> int:
    """Tell the user about an error, and keep the details of an unexpected one.

    Args:
        error: what ended the command.
        as_json: whether a problem document goes to standard output.
        log: file that takes the traceback of an error of ours.

    Returns:
        The exit code.
    """
    from service.errors.problems import shortened

    problem = told(error)
    document = problem.document()
    shown = line(problem)
    if problem.exit_code == Exit.UNEXPECTED:
        what = shortened(f"{type(error).__name__}: {error}".splitlines()[0])
        shown = f"unexpected {what} (details in {_keep(error, log)})"
        document |= {"detail": shown}
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stderr.write(f"fuseplan: {shown}\n")
    return problem.exit_code


def _keep(error: BaseException, log: Path) -> str:
    """Append the traceback to the log; say so when that is impossible too."""
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"--- {stamp} {' '.join(sys.argv)}\n")
            file.writelines(traceback.format_exception(error))
    except OSError as failure:
        return f"nowhere: {log} cannot be written, {failure.strerror}"
    return str(log)
