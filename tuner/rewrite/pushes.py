"""Rules that move layout past other work, where that makes it vanish or shrink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tuner.ir.graph import Node
from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import Dim
from tuner.rewrite.rule import Make, Rule, Value, View
from tuner.rewrite.shapes import attributes, reshaped

_DEPTH: Final = 12
"""Element-wise nodes between two transposes that cancel; more was not seen."""


@dataclass(frozen=True, slots=True)
class _Pulled:
    """An operand as it is below a layout change.

    Attributes:
        value: the operand, changed.
        saved: layout changes that this undoes, less those that it adds.
    """

    value: Value
    saved: int


def _pull(view: View, tensor: str, perm: tuple[int, ...], depth: int) -> _Pulled | None:
    """A tensor, transposed without a new transpose at run time; None if it cannot be.

    Args:
        view: the graph around it.
        tensor: an operand that broadcasts to the rank of the permutation.
        perm: the permutation of the full rank.
        depth: how many element-wise nodes may still be passed.
    """
    shape = view.type(tensor).shape
    full: tuple[Dim, ...] = (*[1] * (len(perm) - len(shape)), *shape)
    moved = [axis for axis in perm if full[axis] != 1]
    if not moved:
        return _Pulled(tensor, 0)
    if moved == sorted(moved):
        return _Pulled(reshaped(tensor, [full[axis] for axis in perm]), 0)
    if view.is_static(tensor):
        whole_rank = reshaped(tensor, full)
        return _Pulled(Make("transpose", (whole_rank,), attributes(perm=perm)), 0)
    maker = view.maker(tensor)
    if maker is None or len(shape) < len(perm):
        return None
    return _pull_made(view, maker, perm, depth)


def _pull_made(
    view: View, maker: Node, perm: tuple[int, ...], depth: int
) -> _Pulled | None:
    if maker.op == "transpose":
        return _cancelled(view, maker, perm)
    if depth and all(view.read_once(name) for name in maker.outputs):
        return _pull_work(view, maker, perm, depth)
    return None


def _cancelled(view: View, inner: Node, perm: tuple[int, ...]) -> _Pulled | None:
    first = ints(inner.attributes, "perm")
    both = [first[axis] for axis in perm]
    shape = view.type(inner.inputs[0]).shape
    moved = [axis for axis in both if shape[axis] != 1]
    if moved != sorted(moved):
        return None
    value: Value = inner.inputs[0]
    if both != sorted(both):
        value = reshaped(value, tuple(shape[axis] for axis in both))
    return _Pulled(value, 1)


def _pull_work(
    view: View, node: Node, perm: tuple[int, ...], depth: int
) -> _Pulled | None:
    if OPS[node.op].pattern is not Pattern.ELEMENTWISE:
        return None
    parts: list[_Pulled] = []
    for name in node.inputs:
        part = _pull(view, name, perm, depth - 1)
        if part is None:
            return None
        parts.append(part)
    return _Pulled(
        Make(node.op, tuple(part.value for part in parts), node.attributes),
        sum(part.saved for part in parts),
    )


def _transpose_around_work(node: Node, view: View) -> Value | None:
    """Transposes on both sides of element-wise work that undo each other vanish."""
    source = node.inputs[0]
    maker = view.maker(source)
    if maker is None or not view.read_once(source):
        return None
    found = _pull_work(view, maker, ints(node.attributes, "perm"), _DEPTH)
    return found.value if found is not None and found.saved else None


def _reshape_around_work(node: Node, view: View) -> Value | None:
    """Reshapes on both sides of element-wise work that undo each other vanish."""
    source = node.inputs[0]
    maker = view.maker(source)
    if maker is None or not view.read_once(source):
        return None
    wanted = view.type(node.outputs[0]).shape
    found = _reshape_work(view, maker, wanted, _DEPTH)
    return found.value if found is not None and found.saved > 0 else None


def _reshape_work(
    view: View, node: Node, wanted: tuple[Dim, ...], depth: int
) -> _Pulled | None:
    """Element-wise work in another shape; None where an operand is repeated."""
    if OPS[node.op].pattern is not Pattern.ELEMENTWISE:
        return None
    shape = view.type(node.outputs[0]).shape
    parts: list[_Pulled] = []
    for name in node.inputs:
        part = _reshape_operand(view, name, (shape, wanted), depth)
        if part is None:
            return None
        parts.append(part)
    return _Pulled(
        Make(node.op, tuple(part.value for part in parts), node.attributes),
        sum(part.saved for part in parts),
    )


def _reshape_operand(
    view: View, name: str, shapes: tuple[tuple[Dim, ...], tuple[Dim, ...]], depth: int
) -> _Pulled | None:
    old, wanted = shapes
    shape = view.type(name).shape
    if all(extent == 1 for extent in shape):
        fits = len(shape) <= len(wanted)
        return _Pulled(name if fits else reshaped(name, ()), 0)
    if shape != old:
        return _Pulled(name, 0) if _is_row(shape, old, wanted) else None
    maker = view.maker(name)
    if maker is not None and maker.op == "reshape":
        back = view.type(maker.inputs[0]).shape == wanted
        value: Value = maker.inputs[0] if back else reshaped(maker.inputs[0], wanted)
        return _Pulled(value, int(back))
    if maker is not None and depth and view.read_once(name):
        found = _reshape_work(view, maker, wanted, depth - 1)
        if found is not None:
            return found
    return _Pulled(reshaped(name, wanted), 0 if view.is_static(name) else -1)


def _is_row(
    shape: tuple[Dim, ...], old: tuple[Dim, ...], wanted: tuple[Dim, ...]
) -> bool:
    """Whether an operand spans only trailing axes that both shapes have."""
    rank = len(shape)
    return len(wanted) >= rank and shape == old[-rank:] == wanted[-rank:]


def _reduced_transpose(node: Node, view: View) -> Value | None:
    """A reduction of a transposed tensor reads the tensor as it lies in memory.

    If anything is left to transpose, it is the small result.
    """
    inner = view.maker(node.inputs[0])
    if inner is None or inner.op != "transpose":
        return None
    perm = ints(inner.attributes, "perm")
    reduced = ints(node.attributes, "axes")
    axes = tuple(sorted(perm[axis] for axis in reduced))
    keep = whole(node.attributes, "keepdims")
    changed = {**node.attributes, "axes": axes}
    result = Make(node.op, inner.inputs, attributes(**changed))
    if keep:
        return Make("transpose", (result,), attributes(perm=perm))
    left = [axis for place, axis in enumerate(perm) if place not in reduced]
    rank = {axis: place for place, axis in enumerate(sorted(left))}
    order = tuple(rank[axis] for axis in left)
    if order == tuple(range(len(order))):
        return result
    return Make("transpose", (result,), attributes(perm=order))


TRANSPOSE_AROUND_WORK: Final = Rule(
    name="transpose-around-work",
    ops=frozenset({"transpose"}),
    rewrite=_transpose_around_work,
)
RESHAPE_AROUND_WORK: Final = Rule(
    name="reshape-around-work",
    ops=frozenset({"reshape"}),
    rewrite=_reshape_around_work,
)
REDUCED_TRANSPOSE: Final = Rule(
    name="reduced-transpose",
    ops=frozenset({"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"}),
    rewrite=_reduced_transpose,
)
