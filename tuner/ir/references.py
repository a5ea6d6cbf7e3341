"""The meaning of the primitive operators, in NumPy: everything is compared with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from typing import cast as typed

import numpy as np
import numpy.typing as npt

from tuner.ir.erf import erf
from tuner.ir.graph import Attribute
from tuner.ir.inference import as_conv, as_pool, ints, whole
from tuner.ir.types import Array, DType, TensorType

Attributes = Mapping[str, Attribute]
Arrays = Sequence[Array]
_Any = npt.NDArray[Any]


def _divide(a: _Any, b: _Any) -> _Any:
    """True division; integers round towards zero as in C, wrap, and give 0 by 0."""
    if not np.issubdtype(a.dtype, np.integer):
        return np.asarray(a / b)
    by = np.where(b == 0, 1, b).astype(a.dtype)
    quotient = a // by
    up = (a - quotient * by != 0) & ((a < 0) != (by < 0))
    return np.asarray(np.where(b == 0, 0, quotient + up), dtype=a.dtype)


def _power(a: _Any, b: _Any) -> _Any:
    """Powers; those of integers wrap, and are rounded towards zero."""
    if not np.issubdtype(a.dtype, np.integer):
        return np.asarray(np.power(a, b.astype(a.dtype)))
    raised = np.power(a, np.maximum(b, 0).astype(a.dtype))
    odd = np.where(b % 2 == 0, 1, -1)
    inverse = np.where(a == 1, 1, np.where(a == -1, odd, 0))
    return np.asarray(np.where(b < 0, inverse, raised), dtype=a.dtype)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda a: erf(a).astype(a.dtype),
    "bit_not": np.invert,
    "relu": lambda a: np.maximum(a, 0),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "pow": _power,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "fmod": np.fmod,
    "floor_mod": np.mod,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "reduce_sum": np.sum,
    "reduce_prod": np.prod,
    "reduce_max": np.max,
    "reduce_min": np.min,
}
_IDENTITIES: Final[Mapping[str, float]] = {
    "reduce_sum": 0.0,
    "reduce_prod": 1.0,
    "reduce_max": -math.inf,
    "reduce_min": math.inf,
}


def elementwise(name: str) -> Callable[[Arrays, Attributes], tuple[Array, ...]]:
    """Reference of an element-wise row by its name."""
    function = _FUNCTIONS[name]

    def reference(arrays: Arrays, _attributes: Attributes) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(function(*arrays)),)

    return reference


def reduction(name: str) -> Callable[[Arrays, Attributes], tuple[Array, ...]]:
    """Reference of a reduction row by its name. Integers keep their type."""
    function = _FUNCTIONS[name]

    def reference(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
        data = arrays[0]
        axes = ints(attributes, "axes")
        keep = bool(whole(attributes, "keepdims"))
        options: dict[str, Any] = {"axis": axes, "keepdims": keep}
        if math.prod(data.shape[axis] for axis in axes) == 0:
            options["initial"] = _identity(name, data.dtype)
        with np.errstate(all="ignore"):
            return (np.asarray(function(data, **options)).astype(data.dtype),)

    return reference


def _identity(name: str, dtype: np.dtype[Any]) -> float | int:
    value = _IDENTITIES[name]
    if math.isinf(value) and dtype == np.bool_:
        return value > 0
    if math.isinf(value) and np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return int(info.max if value > 0 else info.min)
    return value


def where(arrays: Arrays, _attributes: Attributes) -> tuple[Array, ...]:
    """Select by a truth value."""
    return (np.where(arrays[0], arrays[1], arrays[2]),)


def cast_target(attributes: Attributes) -> DType:
    """The dtype that a cast asks for."""
    return DType(typed("str", attributes["to"]))


def cast_array(array: Array, to: DType) -> Array:
    """Convert values. bf16 results are float32 values rounded to 8 bits of mantissa.

    Out-of-range floats to integers are undefined in ONNX; here they wrap as NumPy
    does.
    """
    if to is DType.BF16:
        return round_to_bf16(array)
    with np.errstate(all="ignore"):
        return array.astype(to.numpy)


def round_to_bf16(array: Array) -> Array:
    """Nearest bf16 value (ties to even), held in float32."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    kept = np.where(np.isnan(bits.view(np.float32)), bits, rounded)
    return kept.astype(np.uint32).view(np.float32).reshape(np.shape(array))


