"""Where views find their elements: rules that turn a question into others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from tuner.ir.inference import ints, whole
from tuner.ir.types import DType
from tuner.kernel.held import HELD, literal
from tuner.kernel.index import (
    ZERO,
    Atom,
    AtomKind,
    Guard,
    Guards,
    Map,
    Space,
    shifted,
    times,
)

if TYPE_CHECKING:
    from tuner.ir.graph import Graph, Node


class Key(NamedTuple):
    """A question: the element of a tensor at a map, needed where guards hold."""

    tensor: str
    map: Map
    guards: Guards


Rule = Generator[list[Key], list[int], int]
"""A rule yields questions, is sent the numbers of their answers, returns its own."""


class Values(Protocol):
    """What a rule needs of the body that it adds values to."""

    graph: Graph
    space: Space

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Static shape of a tensor."""
        ...

    def aligned(
        self, indices: Map, shape: tuple[int, ...], operand: tuple[int, ...]
    ) -> Map:
        """Map of an operand that is broadcast to `shape`."""
        ...

    def dtype(self, number: int) -> DType:
        """Held dtype of a value."""
        ...

    def constant(self, value: float, dtype: DType) -> int:
        """A literal."""
        ...

    def cast(self, number: int, held: DType) -> int:
        """A value in another dtype."""
        ...

    def apply(
        self, text: str, numbers: Sequence[int], operand: DType, held: DType
    ) -> int:
        """An expression of the kernel language."""
        ...

    def select(self, guards: Guards, chosen: int, other: int) -> int:
        """One value where guards hold, else another."""
        ...


def _reshape(body: Values, node: Node, key: Key) -> Rule:
    source = node.inputs[0]
    wanted = body.shape(source)
    place = body.space.reshape(key.map, body.shape(key.tensor), wanted)
    return (yield [Key(source, place, key.guards)])[0]


def _transpose(_: Values, node: Node, key: Key) -> Rule:
    perm = ints(node.attributes, "perm")
    place = [ZERO] * len(perm)
    for axis, source in enumerate(perm):
        place[source] = key.map[axis]
    return (yield [Key(node.inputs[0], tuple(place), key.guards)])[0]


def _slice(_: Values, node: Node, key: Key) -> Rule:
    starts, steps = ints(node.attributes, "starts"), ints(node.attributes, "steps")
    place = tuple(
        shifted(times(index, step), start)
        for index, start, step in zip(key.map, starts, steps, strict=True)
    )
    return (yield [Key(node.inputs[0], place, key.guards)])[0]


def _expand(body: Values, node: Node, key: Key) -> Rule:
    source = node.inputs[0]
    place = body.aligned(key.map, body.shape(key.tensor), body.shape(source))
    return (yield [Key(source, place, key.guards)])[0]


def _concat(body: Values, node: Node, key: Key) -> Rule:
    axis = whole(node.attributes, "axis")
    index = key.map[axis]
    low, high = body.space.bounds(index)
    parts: list[tuple[Guard, Key]] = []
    start = 0
    for name in node.inputs:
        end = start + body.shape(name)[axis]
        if start <= high and low < end:
            guard = Guard(index, start, end)
            inside = start <= low and high < end
            guards = key.guards if inside else joined(key.guards, guard)
            part = (*key.map[:axis], shifted(index, -start), *key.map[axis + 1 :])
            parts.append((guard, Key(name, part, guards)))
        start = end
    numbers = yield [part for _, part in parts]
    if not numbers:  # a join of nothing: no element of it is read
        return body.constant(0, HELD[body.graph.types[key.tensor].dtype])
    result = numbers[-1]
    for (guard, _), number in zip(parts[-2::-1], numbers[-2::-1], strict=True):
        result = body.select((guard,), number, result)
    return result


def _pad(body: Values, node: Node, key: Key) -> Rule:
    source = node.inputs[0]
    before = ints(node.attributes, "before")
    place = tuple(shifted(index, -b) for index, b in zip(key.map, before, strict=True))
    mine: Guards = ()
    is_outside = False
    for index, extent in zip(place, body.shape(source), strict=True):
        low, high = body.space.bounds(index)
        is_outside = is_outside or high < 0 or low >= extent
        if low < 0 or high >= extent:
            mine = joined(mine, Guard(index, 0, extent))
    other = _filler(body, node, key)
    if is_outside:
        yield []
        return other
    (number,) = yield [Key(source, place, joined_all(key.guards, mine))]
    return body.select(mine, number, other) if mine else number


def _filler(body: Values, node: Node, key: Key) -> int:
    dtype = body.graph.types[key.tensor].dtype
    filler = literal(np.asarray(node.attributes["value"]), DType.F64)
    if not dtype.is_float:
        filler = int(filler)
    return body.constant(filler, HELD[dtype])


def _gather(body: Values, node: Node, key: Key) -> Rule:
    axis = whole(node.attributes, "axis")
    table, indices = node.inputs
    rank = len(body.shape(indices))
    where = key.map[axis : axis + rank]
    (number,) = yield [Key(indices, where, key.guards)]
    extent = body.shape(table)[axis]
    position = _position(body, number, extent)
    atom = body.space.atom(Atom(AtomKind.VALUE, extent, value=position))
    place = (*key.map[:axis], atom, *key.map[axis + rank :])
    return (yield [Key(table, place, key.guards)])[0]


def _position(body: Values, number: int, extent: int) -> int:
    """An index that counts from either end, kept inside the table."""
    dtype = body.dtype(number)
    if dtype not in (DType.I32, DType.I64):
        number, dtype = body.cast(number, DType.I32), DType.I32
    size = body.constant(extent, dtype)
    last = body.constant(extent - 1, dtype)
    text = "max(min(where(a0 < 0, a0 + a1, a0), a2), 0)"
    return body.apply(text, (number, size, last), dtype, dtype)


VIEWS: Final[Mapping[str, Callable[[Values, Node, Key], Rule]]] = MappingProxyType(
    {
        "reshape": _reshape,
        "transpose": _transpose,
        "slice": _slice,
        "expand": _expand,
        "concat": _concat,
        "pad": _pad,
        "gather": _gather,
    }
)


def joined(guards: Guards, guard: Guard) -> Guards:
    """Guards and one more."""
    return guards if guard in guards else (*guards, guard)


def joined_all(guards: Guards, more: Guards) -> Guards:
    """Guards and others."""
    for guard in more:
        guards = joined(guards, guard)
    return guards
