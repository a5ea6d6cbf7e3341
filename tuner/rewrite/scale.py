"""Rules that fold a scale or a shift into the weights of the contraction before it.

Batch norm with fixed statistics arrives as a product with and a sum of values that
depend on weights alone. So the products of weights move to `prepare`, and the batch
norm is gone at run time, whether or not the values of the weights are known.

These rules change rounding, and they ask that the contraction has no other reader.
"""

from __future__ import annotations

from typing import Final

from tuner.ir.graph import Node
from tuner.ir.inference import ints
from tuner.ir.types import Dim
from tuner.rewrite.rule import Make, Rule, Value, View
from tuner.rewrite.shapes import attributes, reshaped

_CHANNEL: Final = 1


def _contraction(node: Node, view: View, op: str) -> tuple[Node, str] | None:
    """The contraction that a node reads alone, and the static other operand."""
    places = (0, 1) if node.op in ("add", "mul") else (0,)
    for place in places:
        name, other = node.inputs[place], node.inputs[1 - place]
        maker = view.maker(name)
        if maker is None or maker.op != op or not view.read_once(name):
            continue
        result = view.type(node.outputs[0])
        if view.is_static(other) and view.type(name) == result:
            return (maker, other) if result.dtype.is_float else None
    return None


def _only(shape: tuple[Dim, ...], rank: int, axis: int) -> bool:
    """Whether an operand of a result of some rank varies along one axis at most."""
    offset = rank - len(shape)
    return all(
        extent == 1 or place + offset == axis for place, extent in enumerate(shape)
    )


def _along(shape: tuple[Dim, ...], rank: int, axis: int) -> Dim:
    place = axis - (rank - len(shape))
    return shape[place] if place >= 0 else 1


def _vector(tensor: str, view: View, rank: int, axis: int, units: int) -> Value | None:
    """A static operand as a vector along an axis with unit axes behind it."""
    shape = view.type(tensor).shape
    if not _only(shape, rank, axis):
        return None
    return reshaped(tensor, (_along(shape, rank, axis), *[1] * units))


def _scaled_conv(node: Node, view: View) -> Value | None:
    found = _contraction(node, view, "conv")
    if found is None or not view.is_static(found[0].inputs[1]):
        return None
    conv, scale = found
    rank = len(view.type(conv.outputs[0]).shape)
    deep = _vector(scale, view, rank, _CHANNEL, rank - 1)
    flat = _vector(scale, view, rank, _CHANNEL, 0)
    if deep is None or flat is None:
        return None
    weights = Make(node.op, (conv.inputs[1], deep), composite="")
    if len(conv.inputs) == 2:  # noqa: PLR2004
        changed: tuple[Value, ...] = (weights,)
    elif view.is_static(conv.inputs[2]):
        changed = (weights, Make(node.op, (conv.inputs[2], flat), composite=""))
    else:
        return None
    return Make("conv", (conv.inputs[0], *changed), conv.attributes, conv.composite)


def _shifted_conv(node: Node, view: View) -> Value | None:
    found = _contraction(node, view, "conv")
    if found is None:
        return None
    conv, shift = found
    result = view.type(conv.outputs[0]).shape
    flat = _vector(shift, view, len(result), _CHANNEL, 0)
    if flat is None:
        return None
    if len(conv.inputs) > 2:  # noqa: PLR2004
        bias: Value = Make(node.op, (conv.inputs[2], flat), composite="")
        if not view.is_static(conv.inputs[2]):
            return None
    else:
        full = Make("expand", (flat,), attributes(shape=(result[_CHANNEL],)))
        bias = full if node.op == "add" else Make("neg", (full,), composite="")
    return Make("conv", (*conv.inputs[:2], bias), conv.attributes, conv.composite)


def _scaled_matmul(node: Node, view: View) -> Value | None:
    found = _contraction(node, view, "matmul")
    if found is None:
        return None
    product, scale = found
    rank = len(view.type(product.outputs[0]).shape)
    for place, axis, units in ((1, rank - 1, 0), (0, rank - 2, 1)):
        weights = product.inputs[place]
        flat = _vector(scale, view, rank, axis, units)
        wide = min(len(view.type(name).shape) for name in product.inputs)
        if flat is None or not view.is_static(weights) or wide < 2:  # noqa: PLR2004
            continue
        scaled = Make(node.op, (weights, flat), composite="")
        first, second = product.inputs
        pair = (first, scaled) if place == 1 else (scaled, second)
        return Make("matmul", pair, composite=product.composite)
    return None


def _scaled_sum(node: Node, view: View) -> Value | None:
    """(x W + b) s = x (W s) + b s: the scale reaches the product below a bias."""
    places = (0, 1) if node.op == "mul" else (0,)
    result = view.type(node.outputs[0])
    for place in places:
        name, scale = node.inputs[place], node.inputs[1 - place]
        total = view.maker(name)
        if total is None or total.op != "add" or not view.read_once(name):
            continue
        inner = _contraction(total, view, "matmul")
        if inner is None or not view.is_static(scale) or view.type(name) != result:
            continue
        product, bias = inner
        if _scaled_matmul(_on(node, product.outputs[0], scale), view) is None:
            continue
        scaled = Make(node.op, (product.outputs[0], scale), composite=total.composite)
        return Make(
            "add",
            (scaled, Make(node.op, (bias, scale), composite="")),
            composite=total.composite,
        )
    return None


