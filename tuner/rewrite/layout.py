"""Rules about layout: reshape, transpose, expand, slice, concat, pad, gather."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from tuner.ir.graph import Node
from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import Dim
from tuner.rewrite.rule import Make, Rule, Value, View
from tuner.rewrite.shapes import (
    attributes,
    fitted,
    joined,
    merged_groups,
    reshaped,
    without_units,
)

_ELEMENTWISE: Final = frozenset(
    name for name, op in OPS.items() if op.pattern is Pattern.ELEMENTWISE
)


def _source(node: Node | None, op: str) -> str | None:
    """What a node reads, if it is a node of that operator."""
    return node.inputs[0] if node is not None and node.op == op else None


# Reshape


def _reshape(node: Node, view: View) -> Value | None:
    """A reshape to the same shape vanishes, a reshape of a reshape is one."""
    shape = view.type(node.outputs[0]).shape
    source = node.inputs[0]
    if view.type(source).shape == shape:
        return source
    inner = _source(view.maker(source), "reshape")
    if inner is None:
        return None
    return inner if view.type(inner).shape == shape else reshaped(inner, shape)


def _leading_units(node: Node, view: View) -> Value | None:
    """A given tensor reshaped in its leading unit axes only is read as it was."""
    wanted = view.type(node.outputs[0]).shape
    shapes = [view.type(name).shape for name in node.inputs]
    inputs = list(node.inputs)
    for place, name in enumerate(node.inputs):
        inner = _source(view.maker(name), "reshape")
        if inner is None or (view.maker(inner) and not view.is_static(inner)):
            continue
        shape = view.type(inner).shape
        if _stripped(shape) != _stripped(shapes[place]):
            continue
        changed = [*shapes[:place], shape, *shapes[place + 1 :]]
        if joined(*changed) == wanted:
            shapes, inputs[place] = changed, inner
    if tuple(inputs) == node.inputs:
        return None
    return Make(node.op, tuple(inputs), node.attributes)


def _stripped(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    first = next((i for i, extent in enumerate(shape) if extent != 1), len(shape))
    return shape[first:]


# Transpose


def _transpose(node: Node, view: View) -> Value | None:
    """Transposes that do nothing, that follow each other, or move unit axes only."""
    perm = ints(node.attributes, "perm")
    source = node.inputs[0]
    if perm == tuple(range(len(perm))):
        return source
    inner = view.maker(source)
    if inner is not None and inner.op == "transpose":
        first = ints(inner.attributes, "perm")
        both = tuple(first[axis] for axis in perm)
        return Make("transpose", inner.inputs, attributes(perm=both))
    shape = view.type(source).shape
    moved = [axis for axis in perm if shape[axis] != 1]
    if moved == sorted(moved):
        return reshaped(source, view.type(node.outputs[0]).shape)
    return None


def _transpose_across_units(node: Node, view: View) -> Value | None:
    """Two transposes with a reshape between them that only moves unit axes are one."""
    middle = view.maker(node.inputs[0])
    first = view.maker(middle.inputs[0]) if _is(middle, "reshape") and middle else None
    if middle is None or first is None or first.op != "transpose":
        return None
    before, after = view.type(middle.inputs[0]), view.type(middle.outputs[0])
    if without_units(before.shape) != without_units(after.shape):
        return None
    origin = view.type(first.inputs[0]).shape
    inner = ints(first.attributes, "perm")
    kept = [axis for axis in inner if origin[axis] != 1]
    outer = [a for a in range(len(after.shape)) if after.shape[a] != 1]
    place = {axis: kept[number] for number, axis in enumerate(outer)}
    perm = ints(node.attributes, "perm")
    order = [place[axis] for axis in perm if axis in place]
    units = [axis for axis, extent in enumerate(origin) if extent == 1]
    value: Value = first.inputs[0]
    if order != sorted(order):
        value = Make("transpose", (value,), attributes(perm=(*units, *order)))
    return reshaped(value, view.type(node.outputs[0]).shape)


def _unmerged(node: Node, view: View) -> Make | None:
    """A transpose behind a reshape that merges axes, as one in front of it.

    Returns:
        The transposed tensor with its axes not yet merged.
    """
    middle = view.maker(node.inputs[0])
    if middle is None or middle.op != "reshape":
        return None
    source = middle.inputs[0]
    groups = merged_groups(view.type(source).shape, view.type(node.inputs[0]).shape)
    if groups is None:
        return None
    perm = ints(node.attributes, "perm")
    order = tuple(axis for place in perm for axis in groups[place])
    return Make("transpose", (source,), attributes(perm=order))


def _transpose_across_merge(node: Node, view: View) -> Value | None:
    """Two transposes with a reshape between them that merges axes are one."""
    turned = _unmerged(node, view)
    if turned is None or not isinstance(turned.inputs[0], str):
        return None
    first = view.maker(turned.inputs[0])
    if first is None or first.op != "transpose":
        return None
    return reshaped(turned, view.type(node.outputs[0]).shape)


def _split_behind_transpose(node: Node, view: View) -> Value | None:
    """A reshape that splits what one before a transpose merged is one reshape."""
    middle = view.maker(node.inputs[0])
    if middle is None or middle.op != "transpose":
        return None
    if not view.read_once(node.inputs[0]):
        return None
    turned = _unmerged(middle, view)
    return (
        None if turned is None else reshaped(turned, view.type(node.outputs[0]).shape)
    )


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


def _extents(node: Node, key: str) -> tuple[Dim, ...]:
    return cast("tuple[Dim, ...]", node.attributes[key])


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


def _is(node: Node | None, op: str) -> bool:
    return node is not None and node.op == op


# Expand


def _expand(node: Node, view: View) -> Value | None:
    """One expand for two, a reshape for one that adds unit axes, none for none."""
    wanted = view.type(node.outputs[0])
    source = node.inputs[0]
    inner = _source(view.maker(source), "expand")
    if inner is not None:
        return fitted(view, inner, wanted)
    shape = view.type(source).shape
    if without_units(shape) == without_units(wanted.shape):
        return fitted(view, source, wanted)
    return None


def _expanded_operand(node: Node, view: View) -> Value | None:
    """Element-wise work is done before its operands are expanded, not after.

    Where the other operands have the full shape anyway, the expand vanishes.
    """
    inner = [_source(view.maker(name), "expand") for name in node.inputs]
    if not any(inner):
        return None
    inputs = tuple(i or name for i, name in zip(inner, node.inputs, strict=True))
    shape = joined(*(view.type(name).shape for name in inputs))
    wanted = view.type(node.outputs[0]).shape
    work = Make(node.op, inputs, node.attributes)
    if shape == wanted:
        return work
    return Make("expand", (work,), attributes(shape=wanted))


def _expanded_batch(node: Node, view: View) -> Value | None:
    """A matrix product broadcasts its batches itself."""
    for place, name in enumerate(node.inputs):
        inner = _source(view.maker(name), "expand")
        if inner is None:
            continue
        old, new = view.type(name).shape, view.type(inner).shape
        other = view.type(node.inputs[1 - place]).shape
        if min(len(old), len(new), len(other)) < 2 or old[-2:] != new[-2:]:  # noqa: PLR2004
            continue
        if joined(new[:-2], other[:-2]) != joined(old[:-2], other[:-2]):
            continue
        pair = (inner, node.inputs[1]) if place == 0 else (node.inputs[0], inner)
        return Make("matmul", pair)
    return None


# Slice, concat, pad, gather


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


def _concat(node: Node, view: View) -> Value | None:
    """A concat of one part, of concats, or of neighbouring slices of one tensor."""
    if len(node.inputs) == 1:
        return node.inputs[0]
    axis = whole(node.attributes, "axis")
    parts: list[str] = []
    for name in node.inputs:
        inner = view.maker(name)
        flat = _is(inner, "concat") and inner is not None
        if flat and inner and whole(inner.attributes, "axis") == axis:
            parts.extend(inner.inputs)
        else:
            parts.append(name)
    if tuple(parts) != node.inputs:
        return Make("concat", tuple(parts), node.attributes)
    return _joined_slices(node, view, axis)


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


def _idle_reduction(node: Node, view: View) -> Value | None:
    """A reduction over unit axes is a reshape."""
    shape = view.type(node.inputs[0]).shape
    if any(shape[axis] != 1 for axis in ints(node.attributes, "axes")):
        return None
    return reshaped(node.inputs[0], view.type(node.outputs[0]).shape)


RESHAPE: Final = Rule(
    name="reshape-chain", ops=frozenset({"reshape"}), rewrite=_reshape
)
LEADING_UNITS: Final = Rule(
    name="leading-units", ops=_ELEMENTWISE, rewrite=_leading_units
)
TRANSPOSE: Final = Rule(
    name="transpose-chain", ops=frozenset({"transpose"}), rewrite=_transpose
)
TRANSPOSE_ACROSS_UNITS: Final = Rule(
    name="transpose-across-units",
    ops=frozenset({"transpose"}),
    rewrite=_transpose_across_units,
)
TRANSPOSE_ACROSS_MERGE: Final = Rule(
    name="transpose-across-merge",
    ops=frozenset({"transpose"}),
    rewrite=_transpose_across_merge,
)
SPLIT_BEHIND_TRANSPOSE: Final = Rule(
    name="split-behind-transpose",
    ops=frozenset({"reshape"}),
    rewrite=_split_behind_transpose,
)
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
EXPAND: Final = Rule(name="expand-chain", ops=frozenset({"expand"}), rewrite=_expand)
EXPANDED_OPERAND: Final = Rule(
    name="expanded-operand", ops=_ELEMENTWISE, rewrite=_expanded_operand
)
EXPANDED_BATCH: Final = Rule(
    name="expanded-batch", ops=frozenset({"matmul"}), rewrite=_expanded_batch
)
SLICE: Final = Rule(name="slice-chain", ops=frozenset({"slice"}), rewrite=_slice)
SLICE_OF_CONCAT: Final = Rule(
    name="slice-of-concat", ops=frozenset({"slice"}), rewrite=_slice_of_concat
)
CONCAT: Final = Rule(name="concat-chain", ops=frozenset({"concat"}), rewrite=_concat)
PAD: Final = Rule(name="idle-pad", ops=frozenset({"pad"}), rewrite=_pad)
GATHER: Final = Rule(name="gather-is-slice", ops=frozenset({"gather"}), rewrite=_gather)
IDLE_REDUCTION: Final = Rule(
    name="idle-reduction",
    ops=frozenset({"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"}),
    rewrite=_idle_reduction,
)
