"""Operators that pick elements by index, and those that find the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.rules.reductions import reduce_
from tuner.ir.types import DType

_HARDMAX_HAS_ONE_AXIS: Final = 13


def strides_of(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours along each axis, in row-major order."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return strides[::-1]


def wrapped(b: Builder, index: Ref, extent: int) -> Ref:
    """An index below zero counts from the end."""
    below = b.emit("less", index, b.scalar(0, index))
    return b.emit("where", below, b.emit("add", index, b.scalar(extent, index)), index)


def lines_of(extents: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Flat position of each point of a box, from its own coordinates."""
    total = np.zeros((1,) * len(extents), np.int64)
    for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        shape = [1] * len(extents)
        shape[axis] = extent
        total = total + stride * np.arange(extent).reshape(shape)
    return total


def picked(b: Builder, data: Ref, flat: Ref, leading: int) -> Ref:
    """Rows of the data, its first axes taken as one."""
    shape = b.static(data)
    count = int(np.prod(shape[:leading], dtype=np.int64))
    table = b.reshape(data, (count, *shape[leading:]))
    return b.emit("gather", table, flat, axis=0)


def _gather_elements(b: Builder, call: Call) -> Results:
    data, index = call[0], call[1]
    shape, wanted = b.static(data), b.static(index)
    if len(shape) != len(wanted):
        raise InvalidModel(b.where, f"picks {len(wanted)} axes of {len(shape)}")
    axis = b.axis(data, call.whole("axis", 0))
    strides = strides_of(shape)
    step = b.scalar(strides[axis], index)
    along = b.emit("mul", wrapped(b, index, shape[axis]), step)
    others = [1 if k == axis else n for k, n in enumerate(wanted)]
    start = b.constant(lines_of(others, strides), b.dtype(index))
    return (picked(b, data, b.emit("add", along, start), len(shape)),)


def _gather_nd(b: Builder, call: Call) -> Results:
    data, index = call[0], call[1]
    shape, given = b.static(data), b.static(index)
    batch, depth = call.whole("batch_dims", 0), given[-1]
    leading = batch + depth
    if leading > len(shape):
        raise InvalidModel(b.where, f"picks {leading} axes of {len(shape)}")
    strides = strides_of(shape[:leading])
    box = [n if k < batch else 1 for k, n in enumerate(given[:-1])]
    steps = [*strides[:batch], *[0] * (len(box) - batch)]
    flat = b.constant(lines_of(box, steps), DType.I64)
    for place in range(depth):
        each = _column(b, index, place)
        extent, stride = shape[batch + place], strides[batch + place]
        step = b.constant(stride, DType.I64)
        flat = b.emit("add", flat, b.emit("mul", wrapped(b, each, extent), step))
    return (picked(b, data, flat, leading),)


def _column(b: Builder, index: Ref, place: int) -> Ref:
    """One component of indices whose last axis holds several."""
    shape = b.static(index)
    part = b.emit(
        "slice",
        index,
        starts=(*[0] * (len(shape) - 1), place),
        steps=(1,) * len(shape),
        sizes=(*shape[:-1], 1),
    )
    return b.cast(b.reshape(part, shape[:-1]), DType.I64)


def _reverse_sequence(b: Builder, call: Call) -> Results:
    """Along the time axis, the first elements of each sequence change places."""
    data, lengths = call[0], b.cast(call[1], DType.I64)
    shape = b.static(data)
    time, batch = call.whole("time_axis", 0), call.whole("batch_axis", 1)
    line = [1, 1]
    line[time] = shape[time]
    step = b.constant(np.arange(shape[time]).reshape(line), DType.I64)
    row = [1, 1]
    row[batch] = shape[batch]
    count = b.reshape(lengths, row)
    last = b.emit("sub", count, b.constant(1, DType.I64))
    behind = b.emit("less", step, count)
    place = b.emit("where", behind, b.emit("sub", last, step), step)
    strides = strides_of(shape[:2])
    along = b.emit("mul", place, b.constant(strides[time], DType.I64))
    start = strides[batch] * np.arange(shape[batch]).reshape(row)
    return (picked(b, data, b.emit("add", along, b.constant(start, DType.I64)), 2),)


def _place_of_extreme(b: Builder, data: Ref, axis: int, row: str, *, last: bool) -> Ref:
    """Where along an axis, kept as one, the extreme lies; a NaN is the extreme."""
    extent = b.static(data)[axis]
    peak = reduce_(b, row, data, (axis,), keep=True)
    hit = b.emit("equal", data, peak)
    if b.dtype(data).is_float:
        hit = b.emit("logical_or", hit, b.emit("isnan", data))
    line = b.constant(_line(b, data, axis), DType.I64)
    miss = b.constant(-1 if last else extent, DType.I64)
    found = b.emit("where", hit, line, miss)
    return reduce_(b, "reduce_max" if last else "reduce_min", found, (axis,), keep=True)


def _line(b: Builder, data: Ref, axis: int) -> np.ndarray:
    shape = [1] * b.rank(data)
    shape[axis] = b.static(data)[axis]
    return np.arange(shape[axis]).reshape(shape)


def _arg(row: str) -> Rule:
    def rule(b: Builder, call: Call) -> Results:
        data = call[0]
        axis = b.axis(data, call.whole("axis", 0))
        if not b.rank(data) or 0 in b.static(data):
            raise Decline("nothing to choose from")
        last = bool(call.whole("select_last_index", 0))
        place = _place_of_extreme(b, data, axis, row, last=last)
        if call.whole("keepdims", 1):
            return (place,)
        shape = b.shape(place)
        return (b.reshape(place, [*shape[:axis], *shape[axis + 1 :]]),)

    return rule


def _hardmax(b: Builder, call: Call) -> Results:
    if call.opset < _HARDMAX_HAS_ONE_AXIS:
        raise Decline("over several axes")
    data = call[0]
    axis = b.axis(data, call.whole("axis", -1))
    place = _place_of_extreme(b, data, axis, "reduce_max", last=False)
    line = b.constant(_line(b, data, axis), DType.I64)
    return (b.cast(b.emit("equal", line, place), b.dtype(data)),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "ArgMax": _arg("reduce_max"),
        "ArgMin": _arg("reduce_min"),
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "Hardmax": _hardmax,
        "ReverseSequence": _reverse_sequence,
    }
)