def _scaled_view(node: Node, view: View) -> Value | None:
    """A factor on a reshaped or transposed linear layer reaches the layer."""
    places = (0, 1) if node.op == "mul" else (0,)
    for place in places:
        name, scale = node.inputs[place], node.inputs[1 - place]
        layout = view.maker(name)
        if layout is None or layout.op not in ("reshape", "transpose"):
            continue
        result = view.type(node.outputs[0])
        if view.type(name) != result or not result.dtype.is_float:
            continue
        if view.is_static(scale) and _ends_in_layer(name, scale, view):
            factor = _before(layout, scale, view)
            inner = Make(node.op, (layout.inputs[0], factor))
            return Make(layout.op, (inner,), layout.attributes)
    return None


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _full(shape: tuple[Dim, ...], rank: int) -> tuple[Dim, ...]:
    return (*[1] * (rank - len(shape)), *shape)


def _before(layout: Node, scale: str, view: View) -> Value:
    """A factor on a laid-out tensor, for the tensor as it was before."""
    shape = view.type(scale).shape
    if all(extent == 1 for extent in shape):
        return reshaped(scale, ())
    perm = ints(layout.attributes, "perm")
    full = reshaped(scale, _full(shape, len(perm)))
    return Make("transpose", (full,), attributes(perm=_inverse(perm)))


def _ends_in_layer(name: str, scale: str, view: View) -> bool:
    """Whether layout alone lies between a tensor and a layer that takes the scale."""
    shape = view.type(scale).shape
    while view.read_once(name):
        maker = view.maker(name)
        if maker is None:
            return False
        single = all(extent == 1 for extent in shape)
        if maker.op == "transpose":
            perm = ints(maker.attributes, "perm")
            full = _full(shape, len(perm))
            shape = tuple(full[axis] for axis in _inverse(perm))
        elif maker.op == "reshape" and single:
            shape = ()
        else:
            return _takes(maker, shape, view)
        name = maker.inputs[0]
    return False


def _takes(layer: Node, shape: tuple[Dim, ...], view: View) -> bool:
    """Whether the weights of a layer can take a factor of some shape."""
    if layer.op == "add":
        places = [p for p in (0, 1) if view.is_static(layer.inputs[1 - p])]
        products = [layer.inputs[place] for place in places]
        made = [view.maker(name) for name in products if view.read_once(name)]
        return any(
            m is not None and m.op == "matmul" and _takes(m, shape, view) for m in made
        )
    rank = len(view.type(layer.outputs[0]).shape)
    if layer.op == "conv":
        fixed = all(map(view.is_static, layer.inputs[1:]))
        return fixed and _only(shape, rank, _CHANNEL)
    if layer.op != "matmul":
        return False
    left, right = map(view.is_static, layer.inputs)
    return (right and _only(shape, rank, rank - 1)) or (
        left and _only(shape, rank, rank - 2)
    )


def _on(node: Node, first: str, second: str) -> Node:
    return Node(
        name=node.name, op=node.op, inputs=(first, second), outputs=node.outputs
    )


def _summed_shifts(node: Node, view: View) -> Value | None:
    """(x W + a) + b = x W + (a + b)."""
    for place in (0, 1):
        name, second = node.inputs[place], node.inputs[1 - place]
        total = view.maker(name)
        if total is None or total.op != "add" or not view.read_once(name):
            continue
        inner = _contraction(total, view, "matmul")
        if inner is None or not view.is_static(second):
            continue
        product, first = inner
        both = Make("add", (first, second), composite="")
        if view.type(name) == view.type(node.outputs[0]):
            return Make("add", (product.outputs[0], both), composite=total.composite)
    return None


_SCALES: Final = frozenset({"mul", "div"})
SCALED_CONV: Final = Rule(
    name="scale-into-conv", ops=_SCALES, rewrite=_scaled_conv, exact=False
)
SHIFTED_CONV: Final = Rule(
    name="shift-into-conv",
    ops=frozenset({"add", "sub"}),
    rewrite=_shifted_conv,
    exact=False,
)
SCALED_MATMUL: Final = Rule(
    name="scale-into-matmul", ops=_SCALES, rewrite=_scaled_matmul, exact=False
)
SCALED_SUM: Final = Rule(
    name="scale-below-bias", ops=_SCALES, rewrite=_scaled_sum, exact=False
)
SCALED_VIEW: Final = Rule(
    name="scale-below-layout", ops=_SCALES, rewrite=_scaled_view, exact=False
)
SUMMED_SHIFTS: Final = Rule(
    name="bias-after-bias",
    ops=frozenset({"add"}),
    rewrite=_summed_shifts,
    exact=False,
)
