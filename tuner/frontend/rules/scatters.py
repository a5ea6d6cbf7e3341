"""Scatters, read backwards: every element of the result finds what was written to it.

No kernel writes at a computed position, so none needs an order or an atomic. Where the
positions are constants, they are a box (a slice that is assigned) or a table of which
update an element takes. Where only a run knows them, each row compares its own position
with those that may name it: one by one if they are two at most, else by a reduction
that finds the last one. What would take more comparisons than hide behind the memory
traffic is left to the library, and so are elements at positions that only a run knows:
taken apart, they join what lies around them to pieces too large to prove a plan of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.rules.movement import cut
from tuner.frontend.rules.picks import lines_of, picked, strides_of
from tuner.frontend.rules.reductions import reduce_
from tuner.ir.types import DType

UNROLLED: Final = 2
"""Updates that an element looks at one by one: each takes five nodes of the graph."""
TABLES: Final = 4
"""How often constants may name an element: each time takes a table of its own."""
MOST_ROWS: Final = 1 << 22
"""Of a table, which takes five bytes for each: 20 MiB."""
LOOKUPS: Final = 8
"""Comparisons for each element of the result that its memory traffic hides."""
_JOINS: Final[Mapping[str, str]] = MappingProxyType(
    {"none": "", "add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}
)
_REDUCTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "add": "reduce_sum",
        "mul": "reduce_prod",
        "maximum": "reduce_max",
        "minimum": "reduce_min",
    }
)
_NEUTRAL: Final[Mapping[str, int]] = MappingProxyType({"add": 0, "mul": 1})


def _join_of(b: Builder, call: Call) -> str:
    join = _JOINS[call.text("reduction", "none")]
    if join and b.dtype(call[0]) is DType.BOOL:
        raise Decline("a reduction of truth values")
    return join


def _joined(b: Builder, join: str, old: Ref, new: Ref) -> Ref:
    return b.emit(join, old, new) if join else new


def _elements(b: Builder, call: Call) -> Results:
    data, index, updates = call[0], call[1], call[2]
    shape, extents = b.static(data), b.static(index)
    axis, join = b.axis(data, call.whole("axis", 0)), _join_of(b, call)
    _check_elements(b, shape, extents, b.static(updates), axis)
    if 0 in extents:
        return (data,)
    known = b.values[index]
    if known is None:
        raise Decline("elements at positions that only a run knows")
    positions = _inside(b, known, shape[axis])
    result = _at_known_elements(b, data, updates, positions, axis, join)
    if result is None:
        raise Decline("an element that is named too often for tables")
    return (result,)


def _check_elements(
    b: Builder,
    shape: Sequence[int],
    extents: Sequence[int],
    updates: Sequence[int],
    axis: int,
) -> None:
    hint = "indices and updates have one shape, and beside the axis lie within the data"
    if len(extents) != len(shape) or not shape:
        problem = f"writes at indices of rank {len(extents)} into rank {len(shape)}"
        raise InvalidModel(b.where, problem, hint=hint)
    pairs = enumerate(zip(extents, shape, strict=True))
    if tuple(extents) != tuple(updates) or any(
        n > m for k, (n, m) in pairs if k != axis
    ):
        problem = f"writes {updates} at indices {extents} into {shape}"
        raise InvalidModel(b.where, problem, hint=hint)


def _at_known_elements(
    b: Builder, data: Ref, updates: Ref, positions: Any, axis: int, join: str
) -> Ref | None:
    """The result, unless an element is named too often for tables."""
    starts = _box_of_elements(positions, axis)
    if starts is not None:
        return _into_box(b, data, updates, starts, join)
    strides = strides_of(b.static(data))
    others = [1 if k == axis else n for k, n in enumerate(positions.shape)]
    flat = positions * strides[axis] + lines_of(others, strides)
    return _by_table(b, data, updates, flat.reshape(-1), join)


def _inside(b: Builder, index: Any, extent: int) -> Any:
    """Known positions from the front."""
    if index.min() < -extent or index.max() >= extent:
        raise InvalidModel(
            b.where, f"writes at index {index.max()} or {index.min()} of {extent}"
        )
    return np.where(index < 0, index + extent, index).astype(np.int64)


def _box_of_elements(positions: Any, axis: int) -> tuple[int, ...] | None:
    """Where the box begins whose elements the positions name in order, if they do."""
    line = [1] * positions.ndim
    line[axis] = positions.shape[axis]
    start = int(positions.reshape(-1)[0])
    if (positions != start + np.arange(line[axis]).reshape(line)).any():
        return None
    return tuple(start if k == axis else 0 for k in range(positions.ndim))


def _into_box(
    b: Builder, data: Ref, updates: Ref, starts: Sequence[int], join: str
) -> Ref:
    """Updates in place of a box of the data, of the same rank."""
    shape, sizes = b.static(data), b.static(updates)
    result = updates
    if join:
        box = data
        for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            box = cut(b, box, axis, start, size)
        result = b.emit(join, box, updates)
    for axis in reversed(range(len(shape))):
        around = data
        for k in range(axis):
            around = cut(b, around, k, starts[k], sizes[k])
        end = starts[axis] + sizes[axis]
        before = cut(b, around, axis, 0, starts[axis]) if starts[axis] else None
        rest = shape[axis] - end
        behind = cut(b, around, axis, end, rest) if rest else None
        parts = [part for part in (before, result, behind) if part is not None]
        if len(parts) > 1:
            result = b.emit("concat", *parts, axis=axis)
    return result


def _by_table(b: Builder, data: Ref, updates: Ref, rows: Any, join: str) -> Ref | None:
    """Updates of known rows, unless there are too many or one is named too often.

    The data's first axes, taken as one, are rows.

    Args:
        b: the graph so far.
        data: any rank; as many rows as its elements over those of an update.
        updates: for each row that is written, in order.
        rows: flat positions, one for each update.
        join: how a value meets the one before; empty if it takes its place.
    """
    shape, count = b.static(data), len(rows)
    width = math.prod(b.static(updates)) // count
    height = math.prod(shape) // width
    if height > MOST_ROWS or (join and np.bincount(rows).max() > TABLES):
        return None
    tables = _tables(rows, height, last_only=not join)
    written = b.reshape(updates, (count, width))
    result = b.reshape(data, (height, width))
    for table in tables:
        source = b.constant(table, DType.I32)
        hit = b.constant((table >= 0).reshape(height, 1), DType.BOOL)
        new = b.emit("gather", written, source, axis=0)
        result = b.emit("where", hit, _joined(b, join, result, new), result)
    return b.reshape(result, shape)


def _tables(rows: Any, height: int, *, last_only: bool) -> list[Any]:
    """For each row which update it takes first, second and so on; -1 for none."""
    if last_only:
        table = np.full(height, -1, np.int32)
        np.maximum.at(table, rows, np.arange(len(rows), dtype=np.int32))
        return [table]
    order = np.argsort(rows, kind="stable")
    firsts = np.searchsorted(rows[order], rows[order])
    turn = np.arange(len(rows)) - firsts
    tables = np.full((int(turn.max()) + 1, height), -1, np.int32)
    tables[turn, rows[order]] = order
    return list(tables)


def _looked_up(b: Builder, data: Ref, index: Ref, updates: Ref, join: str) -> Ref:
    """Updates of rows that only a run knows.

    Args:
        b: the graph so far.
        data: rows.
        index: a column with the row of each update.
        updates: rows.
        join: how a value meets the one before; empty if it takes its place.
    """
    (height, width), count = b.static(data), b.static(index)[0]
    places = b.constant(np.arange(height).reshape(height, 1), DType.I64)
    if count <= UNROLLED:
        result = data
        for turn in range(count):
            hit = b.emit("equal", cut(b, index, 0, turn, 1), places)
            new = _joined(b, join, result, cut(b, updates, 0, turn, 1))
            result = b.emit("where", hit, new, result)
        return result
    if count * (width if join else 1) > LOOKUPS * width:
        raise Decline("more comparisons than the memory traffic hides")
    if not join:
        hit = b.emit("equal", b.reshape(index, (1, count)), places)
        return _last(b, data, hit, updates)
    places = b.reshape(places, (height, 1, 1))
    hit = b.emit("equal", b.reshape(index, (1, count, 1)), places)
    return _reduced(b, data, hit, updates, join)


def _reduced(b: Builder, data: Ref, hit: Ref, updates: Ref, join: str) -> Ref:
    """What all hits of each row give together, joined with the data."""
    height, width = b.static(data)
    if join in _NEUTRAL:
        other = b.scalar(_NEUTRAL[join], data)
    else:
        other = b.reshape(data, (height, 1, width))
    new = b.emit("where", hit, updates, other)
    return b.emit(join, data, reduce_(b, _REDUCTIONS[join], new, (1,), keep=False))


def _last(b: Builder, data: Ref, hit: Ref, updates: Ref) -> Ref:
    """The last hit of each row in place of the data."""
    turns = b.constant(np.arange(b.static(updates)[0]), DType.I64)
    found = b.emit("where", hit, turns, b.constant(-1, DType.I64))
    place = reduce_(b, "reduce_max", found, (1,), keep=True)
    zero = b.constant(0, DType.I64)
    some = b.emit("greater_equal", place, zero)
    # Below zero where nothing is written: there any row will do.
    place = b.reshape(b.emit("maximum", place, zero), (b.static(data)[0],))
    return b.emit("where", some, b.emit("gather", updates, place, axis=0), data)


def _nd(b: Builder, call: Call) -> Results:
    data, index, updates = call[0], call[1], call[2]
    shape, given, join = b.static(data), b.static(index), _join_of(b, call)
    depth = given[-1] if given else 0
    _check_nd(b, shape, given, b.static(updates))
    if 0 in b.static(updates):
        return (data,)
    if not depth:
        raise Decline("indices without components")
    known = b.values[index]
    if known is not None:
        table = known.reshape(-1, depth)
        columns = [_inside(b, table[:, k], shape[k]) for k in range(depth)]
        result = _at_known_points(b, data, updates, columns, join)
        if result is not None:
            return (result,)
    flat = _flat(b, index, shape[:depth])
    height, width = math.prod(shape[:depth]), math.prod(shape[depth:])
    count = math.prod(given[:-1])
    rows = b.reshape(updates, (count, width))
    old, at = b.reshape(data, (height, width)), b.reshape(flat, (count, 1))
    return (b.reshape(_looked_up(b, old, at, rows, join), shape),)


def _check_nd(
    b: Builder, shape: Sequence[int], given: Sequence[int], updates: Sequence[int]
) -> None:
    if not given or given[-1] > len(shape):
        raise InvalidModel(
            b.where,
            f"writes at indices {tuple(given)} into {tuple(shape)}",
            hint="the last axis of the indices has one entry for each axis they name",
        )
    fitting = (*given[:-1], *shape[given[-1] :])
    if tuple(updates) != fitting:
        raise InvalidModel(
            b.where,
            f"writes {tuple(updates)} at indices {tuple(given)} into {tuple(shape)}",
            hint=f"updates of shape {fitting} fit",
        )


def _at_known_points(
    b: Builder, data: Ref, updates: Ref, columns: Sequence[Any], join: str
) -> Ref | None:
    """The result, unless a row is named too often for tables."""
    shape, depth = b.static(data), len(columns)
    box = _box_of_points(columns)
    if box is not None:
        starts, sizes = box
        block = b.reshape(updates, (*sizes, *shape[depth:]))
        starts = (*starts, *[0] * (len(shape) - depth))
        return _into_box(b, data, block, starts, join)
    strides = strides_of(shape[:depth])
    rows = sum(c * s for c, s in zip(columns, strides, strict=True))
    return _by_table(b, data, updates, rows, join)


def _flat(b: Builder, index: Ref, shape: Sequence[int]) -> Ref:
    """Positions of points, whose components lie along the last axis."""
    below = b.emit("less", index, b.constant(0, DType.I64))
    beyond = b.emit("add", index, b.constant(shape, DType.I64))
    parts = b.emit("where", below, beyond, index)
    if len(shape) == 1:
        return parts
    parts = b.emit("mul", parts, b.constant(strides_of(shape), DType.I64))
    last = b.rank(index) - 1
    total = cut(b, parts, last, 0, 1)
    for k in range(1, len(shape)):
        total = b.emit("add", total, cut(b, parts, last, k, 1))
    return total


def _box_of_points(
    columns: Sequence[Any],
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Starts and sizes of the box whose points the columns list in order, if so."""
    starts = tuple(int(places.min()) for places in columns)
    ends = (int(places.max()) + 1 for places in columns)
    sizes = tuple(end - start for start, end in zip(starts, ends, strict=True))
    if math.prod(sizes) != len(columns[0]):
        return None
    points = np.indices(sizes).reshape(len(sizes), -1)
    named = zip(columns, starts, points, strict=True)
    if any((place != start + line).any() for place, start, line in named):
        return None
    return starts, sizes


