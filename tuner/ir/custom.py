"""Rules of a user: operators in the kernel language, and what may share a kernel.

A rule set is a value: it says everything about itself in JSON, and its digest is part
of the plan key. Nothing is registered in a global table.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final
from typing import Literal as OneOf

from tuner.ir.expr import (
    FUNCTIONS,
    Call,
    Expr,
    ExpressionError,
    Literal,
    Operand,
    operations,
    parse,
)
from tuner.ir.types import DType

Shapes = OneOf["elementwise", "broadcast"]
Action = OneOf["forbid", "require", "alone"]

FLOATS: Final = (DType.F64, DType.F32, DType.F16, DType.BF16)
"""Element types that a custom operator may compute in."""
_TRUTHS: Final = frozenset({"and_", "or_", "xor_", "not_"})
INTEGERS: Final = frozenset(n for n in FUNCTIONS if n.startswith(("bit_", "shift")))
"""Functions that a custom operator, which computes floats, has no use for."""
_LONGEST: Final = 2000
AS_VALUE: Final = "as_value"
"""The step that turns a truth value into 0 or 1."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """The result of an earlier step."""

    step: int


Arg = Operand | Literal | Earlier


@dataclass(frozen=True, slots=True)
class Step:
    """One function of the kernel language, or `AS_VALUE`, applied to known values."""

    function: str
    args: tuple[Arg, ...]


@dataclass(frozen=True, kw_only=True)
class CustomOperator:
    """An operator of the user's own, computed element by element.

    Attributes:
        domain, name: how ONNX nodes ask for it.
        inputs: names of its operands in the expression.
        attributes: names and defaults of its float attributes, used like operands.
        shapes: `elementwise`: all operands have one shape; `broadcast`: they broadcast
            by NumPy's rules.
        expression: its meaning, in the kernel language.
        dtypes: element types that it may compute in.
        cost: operations by pipe that one element takes; empty: counted from the
            expression.
    """

    domain: str
    name: str
    inputs: tuple[str, ...]
    expression: str
    attributes: tuple[tuple[str, float], ...] = ()
    shapes: Shapes = "broadcast"
    dtypes: tuple[DType, ...] = FLOATS
    cost: tuple[tuple[str, float], ...] = ()

    @cached_property
    def tree(self) -> Expr:
        """The expression; operands are the inputs, then the attributes.

        Raises:
            ExpressionError: it is not in the kernel language, or uses an unknown name.
        """
        if len(self.expression) > _LONGEST:
            raise ExpressionError(f"it is longer than {_LONGEST} characters")
        names = [*self.inputs, *(name for name, _ in self.attributes)]
        numbered = _with_numbers(self.expression, names)
        try:
            found = parse(numbered)
        except ExpressionError as error:  # in the user's own words
            text = str(error).replace(repr(numbered), repr(self.expression))
            raise ExpressionError(text) from error
        except RecursionError as error:
            raise ExpressionError("it nests too deeply") from error
        used = {leaf.index for leaf in _leaves(found)}
        for index, name in enumerate(self.inputs):
            if index not in used:
                raise ExpressionError(f"{self.expression!r}: {name!r} is not used")
        return found

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The expression as a list of steps, each after those that it reads.

        Truth values become 0 or 1 where a number is wanted.

        Raises:
            ExpressionError: a number stands where a truth value is wanted.
        """
        listing = _Listing(self.expression)
        try:
            last = listing.value(self.tree)
        except RecursionError as error:
            raise ExpressionError("it nests too deeply") from error
        if not isinstance(last, Earlier):
            raise ExpressionError(f"{self.expression!r}: computes nothing")
        return tuple(listing.steps)

    @property
    def extra(self) -> tuple[tuple[str, float], ...]:
        """Stated operations beyond those that the expression shows, by pipe."""
        if not self.cost:
            return ()
        shown = {str(pipe): n for pipe, n in operations(self.tree).items()}
        stated = dict(self.cost)
        pipes = sorted({*shown, *stated})
        extra = ((p, stated.get(p, 0.0) - shown.get(p, 0.0)) for p in pipes)
        return tuple((pipe, more) for pipe, more in extra if more)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionRule:
    """What may share a kernel.

    Attributes:
        name: for messages.
        action: `forbid`: no kernel holds nodes of both kinds; `require`: where a node
            of the second kind reads one of the first, some kernel holds both; `alone`:
            a node of the kind shares its kernel with no other node of the user's.
        kinds: two kinds of nodes, or for `alone` one: an ONNX operator (`Softmax`,
            `com.acme::SwishGate`), a primitive (`reduce_sum`), or an op pattern
            (`reduction`).
        targets: devices on which the rule holds, by id, alias or architecture; empty:
            all.
    """

    name: str
    action: Action
    kinds: tuple[str, ...]
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """Operators and fusion rules of a user. False when there are none."""

    operators: tuple[CustomOperator, ...] = ()
    fusion: tuple[FusionRule, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return bool(self.operators or self.fusion)

    def __add__(self, other: RuleSet) -> RuleSet:
        """The rules of both."""
        return RuleSet(
            operators=(*self.operators, *other.operators),
            fusion=(*self.fusion, *other.fusion),
        )

    @cached_property
    def by_key(self) -> Mapping[tuple[str, str], CustomOperator]:
        """Operators by domain and name."""
        return {(o.domain, o.name): o for o in self.operators}

    @property
    def as_json(self) -> dict[str, Any]:
        """The rules as JSON has them; `from_json` reads it."""
        return {
            "operators": [asdict(operator) for operator in self.operators],
            "fusion": [asdict(rule) for rule in self.fusion],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> RuleSet:
        """Rules that `as_json` wrote; nothing is checked again."""
        operators = (
            CustomOperator(
                **{
                    **row,
                    "inputs": tuple(row["inputs"]),
                    "attributes": _pairs(row["attributes"]),
                    "dtypes": tuple(DType(d) for d in row["dtypes"]),
                    "cost": _pairs(row["cost"]),
                }
            )
            for row in told["operators"]
        )
        fusion = (
            FusionRule(
                **{
                    **row,
                    "kinds": tuple(row["kinds"]),
                    "targets": tuple(row["targets"]),
                }
            )
            for row in told["fusion"]
        )
        return cls(operators=tuple(operators), fusion=tuple(fusion))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the rules say, whatever their order; empty without rules."""
        if not self:
            return ""
        told = self.as_json
        rows = [
            json.dumps(row, sort_keys=True) for part in told.values() for row in part
        ]
        return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def _pairs(rows: Sequence[Sequence[Any]]) -> tuple[tuple[str, float], ...]:
    return tuple((str(name), float(value)) for name, value in rows)


class _Renamed(ast.NodeTransformer):
    """Puts the kernel language's operand names in the place of the user's."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._text = text
        self._names = {name: f"a{index}" for index, name in enumerate(names)}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rename arguments, not the function."""
        node.args = [self.visit(arg) for arg in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rename an operand."""
        if node.id not in self._names:
            known = ", ".join(self._names)
            raise ExpressionError(
                f"{self._text!r}: no operand {node.id!r}; there are: {known}"
            )
        return ast.Name(id=self._names[node.id])


def _with_numbers(text: str, names: Sequence[str]) -> str:
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return ast.unparse(_Renamed(text, names).visit(tree))
    except SyntaxError as error:
        raise ExpressionError(f"{text!r}: {error.msg}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError("it nests too deeply, or holds a zero byte") from error


def _leaves(tree: Expr) -> Iterator[Operand]:
    if isinstance(tree, Operand):
        yield tree
    elif isinstance(tree, Call):
        for arg in tree.args:
            yield from _leaves(arg)


class _Listing:
    """Lists the functions of an expression, innermost first, equal ones once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.steps: list[Step] = []

    def value(self, tree: Expr) -> Arg:
        """A number."""
        found, is_truth = self._any(tree)
        return self._add(Step(AS_VALUE, (found,))) if is_truth else found

    def _truth(self, tree: Expr, function: str) -> Arg:
        found, is_truth = self._any(tree)
        if not is_truth:
            raise ExpressionError(
                f"{self._text!r}: {function} takes a truth value, such as x > 0"
            )
        return found

    def _any(self, tree: Expr) -> tuple[Arg, bool]:
        if not isinstance(tree, Call):
            return tree, False
        name = tree.function
        if name in INTEGERS:
            raise ExpressionError(
                f"{self._text!r}: {name} works on integers, a custom operator on floats"
            )
        if name in _TRUTHS:
            args = [self._truth(arg, name) for arg in tree.args]
        elif name == "where":
            first, *others = tree.args
            args = [self._truth(first, name), *map(self.value, others)]
        else:
            args = [self.value(arg) for arg in tree.args]
        return self._add(Step(name, tuple(args))), FUNCTIONS[name].gives_bool

    def _add(self, step: Step) -> Earlier:
        if step in self.steps:
            return Earlier(self.steps.index(step))
        self.steps.append(step)
        return Earlier(len(self.steps) - 1)
