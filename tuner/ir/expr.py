"""The kernel language: scalar expressions over operands, literals and functions.

An operator's meaning inside a kernel is one line such as ``a0 * (1 + erf(a1))``. The
line is parsed into a small tree; counting and rendering walk the tree, so no text of
a rule or a request ever reaches generated source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from cost_model.work import Pipe


@dataclass(frozen=True, slots=True)
class Operand:
    """The value of the operator's input number `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A number; it takes the dtype of the expression around it."""

    value: float


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the kernel language applied to expressions."""

    function: str
    args: tuple[Expr, ...]


Expr = Operand | Literal | Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of the kernel language.

    Attributes:
        arity: number of arguments.
        cost: operations by pipe of one application.
        gives_bool: whether the result is a truth value.
    """

    arity: int
    cost: Mapping[Pipe, float]
    gives_bool: bool = False


def _row(arity: int, *, gives_bool: bool = False, **cost: float) -> Function:
    pipes = {Pipe[name]: count for name, count in cost.items()}
    return Function(arity=arity, cost=MappingProxyType(pipes), gives_bool=gives_bool)


# Operation counts of the accurate (not fast-math) forms, to the nearest few
# instructions: CUDA C++ Programming Guide, "Arithmetic Instructions", and the
# polynomial lengths of the CUDA math library's single-precision functions.
FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "add": _row(2, FMA32=1),
        "sub": _row(2, FMA32=1),
        "mul": _row(2, FMA32=1),
        "div": _row(2, FMA32=8, SPECIAL=1),
        "neg": _row(1, FMA32=1),
        "abs": _row(1, FMA32=1),
        "min": _row(2, FMA32=2),
        "max": _row(2, FMA32=2),
        "where": _row(3, FMA32=1),
        "lt": _row(2, FMA32=1, gives_bool=True),
        "le": _row(2, FMA32=1, gives_bool=True),
        "gt": _row(2, FMA32=1, gives_bool=True),
        "ge": _row(2, FMA32=1, gives_bool=True),
        "eq": _row(2, FMA32=1, gives_bool=True),
        "and_": _row(2, INTEGER=1, gives_bool=True),
        "or_": _row(2, INTEGER=1, gives_bool=True),
        "xor_": _row(2, INTEGER=1, gives_bool=True),
        "not_": _row(1, INTEGER=1, gives_bool=True),
        "isnan": _row(1, FMA32=1, gives_bool=True),
        "isinf": _row(1, FMA32=1, gives_bool=True),
        "sign": _row(1, FMA32=3),
        "floor": _row(1, FMA32=1),
        "ceil": _row(1, FMA32=1),
        "rint": _row(1, FMA32=1),
        "sqrt": _row(1, FMA32=5, SPECIAL=1),
        "reciprocal": _row(1, FMA32=6, SPECIAL=1),
        "exp": _row(1, FMA32=6, SPECIAL=1),
        "log": _row(1, FMA32=16, INTEGER=4),
        "sin": _row(1, FMA32=18, INTEGER=6),
        "cos": _row(1, FMA32=18, INTEGER=6),
        "tan": _row(1, FMA32=22, SPECIAL=1, INTEGER=6),
        "asin": _row(1, FMA32=16, SPECIAL=1),
        "acos": _row(1, FMA32=16, SPECIAL=1),
        "atan": _row(1, FMA32=16, SPECIAL=1),
        "sinh": _row(1, FMA32=20, SPECIAL=2),
        "cosh": _row(1, FMA32=16, SPECIAL=2),
        "tanh": _row(1, FMA32=14, SPECIAL=2),
        "asinh": _row(1, FMA32=24, SPECIAL=2),
        "acosh": _row(1, FMA32=22, SPECIAL=2),
        "atanh": _row(1, FMA32=22, SPECIAL=2),
        "erf": _row(1, FMA32=18, SPECIAL=1),
        "pow": _row(2, FMA32=40, SPECIAL=2, INTEGER=4),
        "fmod": _row(2, FMA32=16, SPECIAL=1, INTEGER=4),
        "floor_mod": _row(2, FMA32=18, SPECIAL=1, INTEGER=4),
        "shift_left": _row(2, INTEGER=1),
        "shift_right": _row(2, INTEGER=1),
        "bit_and": _row(2, INTEGER=1),
        "bit_or": _row(2, INTEGER=1),
        "bit_xor": _row(2, INTEGER=1),
        "bit_not": _row(1, INTEGER=1),
    }
)

_BINARY: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
}
_COMPARE: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
}


class ExpressionError(ValueError):
    """A line is not in the kernel language; the message says where."""


@lru_cache(maxsize=1024)
def parse(text: str) -> Expr:
    """Parse one line of the kernel language.

    Operands are ``a0``, ``a1``, ...; the operators are ``+ - * /``, unary minus and
    single comparisons; everything else is a function of `FUNCTIONS`.

    Raises:
        ExpressionError: the text holds anything else.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ExpressionError(f"{text!r}: {error.msg}") from error
    return _convert(tree.body, text)


def _convert(tree: ast.expr, text: str) -> Expr:  # noqa: PLR0911 - one case a line
    match tree:
        case ast.Name(id=name) if name[:1] == "a" and name[1:].isdigit():
            return Operand(int(name[1:]))
        case ast.Constant(value=int() | float() as value):
            return Literal(float(value))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return Call("neg", (_convert(inner, text),))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            pair = (_convert(left, text), _convert(right, text))
            return Call(_BINARY[type(op)], pair)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if (
            type(op) in _COMPARE
        ):
            pair = (_convert(left, text), _convert(right, text))
            return Call(_COMPARE[type(op)], pair)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _call(name, tuple(_convert(arg, text) for arg in args), text)
        case _:
            part = ast.unparse(tree)
            raise ExpressionError(f"{text!r}: {part!r} is not in the kernel language")


def _call(name: str, args: tuple[Expr, ...], text: str) -> Call:
    function = FUNCTIONS.get(name)
    if function is None:
        known = ", ".join(sorted(FUNCTIONS))
        raise ExpressionError(f"{text!r}: no function {name!r}; there are: {known}")
    if function.arity != len(args):
        raise ExpressionError(
            f"{text!r}: {name} takes {function.arity} arguments, got {len(args)}"
        )
    return Call(name, args)


def calls(expr: Expr) -> Iterator[Call]:
    """Every function application of an expression, outermost first."""
    if isinstance(expr, Call):
        yield expr
        for arg in expr.args:
            yield from calls(arg)


def operations(expr: Expr) -> Mapping[Pipe, float]:
    """Operations by pipe of one evaluation."""
    total: dict[Pipe, float] = {}
    for call in calls(expr):
        for pipe, count in FUNCTIONS[call.function].cost.items():
            total[pipe] = total.get(pipe, 0.0) + count
    return MappingProxyType(total)