def cast(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Convert to another dtype."""
    return (cast_array(arrays[0], cast_target(attributes)),)


def reshape(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """The same elements in another shape."""
    return (arrays[0].reshape(ints(attributes, "shape")),)


def transpose(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Permuted axes."""
    return (arrays[0].transpose(ints(attributes, "perm")),)


def slice_(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Every `step`-th element from `start`, `size` of them, along each axis."""
    indices = [
        start + step * np.arange(size)
        for start, step, size in zip(
            ints(attributes, "starts"),
            ints(attributes, "steps"),
            ints(attributes, "sizes"),
            strict=True,
        )
    ]
    return (arrays[0][np.ix_(*indices)] if indices else arrays[0],)


def expand(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Broadcast to a shape."""
    shape = np.broadcast_shapes(arrays[0].shape, ints(attributes, "shape"))
    return (np.broadcast_to(arrays[0], shape),)


def concat(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Join along an axis."""
    return (np.concatenate(list(arrays), axis=whole(attributes, "axis")),)


def pad(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Surround with a constant."""
    widths = list(
        zip(ints(attributes, "before"), ints(attributes, "after"), strict=True)
    )
    value = attributes["value"]
    if not widths:
        return (arrays[0],)
    return (np.pad(arrays[0], widths, constant_values=cast_number(value)),)


def cast_number(value: Attribute) -> Any:
    """An attribute that is a number."""
    return value


def gather(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Take slices by index along an axis; an index below zero counts from the end."""
    index = cast_index(arrays[1])
    return (np.take(arrays[0], index, axis=whole(attributes, "axis")),)


def cast_index(array: Array) -> npt.NDArray[np.int64]:
    """Indices as int64."""
    return array.astype(np.int64)


def matmul(arrays: Arrays, _attributes: Attributes) -> tuple[Array, ...]:
    """NumPy's matmul."""
    left: _Any = arrays[0]
    with np.errstate(all="ignore"):
        return (np.asarray(left @ arrays[1]),)


def _windows(
    data: _Any,
    kernel: tuple[int, ...],
    attributes: Attributes,
    counts: Sequence[int],
    fill: float | int,
) -> _Any:
    """View of every window: shape (N, C, *counts, *kernel)."""
    rank = len(kernel)
    strides, dilations = ints(attributes, "strides"), ints(attributes, "dilations")
    pads = ints(attributes, "pads")
    widths = [(0, 0), (0, 0)]
    for axis in range(rank):
        span = (counts[axis] - 1) * strides[axis]
        reach = span + dilations[axis] * (kernel[axis] - 1) + 1
        behind = max(reach - data.shape[2 + axis] - pads[axis], pads[rank + axis], 0)
        widths.append((pads[axis], behind))
    padded = np.pad(data, widths, constant_values=fill)
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(
        padded, spans, axis=tuple(range(2, 2 + rank))
    )
    outer = [slice(0, (c - 1) * s + 1, s) for c, s in zip(counts, strides, strict=True)]
    inner = [slice(None, None, d) for d in dilations]
    return view[(slice(None), slice(None), *outer, *inner)]


_CHUNK: Final = 256
"""Rows that one matrix product of a convolution sums over, about."""


def conv(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Grouped convolution (a cross-correlation) over any number of spatial axes.

    A sum of matrix products, each over some positions of the kernel.
    """
    data: _Any = arrays[0]
    weights: _Any = arrays[1]
    kinds = [TensorType(dtype=DType.F32, shape=a.shape) for a in (data, weights)]
    counts = as_conv(kinds, attributes)[0].static_shape[2:]
    outputs, inner, *kernel = weights.shape
    group, batch = whole(attributes, "group"), data.shape[0]
    windows = _windows(data, tuple(kernel), attributes, counts, 0)
    windows = windows.reshape(batch, group, inner, *counts, *kernel)
    parts = weights.reshape(group, outputs // group, inner, *kernel)
    total = np.zeros((batch, group, outputs // group, math.prod(counts)), data.dtype)
    taps = list(np.ndindex(*kernel))
    step = max(_CHUNK // max(inner, 1), 1)
    with np.errstate(all="ignore"):
        for first in range(0, len(taps), step):
            chosen = taps[first : first + step]
            factor = np.stack([parts[(..., *tap)] for tap in chosen], axis=2)
            seen = np.stack([windows[(..., *tap)] for tap in chosen], axis=2)
            rows = len(chosen) * inner
            total += factor.reshape(group, -1, rows) @ seen.reshape(
                batch, group, rows, -1
            )
    result = total.reshape(batch, outputs, *counts)
    for bias in arrays[2:]:
        result += bias.reshape(1, -1, *[1] * len(kernel))
    return (result,)


def _pool_counts(data: _Any, attributes: Attributes) -> list[int]:
    given = TensorType(dtype=DType.F32, shape=data.shape)
    return list(as_pool([given], attributes)[0].static_shape[2:])


def max_pool(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Largest value of each window; padding never wins."""
    data: _Any = arrays[0]
    kernel = ints(attributes, "kernel")
    fill = _identity("reduce_max", data.dtype)
    counts = _pool_counts(data, attributes)
    windows = _windows(data, kernel, attributes, counts, fill)
    axes = tuple(range(windows.ndim - len(kernel), windows.ndim))
    return (windows.max(axis=axes),)


def average_pool(arrays: Arrays, attributes: Attributes) -> tuple[Array, ...]:
    """Mean of each window, padding counted or not (windows beyond it never)."""
    data: _Any = arrays[0]
    kernel = ints(attributes, "kernel")
    counts = _pool_counts(data, attributes)
    axes = tuple(range(2 + len(kernel), 2 + 2 * len(kernel)))
    total = _windows(data, kernel, attributes, counts, 0).sum(axis=axes)
    ones = np.ones((1, 1, *data.shape[2:]), dtype=data.dtype)
    if whole(attributes, "count_pads"):
        pads = ints(attributes, "pads")
        rank = len(kernel)
        widths = [(0, 0), (0, 0), *((pads[a], pads[rank + a]) for a in range(rank))]
        ones = np.pad(ones, widths, constant_values=1)
        attributes = {**attributes, "pads": (0,) * (2 * rank)}
    weights = _windows(ones, kernel, attributes, counts, 0).sum(axis=axes)
    return ((total / weights).astype(data.dtype),)
