"""Text of scalar values: literals, expressions, conversions."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.ir.expr import FUNCTIONS, Call, Expr, Literal, Operand
from tuner.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.render.dialect import Dialect

_NAMES: Final = re.compile(
    r"\b[a-z][a-z_0-9]*_(?:f64|f32|i64|i32|i8|u8|bool|f16|bf16)\b"
)
_ATOMIC: Final = re.compile(
    r"[A-Za-z_0-9.]+(\[[^\[\]]*\])?|[0-9.]+e-?[0-9]+f?|[a-z_0-9]*\([^()]*\)"
)
_NARROW: Final = (DType.I8, DType.U8)


def number(value: float, dtype: DType, dialect: Dialect) -> str:
    """A literal of a held dtype."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return _whole(int(value), dtype)
    return _floating(value, dtype, dialect)


def _floating(value: float, dtype: DType, dialect: Dialect) -> str:
    if math.isnan(value):
        return dialect.not_a_number[dtype]
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value)) if dtype is DType.F32 else float(value)
    if math.isinf(rounded):
        sign = "-" if rounded < 0 else ""
        return f"{sign}{dialect.infinity[dtype]}"
    if dtype is DType.F32:
        return f"{_real(str(np.float32(rounded)))}f"
    return _real(repr(rounded))


def _real(text: str) -> str:
    return text if any(c in text for c in ".e") else f"{text}.0"


def _whole(value: int, dtype: DType) -> str:
    if dtype is not DType.I64:
        return f"(-{-value - 1} - 1)" if value == -(2**31) else str(value)
    if value == -(2**63):
        return f"(-{-value - 1}L - 1)"
    return f"{value}L"


def expression(
    expr: Expr, args: Sequence[str], operand: DType, dialect: Dialect
) -> str:
    """An expression of the kernel language over named operands."""
    if isinstance(expr, Operand):
        return args[expr.index]
    if isinstance(expr, Literal):
        return number(expr.value, operand, dialect)
    return _call(expr, args, operand, dialect)


def _call(expr: Call, args: Sequence[str], operand: DType, dialect: Dialect) -> str:
    parts = [atomic(expression(a, args, operand, dialect)) for a in expr.args]
    plain = _plain_extreme(expr, parts, operand)
    if plain:
        return plain
    template = dialect.spelling[expr.function][operand]
    text = template.format(*parts, t=dialect.held[operand], d=operand.value)
    if operand in _NARROW and not FUNCTIONS[expr.function].gives_bool:
        return f"({dialect.held[operand]})({text})"
    return text


def _plain_extreme(expr: Call, parts: Sequence[str], operand: DType) -> str:
    """A maximum or minimum with a literal needs one comparison, not two."""
    if expr.function not in ("max", "min") or not operand.is_float:
        return ""
    if not isinstance(expr.args[1], Literal):
        return ""
    sign = "<" if expr.function == "max" else ">"
    return f"{parts[0]} {sign} {parts[1]} ? {parts[1]} : {parts[0]}"


def atomic(text: str) -> str:
    """The text as an operand: in parentheses if it is not a single term."""
    return text if _ATOMIC.fullmatch(text) else f"({text})"


def converted(text: str, source: DType, target: DType, dialect: Dialect) -> str:
    """A value converted to another held dtype."""
    if source is target:
        return text
    inner = atomic(text)
    if target is DType.BOOL:
        return f"{inner} != 0"
    if target in _NARROW and source.is_float:
        return f"({dialect.held[target]})({dialect.held[DType.I32]}){inner}"
    return f"({dialect.held[target]}){inner}"


def helpers_in(text: str, dialect: Dialect) -> list[str]:
    """Helper functions that a text calls, each once, in order of their names."""
    names = sorted({name for name in _NAMES.findall(text) if name in dialect.helpers})
    return [f"{dialect.helper} {dialect.helpers[name]}" for name in names]
