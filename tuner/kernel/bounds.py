"""Which reciprocals of computed values are sure to be normal numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.ir.expr import Call, Literal, Operand, parse
from tuner.ir.types import DType
from tuner.kernel.nest import Apply, Constant, Reduced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.ir.expr import Expr
    from tuner.kernel.nest import Reduction, Value

_SURE: Final = {DType.F32: 2.0**100, DType.F64: 2.0**900}
"""Numbers between this and its reciprocal stay normal through roundings."""
_DEPTH: Final = 8
_LARGEST: Final = {DType.F32: 2.0**128, DType.F64: 2.0**1023}
_SMALLEST: Final = {DType.F32: 2.0**-149, DType.F64: 2.0**-1074}
_EXP: Final = parse("exp(a0)")
_DIFFERENCE: Final = parse("a0 - a1")


class Bounds(NamedTuple):
    """A value is zero, infinite, no number, or of a magnitude in between.

    Zeros and infinities need no care: a product with their reciprocals is what the
    quotient is.
    """

    least: float
    most: float
    is_positive: bool
    """Whether it is never below zero."""


def _any(dtype: DType) -> Bounds:
    return Bounds(_SMALLEST.get(dtype, 0.0), _LARGEST.get(dtype, math.inf), False)


def may_have_normal_reciprocal(expression: str, arity: int, dtype: DType) -> bool:
    """Whether results of an expression may ever be sure to have a normal reciprocal.

    Bounds of a result are no closer for operands of wider bounds. So where operands of
    magnitude one that are never below zero do not tell, no operands do.
    """
    sure = _SURE.get(dtype)
    if sure is None:
        return False
    one = Bounds(1.0, 1.0, True)
    found = _expression(parse(expression), range(arity), [one] * arity, dtype)
    return found.least >= 1 / sure and found.most <= sure


class Ranges:
    """The bounds of the values of one group whose rows have `length` elements."""

    def __init__(
        self, values: Sequence[Value], reductions: Sequence[Reduction], length: int
    ) -> None:
        """Look at a group as far as it is built."""
        self._values = values
        self._reductions = reductions
        self._length = length

    def has_normal_reciprocal(self, number: int) -> bool:
        """Whether a value's reciprocal is normal unless it is zero or infinite."""
        sure = _SURE.get(self._values[number].dtype, 0.0)
        found = self._value(number, _DEPTH)
        return bool(sure) and found.least >= 1 / sure and found.most <= sure

    def _value(self, number: int, depth: int) -> Bounds:
        value = self._values[number]
        what, dtype = value.what, value.dtype
        if depth == 0 or dtype not in _LARGEST:
            return _any(dtype)
        if isinstance(what, Constant):
            return _literal(float(what.value))
        if isinstance(what, Reduced):
            return self._sum(self._reductions[what.reduction], dtype, depth - 1)
        if isinstance(what, Apply) and what.operand is dtype:
            args = [self._value(arg, depth - 1) for arg in what.args]
            return _expression(what.expression, what.args, args, dtype)
        return _any(dtype)

    def _sum(self, reduction: Reduction, dtype: DType, depth: int) -> Bounds:
        if reduction.op == "reduce_sum" and self._has_a_one(reduction.source):
            return Bounds(1.0, float(self._length), True)
        source = self._value(reduction.source, depth)
        if reduction.op in ("reduce_max", "reduce_min"):
            return source
        if reduction.op == "reduce_sum" and source.is_positive:
            return _rounded(source._replace(most=source.most * self._length), dtype)
        return _any(dtype)

    def _has_a_one(self, number: int) -> bool:
        """Whether a row has powers of its elements less their maximum.

        Then one of them is 1 and none is greater.
        """
        power = self._values[number].what
        if not isinstance(power, Apply) or power.expression != _EXP:
            return False
        below = self._values[power.args[0]].what
        if not isinstance(below, Apply) or below.expression != _DIFFERENCE:
            return False
        element, top = below.args
        what = self._values[top].what
        if not isinstance(what, Reduced):
            return False
        reduction = self._reductions[what.reduction]
        return reduction.op == "reduce_max" and reduction.source == element


def _literal(value: float) -> Bounds:
    size = abs(value)
    if size == 0 or not math.isfinite(size):  # allowed beside any bounds
        return Bounds(1.0, 1.0, value >= 0)
    return Bounds(size, size, value >= 0)


def _expression(
    expr: Expr, numbers: Sequence[int], args: Sequence[Bounds], dtype: DType
) -> Bounds:
    if isinstance(expr, Operand):
        return args[expr.index]
    if isinstance(expr, Literal):
        return _literal(expr.value)
    inner = [_expression(arg, numbers, args, dtype) for arg in expr.args]
    return _rounded(_call(expr, inner, numbers, dtype), dtype)


def _call(  # noqa: PLR0911 - one case a line
    call: Call, args: Sequence[Bounds], numbers: Sequence[int], dtype: DType
) -> Bounds:
    match call.function:
        case "max" | "min":
            return _one_of(args, is_max=call.function == "max")
        case "where":
            return _one_of(args[1:], is_max=False)
        case "neg" | "abs":
            return args[0]._replace(is_positive=call.function == "abs")
        case "sqrt":
            return Bounds(math.sqrt(args[0].least), math.sqrt(args[0].most), True)
        case "mul":
            return _product(call, args, numbers)
        case "div":
            return _quotient(args[0], args[1])
        case "add" if args[0].is_positive and args[1].is_positive:
            least = min(args[0].least, args[1].least)
            return Bounds(least, args[0].most + args[1].most, True)
        case name:
            return _any(dtype)._replace(is_positive=name == "exp")


def _one_of(args: Sequence[Bounds], *, is_max: bool) -> Bounds:
    positive = [arg.is_positive for arg in args]
    is_positive = any(positive) if is_max else all(positive)
    least, most = min(a.least for a in args), max(a.most for a in args)
    return Bounds(least, most, is_positive)


def _product(call: Call, args: Sequence[Bounds], numbers: Sequence[int]) -> Bounds:
    first, second = args
    one, two = call.args
    is_square = one == two or (
        isinstance(one, Operand)
        and isinstance(two, Operand)
        and numbers[one.index] == numbers[two.index]
    )
    is_positive = is_square or (first.is_positive and second.is_positive)
    return Bounds(first.least * second.least, first.most * second.most, is_positive)


def _quotient(first: Bounds, second: Bounds) -> Bounds:
    is_positive = first.is_positive and second.is_positive
    least, most = first.least / second.most, math.inf
    if second.least:
        most = first.most / second.least
    return Bounds(least, most, is_positive)


def _rounded(bounds: Bounds, dtype: DType) -> Bounds:
    """Bounds that hold of what a type can tell; a result may have lost digits."""
    everything = _any(dtype)
    sure = _SURE[dtype]
    least = bounds.least if bounds.least >= 1 / sure else everything.least
    most = bounds.most if bounds.most <= sure else everything.most
    return Bounds(least, most, bounds.is_positive)
