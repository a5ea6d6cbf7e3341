"""Pooling: a window is a short reduction, unrolled over its positions."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.ir.inference import ints, whole
from tuner.kernel.errors import CannotLower
from tuner.kernel.held import ACCUMULATED, HELD, identity
from tuner.kernel.index import Guard, Guards, Index, Map, shifted, times
from tuner.kernel.views import Key, Rule, Values, joined_all

if TYPE_CHECKING:
    from tuner.ir.graph import Node

WINDOW_ELEMENTS: Final = 64
"""Windows of up to so many elements are unrolled; larger ones run in a library."""


class _Tap(NamedTuple):
    """One position of the window, for every point of the result.

    Attributes:
        place: of the element in the data.
        inside: conditions under which it lies in the data.
        counted: conditions under which the mean counts it.
    """

    place: Map
    inside: Guards
    counted: Guards


def max_pool(body: Values, node: Node, key: Key) -> Rule:
    """The largest element of each window; padding never wins."""
    held = HELD[body.graph.types[key.tensor].dtype]
    taps = _taps(body, node, key)
    numbers = yield _questions(node, key, taps)
    least = body.constant(identity("reduce_max", held), held)
    total = least
    for tap, number in zip(taps, numbers, strict=True):
        chosen = body.select(tap.inside, number, least) if tap.inside else number
        is_first = total == least
        total = chosen if is_first else _joined(body, "max(a0, a1)", total, chosen)
    return total


def average_pool(body: Values, node: Node, key: Key) -> Rule:
    """The mean of each window, over the elements that count."""
    held = HELD[body.graph.types[key.tensor].dtype]
    wide = ACCUMULATED[held]
    taps = _taps(body, node, key)
    numbers = yield _questions(node, key, taps)
    zero, one = body.constant(0, wide), body.constant(1, wide)
    total, count, fixed = zero, zero, 0
    for tap, number in zip(taps, numbers, strict=True):
        value = body.cast(number, wide)
        value = body.select(tap.inside, value, zero) if tap.inside else value
        total = value if total == zero else _joined(body, "a0 + a1", total, value)
        if tap.counted:
            each = body.select(tap.counted, one, zero)
            count = each if count == zero else _joined(body, "a0 + a1", count, each)
        else:
            fixed += 1
    if fixed:
        known = body.constant(fixed, wide)
        count = known if count == zero else _joined(body, "a0 + a1", count, known)
    return body.cast(_joined(body, "a0 / a1", total, count), held)


def _joined(body: Values, text: str, left: int, right: int) -> int:
    dtype = body.dtype(left)
    return body.apply(text, (left, right), dtype, dtype)


def _questions(node: Node, key: Key, taps: list[_Tap]) -> list[Key]:
    source = node.inputs[0]
    return [Key(source, t.place, joined_all(key.guards, t.inside)) for t in taps]


def _taps(body: Values, node: Node, key: Key) -> list[_Tap]:
    """The positions of the window of which some lie in the data."""
    kernel = ints(node.attributes, "kernel")
    if math.prod(kernel) > WINDOW_ELEMENTS:
        raise CannotLower(node.name, f"a window of {math.prod(kernel)} elements")
    found = []
    for point in itertools.product(*map(range, kernel)):
        tap = _tap(body, node, key, point)
        if tap is not None:
            found.append(tap)
    return found


def _tap(body: Values, node: Node, key: Key, point: tuple[int, ...]) -> _Tap | None:
    strides, dilations = (ints(node.attributes, n) for n in ("strides", "dilations"))
    pads, rank = ints(node.attributes, "pads"), len(point)
    with_pads = bool(node.op == "average_pool" and whole(node.attributes, "count_pads"))
    place: list[Index] = list(key.map[:2])
    inside: Guards = ()
    counted: Guards = ()
    extents = body.shape(node.inputs[0])[2:]
    for axis, step in enumerate(point):
        start = times(key.map[2 + axis], strides[axis])
        index = shifted(start, step * dilations[axis] - pads[axis])
        extent = extents[axis]
        low, high = body.space.bounds(index)
        before, behind = pads[axis], extent + pads[rank + axis]
        if (high < 0 or low >= extent) and (not with_pads or low >= behind):
            return None
        inside = _within(inside, body, Guard(index, 0, extent))
        edge = Guard(index, -before, behind) if with_pads else Guard(index, 0, extent)
        counted = _within(counted, body, edge)
        place.append(index)
    return _Tap(tuple(place), inside, counted)


def _within(guards: Guards, body: Values, guard: Guard) -> Guards:
    """Guards and one more, if it does not hold of itself."""
    low, high = body.space.bounds(guard.subject)
    if low >= guard.low and high < guard.high:
        return guards
    return joined_all(guards, (guard,))
