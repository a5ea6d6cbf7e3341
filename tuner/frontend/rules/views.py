"""Operators that only look at the same elements in another shape, or repeat them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Extent, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.sizes import Size, Undecided
from tuner.ir.types import Dim


def _product(extents: Sequence[Extent]) -> Extent:
    return math.prod(extents)


def _reshape(b: Builder, call: Call) -> Results:
    data = call[0]
    own = b.extents(data)
    wanted = list(b.counts(call[1]))
    if not call.whole("allowzero", 0):
        wanted = [
            own[axis] if isinstance(w, int) and w == 0 and axis < len(own) else w
            for axis, w in enumerate(wanted)
        ]
    holes = [i for i, w in enumerate(wanted) if isinstance(w, int) and w == -1]
    if len(holes) > 1 or any(isinstance(w, int) and w < -1 for w in wanted):
        raise InvalidModel(b.where, f"the target shape {wanted} is not one")
    if holes:
        wanted[holes[0]] = _quotient(b, own, wanted, holes[0])
    _same_count(b, own, wanted)
    return (b.reshape(data, wanted),)


def _quotient(
    b: Builder, own: Sequence[Extent], wanted: Sequence[Extent], hole: int
) -> Extent:
    total = _product(own)
    rest = _product([w for i, w in enumerate(wanted) if i != hole])
    if isinstance(total, int) and isinstance(rest, int):
        if rest == 0 or total % rest:
            raise InvalidModel(
                b.where, f"{total} elements do not divide into shape {list(wanted)}"
            )
        return total // rest
    try:
        return total / rest if isinstance(total, Size) else _undecided()
    except Undecided as error:
        raise Decline(str(error)) from error


def _undecided() -> Extent:
    raise Undecided("a number of elements divided by a symbol")


def _same_count(b: Builder, own: Sequence[Extent], wanted: Sequence[Extent]) -> None:
    before, after = _product(own), _product(wanted)
    try:
        equal = before == after
    except Undecided as error:
        raise Decline(str(error)) from error
    if not equal:
        raise InvalidModel(
            b.where,
            f"a shape of {before} elements cannot become one of {after}",
        )


def _axes(b: Builder, call: Call, extra: int = 0) -> tuple[int, ...] | None:
    """Axes given as an attribute or, in later opsets, as an input."""
    axes = call.several("axes")
    if axes is None and call.optional(1) is not None:
        axes = b.ints(call[1])
    if axes is None:
        return None
    return tuple(b.axis(call[0], axis, extra=extra) for axis in axes)


def _squeeze(b: Builder, call: Call) -> Results:
    axes = _axes(b, call)
    shape = b.shape(call[0])
    if axes is None:
        if any(isinstance(dim, str) for dim in shape):
            raise Decline("which axes have length one is not known")
        axes = tuple(axis for axis, dim in enumerate(shape) if dim == 1)
    kept = [dim for axis, dim in enumerate(shape) if axis not in axes]
    if any(shape[axis] != 1 for axis in axes):
        raise InvalidModel(b.where, f"squeezes axes {axes} of the shape {shape}")
    return (b.reshape(call[0], kept),)


def _unsqueeze(b: Builder, call: Call) -> Results:
    count = len(call.several("axes") or b.ints(call[1]))
    axes = _axes(b, call, extra=count) or ()
    rest = iter(b.shape(call[0]))
    rank = b.rank(call[0]) + count
    return (
        b.reshape(call[0], [1 if axis in axes else next(rest) for axis in range(rank)]),
    )


def _flatten(b: Builder, call: Call) -> Results:
    data = call[0]
    axis = call.whole("axis", 1)
    axis = axis + b.rank(data) if axis < 0 else axis
    extents = b.extents(data)
    return (b.reshape(data, [_product(extents[:axis]), _product(extents[axis:])]),)


def _expand(b: Builder, call: Call) -> Results:
    data = call[0]
    wanted = [b.sizes.dim(count) for count in b.counts(call[1])]
    return (expand(b, data, wanted),)


def expand(b: Builder, ref: Ref, wanted: Sequence[Dim]) -> Ref:
    """Broadcast with a shape; nothing when the shape stays."""
    own = b.shape(ref)
    rank = max(len(own), len(wanted))
    mine = (*[1] * (rank - len(own)), *own)
    theirs = (*[1] * (rank - len(wanted)), *wanted)
    full = tuple(m if t == 1 else t for m, t in zip(mine, theirs, strict=True))
    if full == own:
        return ref
    return b.emit("expand", ref, shape=full)


def repeat(b: Builder, ref: Ref, counts: Sequence[int], *, each: bool) -> Ref:
    """Repeat along every axis: the whole axis, or each element by itself."""
    shape = b.static(ref)
    if all(count == 1 for count in counts):
        return ref
    split: list[int] = []
    grown: list[int] = []
    for extent, count in zip(shape, counts, strict=True):
        if count == 1:
            split.append(extent)
            grown.append(extent)
        else:
            split.extend((extent, 1) if each else (1, extent))
            grown.extend((extent, count) if each else (count, extent))
    wide = b.emit("expand", b.reshape(ref, split), shape=tuple(grown))
    return b.reshape(wide, [e * c for e, c in zip(shape, counts, strict=True)])


def _tile(b: Builder, call: Call) -> Results:
    return (repeat(b, call[0], b.ints(call[1]), each=False),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Expand": _expand,
        "Flatten": _flatten,
        "Reshape": _reshape,
        "Squeeze": _squeeze,
        "Tile": _tile,
        "Unsqueeze": _unsqueeze,
    }
)
