"""Operators that make tensors from shapes: constants, ranges, masks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tuner.errors import InvalidModel, UnsupportedModel
from tuner.frontend.builder import Builder, Decline
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.opaque import normal_form
from tuner.frontend.protos import array_of, dense_of, dtype_of
from tuner.frontend.rules.movement import number
from tuner.frontend.rules.views import expand
from tuner.frontend.sizes import Size
from tuner.ir.types import Array, DType, TensorType

LARGEST_RANGE: Final = 1 << 20
"""Elements up to which a range of known bounds is a constant."""


def _shape(b: Builder, call: Call) -> Results:
    rank = b.rank(call[0])
    start, end = call.whole("start", 0), call.whole("end", rank)
    extents = b.extents(call[0])[start:end]
    return (_sizes(b, call, extents),)


def _size(b: Builder, call: Call) -> Results:
    total: Any = 1
    for extent in b.extents(call[0]):
        total = total * extent
    if isinstance(total, Size):
        raise Decline("the number of elements is symbolic")
    return (b.constant(np.asarray(total), DType.I64),)


def _sizes(b: Builder, call: Call, extents: list[Any]) -> int:
    if not any(isinstance(extent, Size) for extent in extents):
        return b.constant(np.asarray(extents, dtype=np.int64), DType.I64)
    kind = TensorType(dtype=DType.I64, shape=(len(extents),))
    ref = b.opaque((call[0],), (kind,), normal_form(call))[0]
    b.follow(ref, extents)
    return ref


def _constant(b: Builder, call: Call) -> Results:
    for name, value in call.attributes.items():
        if name == "sparse_value":
            value = dense_of(value, b.where)  # noqa: PLW2901
        if name in ("value", "sparse_value"):
            array = array_of(value, b.where)
            dtype = dtype_of(value.data_type, b.where)
            return (b.source(TensorType(dtype=dtype, shape=array.shape), array),)
        if name in ("value_float", "value_floats"):
            return (b.constant(np.asarray(value, np.float32), DType.F32),)
        if name in ("value_int", "value_ints"):
            return (b.constant(np.asarray(value, np.int64), DType.I64),)
    raise UnsupportedModel(
        b.where,
        "is a Constant without numbers",
        hint="a text can only be read by operators of a library",
    )


def _constant_of_shape(b: Builder, call: Call) -> Results:
    shape = [b.sizes.dim(count) for count in b.counts(call[0])]
    tensor = call.attributes.get("value")
    if tensor is None:
        dtype = DType.F32
        filler: Array = np.zeros((), np.float32)
    else:
        dtype = dtype_of(tensor.data_type, b.where)
        filler = array_of(tensor, b.where)
    one = b.literal(filler.reshape((1,) * len(shape)), dtype)
    return (expand(b, one, shape),)


def _range(b: Builder, call: Call) -> Results:
    known = [b.values[call[i]] for i in range(3)]
    if any(value is None for value in known):
        return _symbolic_range(b, call)
    start, limit, delta = (number(b, call[i]) for i in range(3))
    if delta == 0:
        raise InvalidModel(b.where, "counts with step 0")
    count = max(int(np.ceil((limit - start) / delta)), 0)
    if count > LARGEST_RANGE:
        raise Decline(f"a range of {count} numbers")
    dtype = b.dtype(call[0])
    steps = np.arange(count, dtype=np.float64 if dtype.is_float else np.int64)
    return (b.constant(start + delta * steps, dtype),)


def _symbolic_range(b: Builder, call: Call) -> Results:
    """Counting by one up to a symbolic size: made at run time, of known length."""
    if b.dtype(call[0]).is_float:
        raise Decline("a range of run-time bounds")
    start, limit, delta = (b.counts(call[i])[0] for i in range(3))
    if not isinstance(delta, int) or delta != 1:
        raise Decline("a range of run-time steps")
    kind = TensorType(dtype=b.dtype(call[0]), shape=(b.sizes.dim(limit - start),))
    return b.opaque(call.given(), (kind,), normal_form(call))


def _eye_like(b: Builder, call: Call) -> Results:
    rows, columns = b.static(call[0])
    wanted = call.attributes.get("dtype")
    dtype = b.dtype(call[0]) if wanted is None else dtype_of(wanted, b.where)
    offset = call.whole("k", 0)
    down = b.constant(np.arange(rows)[:, None] + offset, DType.I64)
    right = b.constant(np.arange(columns)[None, :], DType.I64)
    return (b.cast(b.emit("equal", down, right), dtype),)


def _trilu(b: Builder, call: Call) -> Results:
    data = call[0]
    rows, columns = b.static(data)[-2:]
    shift = call.optional(1)
    offset = 0 if shift is None else b.ints(shift)[0]
    down = b.constant(np.arange(rows)[:, None] + offset, DType.I64)
    right = b.constant(np.arange(columns)[None, :], DType.I64)
    row = "less_equal" if call.whole("upper", 1) else "greater_equal"
    kept = b.emit(row, down, right)
    return (b.emit("where", kept, data, b.scalar(0, data)),)


def _one_hot(b: Builder, call: Call) -> Results:
    indices, pair = call[0], call[2]
    depth = int(number(b, call[1]))
    axis = b.axis(indices, call.whole("axis", -1), extra=1)
    if b.dtype(indices).is_float:
        indices = b.cast(indices, DType.I64)
    shape = list(b.shape(indices))
    wide = b.reshape(indices, [*shape[:axis], 1, *shape[axis:]])
    line = np.arange(depth).reshape(-1, *[1] * (len(shape) - axis))
    dtype = b.dtype(indices)
    wrapped = b.emit("add", wide, b.constant(depth, dtype))
    below = b.emit("less", wide, b.constant(0, dtype))
    chosen = b.emit("where", below, wrapped, wide)
    hit = b.emit("equal", chosen, b.constant(line, dtype))
    off, on = (
        b.reshape(
            b.emit("slice", pair, starts=(i,), steps=(1,), sizes=(1,)),
            [],
        )
        for i in range(2)
    )
    return (b.emit("where", hit, on, off),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Constant": _constant,
        "ConstantOfShape": _constant_of_shape,
        "EyeLike": _eye_like,
        "OneHot": _one_hot,
        "Range": _range,
        "Shape": _shape,
        "Size": _size,
        "Trilu": _trilu,
    }
)
