"""Quantisation, where a scale belongs to the tensor or to each slice of an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.protos import dtype_of
from tuner.frontend.rules.movement import cut
from tuner.frontend.rules.views import repeat
from tuner.ir.types import DType

LARGEST_PRODUCT: Final = 1 << 20
"""Multiplications of integers up to which a kernel of ours does not lose."""
_RANGES: Final[Mapping[DType, tuple[int, int]]] = {
    DType.U8: (0, 255),
    DType.I8: (-128, 127),
}


def _along(b: Builder, ref: Ref, data: Ref, axis: int) -> Ref:
    """A parameter, shaped to meet the data."""
    if b.rank(ref) == 0:
        return ref
    if b.rank(ref) != 1:
        raise Decline("scales for blocks")
    if b.shape(ref) == (1,):
        return b.reshape(ref, ())
    place = b.axis(data, axis)
    shape = [1] * b.rank(data)
    return b.reshape(ref, [*shape[:place], *b.shape(ref), *shape[place + 1 :]])


def _parameters(b: Builder, call: Call) -> tuple[Ref, Ref | None]:
    axis, block = call.whole("axis", 1), call.whole("block_size", 0)
    zero = call.optional(2)
    if block:
        place = b.axis(call[0], axis)
        scale = _blocked(b, call[1], call[0], place, block)
        return scale, None if zero is None else _blocked(b, zero, call[0], place, block)
    scale = _along(b, call[1], call[0], axis)
    return scale, None if zero is None else _along(b, zero, call[0], axis)


def _blocked(b: Builder, ref: Ref, data: Ref, axis: int, block: int) -> Ref:
    """A parameter of each block of neighbours along an axis, for each of them."""
    counts = [1] * b.rank(data)
    counts[axis] = block
    return cut(b, repeat(b, ref, counts, each=True), axis, 0, b.static(data)[axis])


def _quantize(b: Builder, call: Call) -> Results:
    """Divide, round half to even, add the zero point, saturate."""
    data = call[0]
    scale, zero = _parameters(b, call)
    wanted = DType.U8 if zero is None else b.dtype(zero)
    if call.whole("output_dtype", 0):
        wanted = dtype_of(call.whole("output_dtype", 0), b.where)
    if wanted not in _RANGES or call.whole("precision", 0):
        raise Decline(f"quantises to {wanted.value}")
    scaled = b.emit("div", data, b.cast(scale, b.dtype(data)))
    return (_saturated(b, scaled, zero, wanted),)


def _saturated(b: Builder, scaled: Ref, zero: Ref | None, wanted: DType) -> Ref:
    low, high = _RANGES[wanted]
    scaled = b.emit("rint", scaled)
    if zero is not None:
        scaled = b.emit("add", scaled, b.cast(zero, b.dtype(scaled)))
    above = b.emit("maximum", scaled, b.scalar(low, scaled))
    return b.cast(b.emit("minimum", above, b.scalar(high, above)), wanted)


def _dequantize(b: Builder, call: Call) -> Results:
    """Subtract the zero point among integers, then multiply."""
    data = call[0]
    scale, zero = _parameters(b, call)
    if b.dtype(data).is_float or call.whole("output_dtype", 0):
        raise Decline("another form of dequantisation")
    wide = b.cast(data, DType.I32)
    if zero is not None:
        wide = b.emit("sub", wide, b.cast(zero, DType.I32))
    return (b.emit("mul", b.cast(wide, b.dtype(scale)), scale),)


def _centred(b: Builder, ref: Ref, zero: Ref | None, *, is_left: bool) -> Ref:
    """Whole numbers without their zero point, which may be one for each row."""
    wide = b.cast(ref, DType.I32)
    if zero is None:
        return wide
    return b.emit("sub", wide, b.cast(_beside(b, zero, is_left=is_left), DType.I32))


def _beside(b: Builder, ref: Ref, *, is_left: bool) -> Ref:
    """A parameter of each row of the left operand, or column of the right one."""
    if is_left and b.rank(ref) == 1 and b.shape(ref) != (1,):
        return b.reshape(ref, (*b.shape(ref), 1))
    return ref


def _only_small(b: Builder, left: Ref, right: Ref) -> None:
    products = math.prod(b.static(left)) * b.static(right)[-1]
    if products > LARGEST_PRODUCT:
        raise Decline("the library has faster integer products")


def _matmul_integer(b: Builder, call: Call) -> Results:
    _only_small(b, call[0], call[1])
    left = _centred(b, call[0], call.optional(2), is_left=True)
    right = _centred(b, call[1], call.optional(3), is_left=False)
    return (b.emit("matmul", left, right),)


def _quantized_matmul(b: Builder, call: Call) -> Results:
    """Multiply among integers, scale the sums, round, saturate."""
    wanted = b.dtype(call[7])
    if wanted not in _RANGES:
        raise Decline(f"quantises to {wanted.value}")
    _only_small(b, call[0], call[3])
    left = _centred(b, call[0], call[2], is_left=True)
    right = _centred(b, call[3], call[5], is_left=False)
    total = b.cast(b.emit("matmul", left, right), DType.F32)
    scaled = b.emit("mul", total, b.cast(_beside(b, call[1], is_left=True), DType.F32))
    scaled = b.emit("mul", scaled, b.cast(call[4], DType.F32))
    own = b.cast(call[6], DType.F32)
    scaled = b.emit("div", scaled, _beside(b, own, is_left=True))
    return (_saturated(b, scaled, _beside(b, call[7], is_left=True), wanted),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "DequantizeLinear": _dequantize,
        "MatMulInteger": _matmul_integer,
        "QLinearMatMul": _quantized_matmul,
        "QuantizeLinear": _quantize,
    }
)