def _tensor(b: Builder, call: Call) -> Results:
    """Each sequence of a cache takes its update from an index of its own on."""
    data, updates = call[0], call[1]
    shape, sizes = b.static(data), b.static(updates)
    axis = b.axis(data, call.whole("axis", -2))
    pairs = enumerate(zip(shape, sizes, strict=False))
    if (
        axis == 0
        or len(shape) != len(sizes)
        or any(m > n or (m < n and k != axis) for k, (n, m) in pairs)
    ):
        problem = f"writes {sizes} into {shape} along axis {axis}"
        hint = "beside the axis, which is not the first, the extents are the same"
        raise InvalidModel(b.where, problem, hint=hint)
    if 0 in sizes:
        return (data,)
    place = _turn(b, call, shape, axis)
    zero = b.constant(0, DType.I64)
    hit = b.emit("less", place, b.constant(sizes[axis], DType.I64))
    hit = b.emit("logical_and", hit, b.emit("greater_equal", place, zero))
    strides = strides_of(sizes)
    others = [1 if k == axis else n for k, n in enumerate(sizes)]
    along = b.emit("where", hit, place, zero)
    along = b.emit("mul", along, b.constant(strides[axis], DType.I64))
    flat = b.emit("add", along, b.constant(lines_of(others, strides), DType.I64))
    return (b.emit("where", hit, picked(b, updates, flat, len(sizes)), data),)


def _turn(b: Builder, call: Call, shape: Sequence[int], axis: int) -> Ref:
    """Which entry of its update each position of a cache takes, if there is one."""
    circular = {"linear": False, "circular": True}[call.text("mode", "linear")]
    line = [1] * len(shape)
    line[axis] = shape[axis]
    place = b.constant(np.arange(shape[axis]).reshape(line), DType.I64)
    start = call.optional(2)
    if start is not None:
        first = (shape[0], *[1] * (len(shape) - 1))
        place = b.emit("sub", place, b.reshape(b.cast(start, DType.I64), first))
    if not circular:
        return place
    return b.emit("floor_mod", place, b.constant(shape[axis], DType.I64))


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Scatter": _elements,
        "ScatterElements": _elements,
        "ScatterND": _nd,
        "TensorScatter": _tensor,
    }
)
