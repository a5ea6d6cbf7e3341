"""Quantisation, where a scale belongs to the tensor or to each slice of an axis."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.protos import dtype_of
from tuner.ir.types import DType

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
    if call.whole("block_size", 0):
        raise Decline("scales for blocks")
    axis = call.whole("axis", 1)
    zero = call.optional(2)
    scale = _along(b, call[1], call[0], axis)
    return scale, None if zero is None else _along(b, zero, call[0], axis)


def _quantize(b: Builder, call: Call) -> Results:
    """Divide, round half to even, add the zero point, saturate."""
    data = call[0]
    scale, zero = _parameters(b, call)
    wanted = DType.U8 if zero is None else b.dtype(zero)
    if call.whole("output_dtype", 0):
        wanted = dtype_of(call.whole("output_dtype", 0), b.where)
    if wanted not in _RANGES or call.whole("precision", 0):
        raise Decline(f"quantises to {wanted.value}")
    low, high = _RANGES[wanted]
    scaled = b.emit("rint", b.emit("div", data, b.cast(scale, b.dtype(data))))
    if zero is not None:
        scaled = b.emit("add", scaled, b.cast(zero, b.dtype(data)))
    above = b.emit("maximum", scaled, b.scalar(low, scaled))
    return (b.cast(b.emit("minimum", above, b.scalar(high, above)), wanted),)


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


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
)
