"""Reads rules of a user from TOML; every mistake is told with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import onnx.defs

from cost_model.work import Pipe
from tuner.errors import InvalidOption
from tuner.ir.custom import (
    FLOATS,
    INTEGERS,
    Action,
    CustomOperator,
    FusionRule,
    RuleSet,
    Shapes,
)
from tuner.ir.expr import FUNCTIONS, ExpressionError
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import DType

LONGEST: Final = 1 << 18
"""Bytes of a rule file; what is longer is no rule file."""
MOST_COST: Final = 1e6
"""Operations for one element that a rule may state."""

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_OPERATOR: Final = (
    "domain",
    "name",
    "inputs",
    "attributes",
    "pattern",
    "expression",
    "dtypes",
    "cost",
)
_ACTIONS: Final = {"forbid": 2, "require": 2, "alone": 1}
_FUSION: Final = ("name", *_ACTIONS, "targets")
_SHAPES: Final = ("elementwise", "broadcast")
PATTERNS: Final = tuple(pattern.name.lower() for pattern in Pattern)
"""Op patterns by the names that rules call them."""


def read_rules(
    document: str | Mapping[str, Any],
    source: str,
    *,
    targets: Collection[str] | None = None,
) -> RuleSet:
    """The rules of a TOML document, or of a mapping with what such a document holds.

    Args:
        document: the text, or what it says.
        source: its name, for messages.
        targets: devices that a rule may name; None lets all names pass.

    Raises:
        InvalidOption: a mistake; the message has the line and says what is allowed.
    """
    return _Reader(document, source, targets).read()


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of the document."""

    kind: str
    number: int
    rows: Mapping[str, Any]


