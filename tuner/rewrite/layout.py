"""Rules about layout: reshape, transpose, expand, slice, concat, pad, gather."""

from __future__ import annotations

from typing import Final

from tuner.ir.graph import Node
from tuner.ir.inference import ints
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
EXPAND: Final = Rule(name="expand-chain", ops=frozenset({"expand"}), rewrite=_expand)
EXPANDED_OPERAND: Final = Rule(
    name="expanded-operand", ops=_ELEMENTWISE, rewrite=_expanded_operand
)
EXPANDED_BATCH: Final = Rule(
    name="expanded-batch", ops=frozenset({"matmul"}), rewrite=_expanded_batch
)
IDLE_REDUCTION: Final = Rule(
    name="idle-reduction",
    ops=frozenset({"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"}),
    rewrite=_idle_reduction,
)
