"""Element-wise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final

import numpy as np

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.protos import dtype_of

_ROWS: Final[Mapping[str, str]] = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Add": "add",
    "And": "logical_and",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseAnd": "bit_and",
    "BitwiseNot": "bit_not",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Div": "div",
    "Equal": "equal",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "IsNaN": "isnan",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Log": "log",
    "Mul": "mul",
    "Neg": "neg",
    "Not": "logical_not",
    "Or": "logical_or",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "rint",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Sub": "sub",
    "Tan": "tan",
    "Tanh": "tanh",
    "Where": "where",
    "Xor": "logical_xor",
}


_CLIP_HAS_INPUTS: Final = 11
_CLIP_HAS_BODY: Final = 13
_LARGEST: Final = float(np.finfo(np.float32).max)


def _row(name: str) -> Rule:
    def rule(b: Builder, call: Call) -> Results:
        return (b.emit(name, *call.given()),)

    return rule


def _chain(name: str) -> Rule:
    """Max, Min and Sum take any number of operands."""

    def rule(b: Builder, call: Call) -> Results:
        return (_join(b, name, call.given()),)

    return rule


def _join(b: Builder, name: str, refs: Sequence[Ref]) -> Ref:
    return reduce(lambda left, right: b.emit(name, left, right), refs)


def _mean(b: Builder, call: Call) -> Results:
    refs = call.given()
    total = _join(b, "add", refs)
    return (b.emit("div", total, b.scalar(len(refs), total)),)


def _cast(b: Builder, call: Call) -> Results:
    return (b.cast(call[0], dtype_of(call.whole("to", 0), b.where)),)


def _cast_like(b: Builder, call: Call) -> Results:
    return (b.cast(call[0], b.dtype(call[1])),)


def _pow(b: Builder, call: Call) -> Results:
    base, exponent = call[0], call[1]
    wanted = b.dtype(base)
    if b.dtype(exponent).is_float and not wanted.is_float:
        result = b.emit("pow", b.cast(base, b.dtype(exponent)), exponent)
        return (b.cast(result, wanted),)
    return (b.emit("pow", base, b.cast(exponent, wanted)),)


def _mod(b: Builder, call: Call) -> Results:
    row = "fmod" if call.whole("fmod", 0) else "floor_mod"
    return (b.emit(row, call[0], call[1]),)


def _bit_shift(b: Builder, call: Call) -> Results:
    left = call.text("direction", "") == "LEFT"
    return (b.emit("shift_left" if left else "shift_right", call[0], call[1]),)


def _is_inf(b: Builder, call: Call) -> Results:
    data = call[0]
    up, down = call.whole("detect_positive", 1), call.whole("detect_negative", 1)
    if up and down:
        return (b.emit("isinf", data),)
    if not up and not down:
        never = b.emit("isinf", data)
        return (b.emit("logical_and", never, b.emit("logical_not", never)),)
    edge = b.scalar(np.inf if up else -np.inf, data)
    return (b.emit("equal", data, edge),)


def _clip(b: Builder, call: Call) -> Results:
    """Clip before opset 13, whose standard has no body."""
    if call.opset >= _CLIP_HAS_BODY:
        raise Decline("the standard has a body")
    low, high = call.optional(1), call.optional(2)
    result = call[0]
    if call.opset < _CLIP_HAS_INPUTS:
        low = b.scalar(call.real("min", -_LARGEST), result)
        high = b.scalar(call.real("max", _LARGEST), result)
    if low is not None:
        result = b.emit("maximum", result, low)
    if high is not None:
        result = b.emit("minimum", result, high)
    return (result,)


def _identity(_: Builder, call: Call) -> Results:
    return (call[0],)


def _dropout(b: Builder, call: Call) -> Results:
    """Dropout at inference: the data itself, and a mask of ones."""
    training = call.optional(2)
    if training is not None and any(b.ints(training)):
        raise Decline("random numbers")
    mask = None
    if call.asks(1):
        shape = b.shape(call[0])
        one = b.constant(np.ones((1,) * len(shape)), dtype_of(9, b.where))
        mask = b.emit("expand", one, shape=shape)
    return (call[0], mask)


def _check_bool(b: Builder, ref: Ref, what: str) -> None:
    if b.dtype(ref) is not dtype_of(9, b.where):
        raise InvalidModel(b.where, f"{what} must be bool, is {b.dtype(ref)}")


def _where(b: Builder, call: Call) -> Results:
    _check_bool(b, call[0], "the condition")
    return (b.emit("where", call[0], call[1], call[2]),)


_OTHERS: Final[Mapping[str, Callable[[Builder, Call], Results]]] = {
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Dropout": _dropout,
    "Identity": _identity,
    "IsInf": _is_inf,
    "Max": _chain("maximum"),
    "Mean": _mean,
    "Min": _chain("minimum"),
    "Mod": _mod,
    "Pow": _pow,
    "Sum": _chain("add"),
    "Where": _where,
}

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {**{op: _row(row) for op, row in _ROWS.items()}, **_OTHERS}
)