class _Reader:
    """Reads one document."""

    def __init__(
        self,
        document: str | Mapping[str, Any],
        source: str,
        targets: Collection[str] | None,
    ) -> None:
        self._document = document
        self._lines = document.splitlines() if isinstance(document, str) else []
        self._source = source
        self._targets = targets

    def read(self) -> RuleSet:
        found = self._parsed()
        for key in found:
            if key not in ("operator", "fusion"):
                raise self._mistake(
                    self._find(rf"\[*\s*{re.escape(key)}\b", 0),
                    f"unknown table {key!r}",
                    "tables are [[operator]] and [[fusion]]",
                )
        operators = [self._operator(t) for t in self._tables(found, "operator")]
        self._once([(o.domain, o.name) for o in operators], "operator")
        rules = [self._rule(t) for t in self._tables(found, "fusion")]
        return RuleSet(operators=tuple(operators), fusion=tuple(rules))

    def _parsed(self) -> Mapping[str, Any]:
        if not isinstance(self._document, str):
            return self._document
        if len(self._document) > LONGEST:
            raise InvalidOption(
                self._source, f"is longer than {LONGEST} characters", hint="split it"
            )
        try:
            return tomllib.loads(self._document)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidOption(
                self._source, f"is not TOML: {error}", hint="see docs/rules.md"
            ) from error

    def _tables(self, found: Mapping[str, Any], kind: str) -> list[_Table]:
        rows = found.get(kind, [])
        if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
            line = self._find(rf"\[*\s*{kind}\b", 0)
            raise self._mistake(line, f"{kind} is not a table", f"write [[{kind}]]")
        return [_Table(kind, number, row) for number, row in enumerate(rows)]

    # Places

    def _find(self, pattern: str, first: int) -> int:
        """Position of the first line that starts so, from one on; else that one."""
        for number in range(first, len(self._lines)):
            if re.match(rf"\s*{pattern}", self._lines[number]):
                return number
        return first

    def _line(self, table: _Table, key: str = "") -> int:
        """Where a table starts, or where one of its keys stands."""
        start = -1
        for _ in range(table.number + 1):
            start = self._find(rf"\[\[\s*{table.kind}\s*\]\]", start + 1)
        if not key:
            return start
        end = self._find(r"\[\[", start + 1)
        end = end if end > start + 1 else len(self._lines)
        at = self._find(
            rf"(\[{table.kind}\.)?[\"']?{re.escape(key)}[\"']?\s*[.=\]]", start
        )
        return at if at < end else start

    def _mistake(self, line: int, problem: str, hint: str) -> InvalidOption:
        where = f"{self._source}:{line + 1}" if self._lines else self._source
        return InvalidOption(where, problem, hint=hint)

    def _at(self, table: _Table, key: str, problem: str, hint: str) -> InvalidOption:
        return self._mistake(self._line(table, key), f"{key}: {problem}", hint)

    def _once(self, keys: Sequence[tuple[str, str]], kind: str) -> None:
        for number, key in enumerate(keys):
            if key in keys[:number]:
                table = _Table(kind, number, {})
                name = "::".join(key)
                raise self._mistake(
                    self._line(table), f"{name} is defined twice", "drop one of them"
                )

    # Values

    def _known_keys(self, table: _Table, allowed: Sequence[str]) -> None:
        for key in table.rows:
            if key not in allowed:
                raise self._at(table, key, "unknown", f"keys: {', '.join(allowed)}")

    def _text_of(
        self, table: _Table, key: str, matches: re.Pattern[str] | None, hint: str
    ) -> str:
        value = table.rows.get(key)
        if value is None:
            raise self._mistake(self._line(table), f"{key} is missing", hint)
        fits = isinstance(value, str) and value
        if not fits or (matches is not None and not matches.fullmatch(value)):
            raise self._at(table, key, f"{value!r} is not what it can be", hint)
        return str(value)

    def _words(self, table: _Table, key: str, hint: str) -> tuple[str, ...]:
        value = table.rows.get(key, [])
        if not isinstance(value, list) or not all(
            isinstance(word, str) and word for word in value
        ):
            raise self._at(table, key, f"{value!r} is not a list of names", hint)
        return tuple(value)

    def _numbers(
        self, table: _Table, key: str, allowed: Callable[[str], bool], hint: str
    ) -> tuple[tuple[str, float], ...]:
        value = table.rows.get(key, {})
        if not isinstance(value, dict):
            raise self._at(table, key, f"{value!r} is not a table", hint)
        for name, number in value.items():
            is_number = isinstance(number, int | float) and number == number  # noqa: PLR0124
            if not allowed(name) or not is_number or isinstance(number, bool):
                raise self._at(table, key, f"{name} = {number!r} cannot be", hint)
        return tuple(sorted((name, float(number)) for name, number in value.items()))

    # Operators

    def _operator(self, table: _Table) -> CustomOperator:
        self._known_keys(table, _OPERATOR)
        domain = self._text_of(
            table, "domain", _DOMAIN, 'a domain of your own, such as "com.acme"'
        )
        if domain == "ai.onnx":
            raise self._at(
                table, "domain", "belongs to the ONNX standard", "take one of your own"
            )
        inputs = self._inputs(table)
        attributes = self._numbers(
            table,
            "attributes",
            lambda name: bool(_WORD.fullmatch(name)) and name not in FUNCTIONS,
            "names with default numbers, such as { beta = 1.0 }; not a function's name",
        )
        operator = CustomOperator(
            domain=domain,
            name=self._text_of(
                table, "name", _WORD, 'an operator, such as "SwishGate"'
            ),
            inputs=inputs,
            attributes=attributes,
            shapes=self._shapes(table),
            expression=self._text_of(
                table, "expression", None, _expression_hint(inputs)
            ),
            dtypes=self._dtypes(table),
            cost=self._cost(table),
        )
        return self._checked(table, operator)

    def _inputs(self, table: _Table) -> tuple[str, ...]:
        hint = 'names that the expression uses, such as ["x", "gate"]'
        inputs = self._words(table, "inputs", hint)
        if not inputs:
            raise self._mistake(self._line(table), "inputs are missing", hint)
        names = (*inputs, *table.rows.get("attributes", {}))
        for name in names:
            if not _WORD.fullmatch(name) or name in FUNCTIONS:
                raise self._at(table, "inputs", f"{name!r} cannot be a name", hint)
            if names.count(name) > 1:
                raise self._at(table, "inputs", f"{name!r} is named twice", hint)
        return inputs

    def _shapes(self, table: _Table) -> Shapes:
        value = table.rows.get("pattern", "broadcast")
        if value not in _SHAPES:
            raise self._at(
                table, "pattern", f"{value!r} is none", f"one of {', '.join(_SHAPES)}"
            )
        return cast("Shapes", value)

    def _dtypes(self, table: _Table) -> tuple[DType, ...]:
        allowed = {str(dtype): dtype for dtype in FLOATS}
        hint = f"a list of {', '.join(allowed)}"
        words = self._words(table, "dtypes", hint) or tuple(allowed)
        for word in words:
            if word not in allowed:
                raise self._at(table, "dtypes", f"{word!r} is none", hint)
        return tuple(allowed[word] for word in words)

    def _cost(self, table: _Table) -> tuple[tuple[str, float], ...]:
        pipes = [str(pipe) for pipe in Pipe if pipe is not Pipe.TENSOR]
        found = self._numbers(
            table,
            "cost",
            lambda name: name in pipes,
            f"operations for one element by pipe: {', '.join(pipes)}",
        )
        for name, number in found:
            if not 0 <= number <= MOST_COST:
                raise self._at(
                    table,
                    "cost",
                    f"{name} = {number:g} cannot be",
                    f"0 to {MOST_COST:g}",
                )
        return found

    def _checked(self, table: _Table, operator: CustomOperator) -> CustomOperator:
        try:
            assert operator.steps
        except ExpressionError as error:
            raise self._at(
                table, "expression", str(error), _expression_hint(operator.inputs)
            ) from error
        return operator

    # Fusion rules

    def _rule(self, table: _Table) -> FusionRule:
        self._known_keys(table, _FUSION)
        name = self._text_of(table, "name", None, "a name for messages")
        actions = [action for action in _ACTIONS if action in table.rows]
        if len(actions) != 1:
            raise self._mistake(
                self._line(table),
                f"{name!r} has {len(actions)} actions",
                f"give one of {', '.join(_ACTIONS)}",
            )
        (action,) = actions
        wanted = _ACTIONS[action]
        hint = (
            f"{wanted} of: an ONNX operator, DOMAIN::OPERATOR, a primitive"
            f" ({', '.join(OPS)}) or an op pattern ({', '.join(PATTERNS)})"
        )
        kinds = self._words(table, action, hint)
        if len(kinds) != wanted:
            raise self._at(table, action, f"names {len(kinds)} kinds", hint)
        for kind in kinds:
            if not _is_kind(kind):
                raise self._at(table, action, f"{kind!r} is none that there is", hint)
        return FusionRule(
            name=name,
            action=cast("Action", action),
            kinds=kinds,
            targets=self._devices(table),
        )

    def _devices(self, table: _Table) -> tuple[str, ...]:
        hint = "ids, aliases or architectures of the catalogue"
        if self._targets is not None:
            hint += f": {', '.join(sorted(self._targets))}"
        words = self._words(table, "targets", hint)
        for word in words:
            if self._targets is not None and word not in self._targets:
                raise self._at(table, "targets", f"{word!r} is no device", hint)
        return words


def _expression_hint(inputs: Sequence[str]) -> str:
    return (
        f"an expression of {', '.join(inputs)}, numbers, + - * /, comparisons and"
        f" {', '.join(name for name in FUNCTIONS if name not in INTEGERS)}"
    )


def _is_kind(kind: str) -> bool:
    if kind in PATTERNS or kind in OPS:
        return True
    domain, sign, name = kind.rpartition("::")
    if sign:
        return bool(_DOMAIN.fullmatch(domain) and _WORD.fullmatch(name))
    return onnx.defs.has(kind)
