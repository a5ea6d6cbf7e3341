"""Random inputs on which a kernel's answer says something.

An input's role is read from its readers: an index stays inside its table, what is
divided by or put under a root is positive. If a reference still turns out void, other
kinds of values are tried (`VARIANTS`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tuner.ir.graph import Graph
from tuner.ir.interpreter import to_bf16
from tuner.ir.types import Array, DType, TensorType
from tuner.runtime.backend import PAGE_BYTES, aligned_bytes, as_bytes
from tuner.runtime.spans import spans_of

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A kind of random values.

    Attributes:
        positive: all floats between 1/4 and 7/4, else standard normal.
        scale: factor of the floats.
        by_fan_in: whether the second operand of a product or convolution is divided
            by the root of how many terms each of its sums has, so that results of a
            long chain of them stay as large as its inputs (K. He et al., "Delving
            Deep into Rectifiers", ICCV 2015, section 2.2).
        true_share: probability of True.
        nan_share: probability of NaN.
    """

    positive: bool = False
    scale: float = 1.0
    by_fan_in: bool = False
    true_share: float = 0.5
    nan_share: float = 0.0


VARIANTS: Final = (
    Variant(),
    Variant(by_fan_in=True),
    Variant(positive=True, true_share=0.9),
    Variant(scale=0.125, true_share=0.9),
    Variant(positive=True, scale=0.25, true_share=0.1),
    Variant(nan_share=0.25),
)
_POSITIVE: Final[Mapping[str, tuple[int, ...]]] = {
    "log": (0,),
    "sqrt": (0,),
    "reciprocal": (0,),
    "div": (1,),
    "pow": (0,),
    "fmod": (1,),
    "floor_mod": (1,),
}
_THROUGH: Final = frozenset(
    {"reshape", "transpose", "expand", "slice", "cast", "concat", "where"}
)
_PRODUCTS: Final = frozenset({"matmul", "conv"})
_INT_SPAN: Final = (0, 9)


def variants(graph: Graph) -> tuple[Variant, ...]:
    """The kinds of values that differ for a graph, the first choice first."""
    has_products = any(node.op in _PRODUCTS for node in graph.nodes)
    return tuple(each for each in VARIANTS if has_products or not each.by_fan_in)


def make_feeds(
    graph: Graph,
    seed: int,
    *,
    variant: Variant = VARIANTS[0],
    ranges: Ranges | None = None,
    names: tuple[str, ...] | None = None,
) -> dict[str, Array]:
    """Page-aligned stored arrays for the inputs and weights of a graph.

    Args:
        graph: static shapes.
        seed: decides every value, together with the names' order.
        variant: kind of values.
        ranges: least and greatest value by input, where known.
        names: which tensors; all inputs and weights by default.
    """
    known = ranges or {}
    spans = spans_of(graph)
    positive = _positive(graph)
    terms = _fan_in(graph) if variant.by_fan_in else {}
    wanted = (*graph.inputs, *graph.weights) if names is None else names
    order = {name: place for place, name in enumerate((*graph.inputs, *graph.weights))}
    feeds = {}
    for name in wanted:
        kind = graph.types[name]
        random = np.random.default_rng((seed, order[name]))
        span = known.get(name, spans.get(name))
        own = replace(variant, scale=variant.scale / math.sqrt(terms.get(name, 1)))
        feeds[name] = _draw(random, kind, span, own, positive=name in positive)
    return feeds


def align(array: Array) -> Array:
    """The same array at the beginning of a page; itself if it is there already."""
    array = np.asarray(array)  # NumPy gives numbers, no arrays, of shape ()
    placed = array.flags.c_contiguous and array.ctypes.data % PAGE_BYTES == 0
    if placed and array.flags.writeable:
        return array
    copy = aligned_bytes(array.nbytes)[: array.nbytes]
    copy[:] = as_bytes(array)
    return copy.view(array.dtype).reshape(array.shape)


def _draw(
    random: np.random.Generator,
    kind: TensorType,
    span: tuple[float, float] | None,
    variant: Variant,
    *,
    positive: bool,
) -> Array:
    shape, dtype = kind.static_shape, kind.dtype
    if dtype is DType.BOOL:
        return align(random.random(shape) < variant.true_share)
    if not dtype.is_float:
        low, high = (int(edge) for edge in span or _INT_SPAN)
        low = max(low, 1) if positive and span is None else low
        return align(random.integers(low, high, shape, dtype.numpy, endpoint=True))
    return align(_to_storage(_floats(random, kind, span, variant, positive), dtype))


def _floats(
    random: np.random.Generator,
    kind: TensorType,
    span: tuple[float, float] | None,
    variant: Variant,
    positive: bool,
) -> Any:
    exact = np.float64 if kind.dtype is DType.F64 else np.float32
    shape = kind.static_shape
    if span is not None:
        return random.uniform(*span, shape).astype(exact)
    if positive or variant.positive:
        values = (random.random(shape, exact) * 1.5 + 0.25) * exact(variant.scale)
    else:
        values = random.standard_normal(shape, exact) * exact(variant.scale)
    if variant.nan_share:
        values = np.where(random.random(shape) < variant.nan_share, np.nan, values)
    return np.asarray(values)


def _to_storage(values: Any, dtype: DType) -> Array:
    return to_bf16(values) if dtype is DType.BF16 else values.astype(dtype.numpy)


def _fan_in(graph: Graph) -> dict[str, int]:
    """How many terms each sum has of a product or convolution by an operand."""
    found: dict[str, int] = {}
    for node in reversed(graph.nodes):
        if node.op in _THROUGH and node.outputs[0] in found:
            count = found[node.outputs[0]]
            parts = node.inputs[1:] if node.op == "where" else node.inputs
            found |= {name: max(found.get(name, 1), count) for name in parts}
        if node.op in _PRODUCTS:
            name = node.inputs[1]
            shape = graph.types[name].static_shape
            count = math.prod(shape[1:]) if node.op == "conv" else shape[-2:][0]
            found[name] = max(found.get(name, 1), count)
    return found


def _positive(graph: Graph) -> set[str]:
    """Tensors that reach a root, a logarithm or a divisor unchanged but for shape."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        found.update(node.inputs[place] for place in _POSITIVE.get(node.op, ()))
        if node.op in _THROUGH and found.intersection(node.outputs):
            found.update(node.inputs)
    return found
