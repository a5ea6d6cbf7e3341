"""Rules that the operator of this machine registered: in files, and by packages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from tuner.errors import InvalidOption
from tuner.frontend.rulefile import read_rules
from tuner.ir.custom import RuleSet
from tuner.pipeline import rule_targets

GROUP: Final = "fuseplan.rules"
"""Entry points of installed packages; each gives TOML, a path, or a dict of it."""


def registered(files: str = "", more: Iterable[Path] = ()) -> RuleSet:
    """The rules of installed packages and of files.

    Args:
        files: paths, written as a search path is.
        more: further paths.

    Raises:
        InvalidOption: rules cannot be read, or hold a mistake.
    """
    paths = [Path(part) for part in files.split(os.pathsep) if part]
    found = [_of_package(point) for point in _points()]
    found += [_of_file(path) for path in (*paths, *more)]
    return _joined(found)


def _points() -> list[EntryPoint]:
    return sorted(
        entry_points(group=GROUP), key=lambda point: (point.name, point.value)
    )


def _joined(found: Iterable[RuleSet]) -> RuleSet:
    total = RuleSet()
    for rules in found:
        for operator in rules.operators:
            known = total.by_key.get((operator.domain, operator.name))
            if known is not None and known != operator:
                raise InvalidOption(
                    f"{operator.domain}::{operator.name}",
                    "two rule files define it differently",
                    hint="drop one of them",
                )
        fresh = (o for o in rules.operators if (o.domain, o.name) not in total.by_key)
        total += RuleSet(operators=tuple(fresh), fusion=rules.fusion)
    return total


def _of_file(path: Path) -> RuleSet:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOption(
            str(path), f"cannot be read: {error.strerror}", hint="give a rule file"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidOption(
            str(path), "is not UTF-8 text", hint="see docs/rules.md"
        ) from error
    return read_rules(text, str(path), targets=rule_targets())


def _of_package(point: EntryPoint) -> RuleSet:
    where = f"entry point {point.name} of {GROUP}"
    try:
        given: Any = point.load()
        given = given() if callable(given) else given
    except Exception as error:
        raise InvalidOption(
            where,
            f"{point.value} failed: {type(error).__name__}: {error}",
            hint="repair or uninstall the package that has it",
        ) from error
    if isinstance(given, Path):
        return _of_file(given)
    if isinstance(given, str | Mapping):
        return read_rules(given, where, targets=rule_targets())
    raise InvalidOption(
        where,
        f"gives {type(given).__name__}",
        hint="give TOML text, a Path, or a dict with what the TOML would hold",
    )
