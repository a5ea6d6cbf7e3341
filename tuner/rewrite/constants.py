"""Rules about constants: folding, and operators that a constant operand makes idle."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.ir.graph import Node
from tuner.ir.interpreter import apply, load
from tuner.ir.ops import OPS
from tuner.ir.types import DType
from tuner.rewrite.rule import Known, Make, Rule, Value, View
from tuner.rewrite.shapes import attributes, fitted

FOLD_LIMIT_BYTES: Final = 1 << 16
"""Larger results are not folded; they are computed once, in `prepare`. Values of
constants belong to a graph's identity, so they should stay small."""


def _is_small(node: Node, view: View) -> bool:
    wanted = view.type(node.outputs[0])
    if wanted.symbols or wanted.bytes > FOLD_LIMIT_BYTES:
        return False
    if node.op != "expand":
        return True
    return wanted.elements <= view.type(node.inputs[0]).elements


def _fold(node: Node, view: View) -> Value | None:
    """Nodes whose operands are all known, as long as the result is small."""
    if not node.inputs or view.constant(node.inputs[0]) is None:
        return None
    values = [view.constant(name) for name in node.inputs]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or OPS[node.op].reference is None:
        return None
    if not _is_small(node, view):
        return None
    wanted = view.type(node.outputs[0])
    dtypes = [view.type(name).dtype for name in node.inputs]
    (value,) = apply(node.op, known, node.attributes, (dtypes, [wanted.dtype]))
    return Known(wanted, np.ascontiguousarray(value).reshape(wanted.static_shape))


def uniform(view: View, tensor: str) -> npt.NDArray[Any] | None:
    """The one value that all elements of a constant have, as an array of shape ()."""
    value = view.constant(tensor)
    if value is None or not value.size:
        return None
    # Bits are compared, not numbers: 0.0 and -0.0 are different factors.
    bits = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    rows = bits.reshape(value.size, -1)
    if (rows[0] != rows[-1]).any() or not (rows == rows[0]).all():
        return None
    first: npt.NDArray[Any] = load(value.reshape(-1)[:1], view.type(tensor).dtype)
    return first.reshape(())


def _is_idle(op: str, place: int, dtype: DType, value: npt.NDArray[Any]) -> bool:
    """Whether an operator gives back its other operand, bit for bit.

    x + 0.0 is not x when x is -0.0; x + -0.0 and x - 0.0 are.
    """
    number = value.item()
    second = place == 1
    if op in ("mul", "logical_and"):
        return bool(number == 1)
    if op in ("div", "pow"):
        return bool(second and number == 1)
    if op == "add":
        return bool(number == 0 and (not dtype.is_float or np.signbit(value)))
    if op == "sub":
        return bool(second and number == 0 and not np.signbit(value))
    return bool(number == 0 and (second or op in ("logical_or", "logical_xor")))


_IDLE: Final = (
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "logical_and",
    "logical_or",
    "logical_xor",
    "shift_left",
    "shift_right",
)


def _idle(node: Node, view: View) -> Value | None:
    for place, name in enumerate(node.inputs):
        value = uniform(view, name)
        other = node.inputs[1 - place]
        dtype = view.type(other).dtype
        if value is None or dtype is not view.type(node.outputs[0]).dtype:
            continue
        if _is_idle(node.op, place, dtype, value):
            return fitted(view, other, view.type(node.outputs[0]))
    return None


def _decided(node: Node, view: View) -> Value | None:
    """A selection whose condition is known, or whose branches are one tensor."""
    condition, yes, no = node.inputs
    wanted = view.type(node.outputs[0])
    if yes == no:
        return fitted(view, yes, wanted)
    value = uniform(view, condition)
    if value is None:
        return None
    return fitted(view, yes if value.item() else no, wanted)


def _small_power(node: Node, view: View) -> Value | None:
    """Squares and cubes as products; 1 / x for the power of -1."""
    value = uniform(view, node.inputs[1])
    base = node.inputs[0]
    if value is None or value.item() not in (2, 3, -1):
        return None
    given, wanted = view.type(base), view.type(node.outputs[0])
    if given != wanted or not given.dtype.is_float:
        return None
    if value.item() == -1:
        return Make("reciprocal", (base,))
    square = Make("mul", (base, base))
    return square if value.item() == 2 else Make("mul", (square, base))  # noqa: PLR2004


