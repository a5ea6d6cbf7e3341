"""Rules about parts of tensors: slice, concat, pad, gather."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from tuner.ir.graph import Node
from tuner.ir.inference import ints, whole
from tuner.ir.types import Dim
from tuner.rewrite.rule import Make, Rule, Value, View
from tuner.rewrite.shapes import attributes, reshaped, without_units

MOST_OPERANDS: Final = 64
"""Tensors that one concat reads; a kernel of ours takes at most 96 of them."""


def _extents(node: Node, key: str) -> tuple[Dim, ...]:
    return cast("tuple[Dim, ...]", node.attributes[key])


def _slice(node: Node, view: View) -> Value | None:
    """A slice that takes everything vanishes, a slice of a slice is one."""
    source = node.inputs[0]
    starts, steps = ints(node.attributes, "starts"), ints(node.attributes, "steps")
    sizes = _extents(node, "sizes")
    forward = all(s == 1 or n == 1 for s, n in zip(steps, sizes, strict=True))
    if forward and not any(starts) and sizes == view.type(source).shape:
        return source
    inner = view.maker(source)
    if inner is None or inner.op != "slice":
        return None
    first, stride = ints(inner.attributes, "starts"), ints(inner.attributes, "steps")
    both = zip(first, stride, starts, strict=True)
    return Make(
        "slice",
        inner.inputs,
        attributes(
            starts=tuple(begin + step * start for begin, step, start in both),
            steps=tuple(a * b for a, b in zip(stride, steps, strict=True)),
            sizes=sizes,
        ),
    )


def _slice_of_concat(node: Node, view: View) -> Value | None:
    """A slice that lies within one part of a concat is a slice of that part."""
    inner = view.maker(node.inputs[0])
    if inner is None or inner.op != "concat":
        return None
    axis = whole(inner.attributes, "axis")
    starts, steps = ints(node.attributes, "starts"), ints(node.attributes, "steps")
    size = _extents(node, "sizes")[axis]
    if not isinstance(size, int) or size < 1:
        return None
    ends = sorted((starts[axis], starts[axis] + steps[axis] * (size - 1)))
    offset = 0
    for part in inner.inputs:
        extent = view.type(part).shape[axis]
        if not isinstance(extent, int):
            return None
        if offset <= ends[0] and ends[1] < offset + extent:
            begin = (*starts[:axis], starts[axis] - offset, *starts[axis + 1 :])
            changed = {**node.attributes, "starts": begin}
            return Make("slice", (part,), attributes(**changed))
        offset += extent
    return None


def _slice_before_reshape(node: Node, view: View) -> Value | None:
    """A slice of a tensor that only got or lost unit axes is taken before that."""
    inner = view.maker(node.inputs[0])
    if inner is None or inner.op != "reshape":
        return None
    if not view.only_read_by(node.inputs[0], "slice"):
        return None
    before, after = (view.type(t[0]).shape for t in (inner.inputs, inner.outputs))
    if without_units(before) != without_units(after) or 0 in _extents(node, "sizes"):
        return None
    keys = ("starts", "steps", "sizes")
    windows = zip(*(_extents(node, key) for key in keys), strict=True)
    real = [w for w, extent in zip(windows, after, strict=True) if extent != 1]
    order = iter(real)
    all_of = [next(order) if extent != 1 else (0, 1, 1) for extent in before]
    changed = dict(zip(keys, zip(*all_of, strict=True), strict=True))
    cut = Make("slice", inner.inputs, attributes(**changed))
    return reshaped(cut, view.type(node.outputs[0]).shape)


def _slice_before_transpose(node: Node, view: View) -> Value | None:
    """Where only slices of a transposed tensor are used, only they are transposed."""
    inner = view.maker(node.inputs[0])
    if inner is None or inner.op != "transpose":
        return None
    if not view.only_read_by(node.inputs[0], "slice"):
        return None
    perm = ints(inner.attributes, "perm")
    place = {axis: number for number, axis in enumerate(perm)}
    order = [place[axis] for axis in range(len(perm))]
    changed = {
        key: tuple(_extents(node, key)[n] for n in order)
        for key in ("starts", "steps", "sizes")
    }
    cut = Make("slice", inner.inputs, attributes(**changed))
    return Make("transpose", (cut,), inner.attributes)


def _concat(node: Node, view: View) -> Value | None:
    """A concat of one part, of concats, or of neighbouring slices of one tensor."""
    if len(node.inputs) == 1:
        return node.inputs[0]
    axis = whole(node.attributes, "axis")
    parts: list[str] = []
    for name in node.inputs:
        inner = view.maker(name)
        is_concat = inner is not None and inner.op == "concat"
        if inner and is_concat and whole(inner.attributes, "axis") == axis:
            parts.extend(inner.inputs)
        else:
            parts.append(name)
    if tuple(parts) != node.inputs and len(parts) <= MOST_OPERANDS:
        return Make("concat", tuple(parts), node.attributes)
    return _joined_slices(node, view, axis)


def _wide_concat(node: Node, _view: View) -> Value | None:
    """A concat of more operands than a kernel takes is one of concats."""
    parts = node.inputs
    if len(parts) <= MOST_OPERANDS:
        return None
    groups = [parts[k : k + MOST_OPERANDS] for k in range(0, len(parts), MOST_OPERANDS)]
    made: list[Value] = [
        Make("concat", group, node.attributes) if len(group) > 1 else group[0]
        for group in groups
    ]
    return Make("concat", tuple(made), node.attributes)


def _joined_slices(node: Node, view: View, axis: int) -> Value | None:
    slices = [view.maker(name) for name in node.inputs]
    first = slices[0]
    if first is None or first.op != "slice" or _extent(first, axis) is None:
        return None
    starts = ints(first.attributes, "starts")
    position = starts[axis]
    for part in slices:
        extent = None if part is None else _extent(part, axis)
        if part is None or extent is None or part.inputs != first.inputs:
            return None
        wanted = (*starts[:axis], position, *starts[axis + 1 :])
        steps = part.attributes["steps"]
        if part.attributes["starts"] != wanted or steps != first.attributes["steps"]:
            return None
        position += extent
    sizes = _extents(first, "sizes")
    total = (*sizes[:axis], position - starts[axis], *sizes[axis + 1 :])
    changed = {**first.attributes, "sizes": total}
    return Make("slice", first.inputs, attributes(**changed))


def _extent(node: Node, axis: int) -> int | None:
    """How many neighbours a slice takes along an axis."""
    if node.op != "slice" or ints(node.attributes, "steps")[axis] != 1:
        return None
    extent = _extents(node, "sizes")[axis]
    return extent if isinstance(extent, int) else None


def _pad(node: Node, view: View) -> Value | None:
    """A pad by nothing vanishes."""
    source = node.inputs[0]
    return source if view.type(source) == view.type(node.outputs[0]) else None


def _gather(node: Node, view: View) -> Value | None:
    """A gather at known, evenly spaced indices is a slice."""
    axis = whole(node.attributes, "axis")
    shape = view.type(node.inputs[0]).shape
    known: Any = view.constant(node.inputs[1])
    extent = shape[axis]
    if known is None or not known.size or not isinstance(extent, int):
        return None
    index = known.reshape(-1).astype(np.int64)
    index = np.where(index < 0, index + extent, index)
    steps = np.unique(np.diff(index))
    if index.min() < 0 or index.max() >= extent:
        return None
    if len(steps) > 1 or (len(steps) == 1 and steps[0] == 0):
        return None
    step = int(steps[0]) if len(steps) else 1
    cut = Make(
        "slice",
        (node.inputs[0],),
        attributes(
            starts=tuple(int(index[0]) if a == axis else 0 for a in range(len(shape))),
            steps=tuple(step if a == axis else 1 for a in range(len(shape))),
            sizes=(*shape[:axis], len(index), *shape[axis + 1 :]),
        ),
    )
    return cut if known.ndim == 1 else reshaped(cut, view.type(node.outputs[0]).shape)


SLICE_BEFORE_RESHAPE: Final = Rule(
    name="slice-before-reshape",
    ops=frozenset({"slice"}),
    rewrite=_slice_before_reshape,
)
SLICE_BEFORE_TRANSPOSE: Final = Rule(
    name="slice-before-transpose",
    ops=frozenset({"slice"}),
    rewrite=_slice_before_transpose,
)
SLICE: Final = Rule(name="slice-chain", ops=frozenset({"slice"}), rewrite=_slice)
SLICE_OF_CONCAT: Final = Rule(
    name="slice-of-concat", ops=frozenset({"slice"}), rewrite=_slice_of_concat
)
CONCAT: Final = Rule(name="concat-chain", ops=frozenset({"concat"}), rewrite=_concat)
WIDE_CONCAT: Final = Rule(
    name="wide-concat", ops=frozenset({"concat"}), rewrite=_wide_concat
)
PAD: Final = Rule(name="idle-pad", ops=frozenset({"pad"}), rewrite=_pad)
GATHER: Final = Rule(name="gather-is-slice", ops=frozenset({"gather"}), rewrite=_gather)
