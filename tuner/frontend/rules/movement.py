"""Operators that move elements without computing: slices, joins, permutations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Extent, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.sizes import Undecided
from tuner.ir.types import Dim, DType

_SLICE_HAS_INPUTS: Final = 10
_PAD_HAS_INPUTS: Final = 11


def _transpose(b: Builder, call: Call) -> Results:
    rank = b.rank(call[0])
    perm = call.several("perm")
    perm = tuple(reversed(range(rank))) if perm is None else perm
    if sorted(perm) != list(range(rank)):
        raise InvalidModel(b.where, f"perm {perm} is no permutation of {rank} axes")
    return (transpose(b, call[0], perm),)


def transpose(b: Builder, ref: Ref, perm: Sequence[int]) -> Ref:
    """Permuted axes; nothing when the order stays."""
    if list(perm) == list(range(len(perm))):
        return ref
    return b.emit("transpose", ref, perm=tuple(perm))


def _concat(b: Builder, call: Call) -> Results:
    refs = call.given()
    axis = b.axis(refs[0], call.whole("axis", 1))
    if len(refs) == 1:
        return (refs[0],)
    return (b.emit("concat", *refs, axis=axis),)


def cut(b: Builder, ref: Ref, axis: int, start: int, size: Extent) -> Ref:
    """A contiguous part of one axis."""
    shape = list(b.shape(ref))
    if start == 0 and shape[axis] == b.sizes.dim(size):
        return ref
    starts = [0] * len(shape)
    starts[axis] = start
    shape[axis] = b.sizes.dim(size)
    return b.emit(
        "slice",
        ref,
        starts=tuple(starts),
        steps=(1,) * len(shape),
        sizes=tuple(shape),
    )


def _split(b: Builder, call: Call) -> Results:
    data = call[0]
    axis = b.axis(data, call.whole("axis", 0))
    sizes = call.several("split")
    if sizes is None and call.optional(1) is not None:
        sizes = b.ints(call[1])
    extent = b.shape(data)[axis]
    if isinstance(extent, str):
        raise Decline("the split axis is symbolic")
    if sizes is None:
        count = call.whole("num_outputs", len(call.outputs))
        chunk = -(-extent // count)
        sizes = tuple(
            max(min(chunk, extent - i * chunk), 0) for i in range(len(call.outputs))
        )
    if sum(sizes) != extent or len(sizes) != len(call.outputs):
        raise InvalidModel(
            b.where,
            f"splits an axis of {extent} into {sizes}, {len(call.outputs)} asked",
        )
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        cut(b, data, axis, start, size) if wanted else None
        for start, size, wanted in zip(starts, sizes, call.outputs, strict=True)
    ]


def _slice(b: Builder, call: Call) -> Results:
    data = call[0]
    if call.opset < _SLICE_HAS_INPUTS:
        starts = call.several("starts") or ()
        ends: Sequence[Extent] = call.several("ends") or ()
        axes, steps = call.several("axes"), None
    else:
        starts, ends = b.ints(call[1]), b.counts(call[2])
        given = call.optional(3)
        axes = None if given is None else b.ints(given)
        given = call.optional(4)
        steps = None if given is None else b.ints(given)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    shape = list(b.shape(data))
    first, stride = [0] * len(shape), [1] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        position = b.axis(data, axis)
        first[position], shape[position] = _window(b, shape[position], start, end, step)
        stride[position] = step
    if tuple(shape) == b.shape(data) and set(stride) <= {1}:
        return (data,)
    return (
        b.emit(
            "slice",
            data,
            starts=tuple(first),
            steps=tuple(stride),
            sizes=tuple(shape),
        ),
    )


def _window(
    b: Builder, dim: Dim, start: int, end: Extent, step: int
) -> tuple[int, Dim]:
    """First index and number of elements of `start:end:step` along one axis."""
    if step == 0:
        raise InvalidModel(b.where, "slices with step 0")
    if isinstance(dim, int) and isinstance(end, int):
        chosen = range(dim)[start:end:step]
        if step < 0 and end <= -dim - 1:
            chosen = range(dim)[start::step]
        return (chosen.start if len(chosen) else 0), len(chosen)
    if step != 1 or start < 0:
        raise Decline("a step or a start that depends on a symbol")
    extent = b.sizes.of(dim)
    if isinstance(end, int) and end < 0:
        stop = extent + end
    elif isinstance(end, int) and end >= _NO_END:
        stop = extent
    else:
        stop = end if _at_most(b, end, extent) else extent
    if not _at_most(b, start, stop):
        return 0, 0
    return start, b.sizes.dim(stop - start)


_NO_END: Final = (1 << 31) - 1
"""Exporters write this, or more, for "to the end"."""


def _at_most(b: Builder, low: Extent, high: Extent) -> bool:
    """Whether low <= high; assumed, and written down, where sizes decide it."""
    try:
        return bool(low <= high)
    except Undecided:
        b.assumptions[f"{low} <= {high}"] = None
        return True


def _gather(b: Builder, call: Call) -> Results:
    data, index = call[0], call[1]
    axis = b.axis(data, call.whole("axis", 0))
    extent = b.shape(data)[axis]
    known = b.values[index]
    if known is None:
        return (b.emit("gather", data, index, axis=axis),)
    if isinstance(extent, int) and known.size and not _within(known, extent):
        raise InvalidModel(
            b.where, f"gathers index {known.max()} or {known.min()} of {extent}"
        )
    is_value = b.values[data] is not None or b.partial[data] is not None
    if known.size == 1 and isinstance(extent, int) and not is_value:
        return (_pick(b, data, axis, int(known.reshape(-1)[0]) % extent, index),)
    return (b.emit("gather", data, index, axis=axis),)


def _within(index: Any, extent: int) -> bool:
    return bool(index.max() < extent and index.min() >= -extent)


def _pick(b: Builder, data: Ref, axis: int, position: int, index: Ref) -> Ref:
    """One known index is a slice."""
    shape = b.shape(data)
    one = cut(b, data, axis, position, 1)
    return b.reshape(one, [*shape[:axis], *b.shape(index), *shape[axis + 1 :]])


def _depth_to_space(b: Builder, call: Call) -> Results:
    data, block = call[0], call.whole("blocksize", 1)
    batch, channels, height, width = b.static(data)
    depth = channels // (block * block)
    if call.text("mode", "DCR") == "DCR":
        split, perm = (batch, block, block, depth, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (batch, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
    moved = b.emit("transpose", b.reshape(data, split), perm=perm)
    return (b.reshape(moved, (batch, depth, height * block, width * block)),)


def _space_to_depth(b: Builder, call: Call) -> Results:
    data, block = call[0], call.whole("blocksize", 1)
    batch, depth, height, width = b.static(data)
    rows, columns = height // block, width // block
    if call.text("mode", "DCR") == "DCR":
        perm = (0, 3, 5, 1, 2, 4)
    else:
        perm = (0, 1, 3, 5, 2, 4)
    split = b.reshape(data, (batch, depth, rows, block, columns, block))
    moved = b.emit("transpose", split, perm=perm)
    return (b.reshape(moved, (batch, depth * block * block, rows, columns)),)


def _pad(b: Builder, call: Call) -> Results:
    data = call[0]
    shape = b.static(data)
    pads, axes, value = _pads(b, call)
    before, after = [0] * len(shape), [0] * len(shape)
    if len(pads) != 2 * len(axes):
        raise InvalidModel(
            b.where,
            f"has {len(pads)} pads for {len(axes)} axes",
            hint="give one before and one after for each axis",
        )
    for position, axis in enumerate(axes):
        before[b.axis(data, axis)] = pads[position]
        after[b.axis(data, axis)] = pads[len(axes) + position]
    mode = call.text("mode", "constant")
    if mode == "constant":
        return (pad(b, data, before, after, value),)
    indices = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
    for axis, extent in enumerate(shape):
        if before[axis] or after[axis]:
            if min(before[axis], after[axis]) < 0:
                raise Decline("negative pads of another mode than constant")
            source = np.pad(
                np.arange(extent),
                (before[axis], after[axis]),
                mode=indices,  # type: ignore[call-overload]
            )
            index = b.constant(source, DType.I64)
            data = b.emit("gather", data, index, axis=axis)
    return (data,)


def _pads(b: Builder, call: Call) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    every = tuple(range(b.rank(call[0])))
    if call.opset < _PAD_HAS_INPUTS:
        return call.several("pads") or (), every, call.real("value", 0.0)
    filler, axes = call.optional(2), call.optional(3)
    value = 0.0 if filler is None else number(b, filler)
    return b.ints(call[1]), every if axes is None else b.ints(axes), value


def number(b: Builder, ref: Ref) -> Any:
    """The Python number of a known tensor of one element."""
    stored = b.value(ref)
    if b.dtype(ref) is DType.BF16:
        return float((stored.reshape(-1).astype(np.uint32) << 16).view(np.float32)[0])
    return stored.reshape(-1)[0].item()


def pad(
    b: Builder,
    data: Ref,
    before: Sequence[int],
    after: Sequence[int],
    value: float,
) -> Ref:
    """Surround with a constant; negative pads cut off."""
    shape = b.static(data)
    for axis, extent in enumerate(shape):
        if before[axis] < 0 or after[axis] < 0:
            start = max(-before[axis], 0)
            size = extent - start - max(-after[axis], 0)
            data = cut(b, data, axis, start, size)
    grown = [max(n, 0) for n in before], [max(n, 0) for n in after]
    if not any(grown[0]) and not any(grown[1]):
        return data
    return b.emit(
        "pad", data, before=tuple(grown[0]), after=tuple(grown[1]), value=value
    )


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Concat": _concat,
        "DepthToSpace": _depth_to_space,
        "Gather": _gather,
        "Pad": _pad,
        "Slice": _slice,
        "SpaceToDepth": _space_to_depth,
        "Split": _split,
        "Transpose": _transpose,
    }
)