_LARGER: Final = {"less": (1, 0), "greater": (0, 1)}
"""Which operand of a comparison is the larger one, and which the smaller."""


def _clamp(node: Node, view: View) -> Value | None:
    """A selection between a tensor and a number by comparing them is a clamp.

    The tensor must be what is kept when the comparison fails, as it does for NaN.
    """
    condition, number, kept = node.inputs
    test = view.maker(condition)
    value = uniform(view, number)
    if test is None or test.op not in _LARGER or value is None or np.isnan(value):
        return None
    if view.type(kept) != view.type(node.outputs[0]):
        return None
    larger, smaller = (test.inputs[place] for place in _LARGER[test.op])
    if (larger, smaller) == (number, kept):
        return Make("maximum", (kept, number))
    return (
        Make("minimum", (kept, number)) if (smaller, larger) == (number, kept) else None
    )


def _relu(node: Node, view: View) -> Value | None:
    """The larger of a tensor and zero."""
    for place, name in enumerate(node.inputs):
        other = node.inputs[1 - place]
        value = uniform(view, name)
        if value is not None and value.item() == 0:
            same = view.type(other) == view.type(node.outputs[0])
            return Make("relu", (other,)) if same else None
    return None


_DIGITS: Final = {  # bits of integers that the type holds exactly
    DType.BOOL: 1,
    DType.U8: 8,
    DType.I8: 8,
    DType.I32: 32,
    DType.I64: 64,
    DType.BF16: 8,
    DType.F16: 11,
    DType.F32: 24,
    DType.F64: 53,
}
_FLOATS_WITHIN: Final = {
    DType.F16: (DType.F32, DType.F64),
    DType.BF16: (DType.F32, DType.F64),
    DType.F32: (DType.F64,),
    DType.F64: (),
}


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of one type is a value of another."""
    if wide is narrow or narrow is DType.BOOL:
        return True
    if narrow.is_float:
        return wide in _FLOATS_WITHIN[narrow]
    if wide.is_float:
        return _DIGITS[wide] >= _DIGITS[narrow]
    if wide in (DType.BOOL, DType.U8):
        return False
    return _DIGITS[wide] > _DIGITS[narrow]


def _cast(node: Node, view: View) -> Value | None:
    """No cast to the same type, one cast for two where the first loses nothing."""
    source = node.inputs[0]
    wanted = view.type(node.outputs[0])
    if view.type(source) == wanted:
        return source
    inner = view.maker(source)
    if inner is None or inner.op != "cast":
        return None
    first = view.type(inner.inputs[0])
    if not holds(view.type(source).dtype, first.dtype):
        return None
    if first == wanted:
        return inner.inputs[0]
    return Make("cast", inner.inputs, attributes(to=wanted.dtype.value))


def _undone(node: Node, view: View) -> Value | None:
    """-(-x) and not(not x)."""
    inner = view.maker(node.inputs[0])
    return inner.inputs[0] if inner is not None and inner.op == node.op else None


def _repeated(node: Node, view: View) -> Value | None:
    """relu(relu(x)) and the like: the second changes nothing."""
    inner = view.maker(node.inputs[0])
    return node.inputs[0] if inner is not None and inner.op == node.op else None


FOLD: Final = Rule(name="fold-constants", ops=frozenset(), rewrite=_fold)
IDLE: Final = Rule(name="idle-operand", ops=frozenset(_IDLE), rewrite=_idle)
DECIDED: Final = Rule(
    name="decided-selection", ops=frozenset({"where"}), rewrite=_decided
)
POWER: Final = Rule(
    name="small-power", ops=frozenset({"pow"}), rewrite=_small_power, exact=False
)
CLAMP: Final = Rule(
    name="selection-is-clamp", ops=frozenset({"where"}), rewrite=_clamp, exact=False
)
RELU: Final = Rule(name="maximum-is-relu", ops=frozenset({"maximum"}), rewrite=_relu)
CAST: Final = Rule(name="cast-chain", ops=frozenset({"cast"}), rewrite=_cast)
UNDONE: Final = Rule(
    name="undone-twice",
    ops=frozenset({"neg", "logical_not", "bit_not"}),
    rewrite=_undone,
)
REPEATED: Final = Rule(
    name="idempotent",
    ops=frozenset({"relu", "abs", "floor", "ceil", "rint", "sign"}),
    rewrite=_repeated,
)
