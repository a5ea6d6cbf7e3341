"""Output types of the primitive operators. Rows of `tuner.ir.ops` name these rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import cast

from tuner.ir.graph import Attribute
from tuner.ir.types import Dim, DType, TensorType

Attributes = Mapping[str, Attribute]
Infer = Callable[[Sequence[TensorType], Attributes], tuple[TensorType, ...]]


def ints(attributes: Attributes, key: str) -> tuple[int, ...]:
    """An attribute that is a tuple of ints."""
    return cast("tuple[int, ...]", attributes[key])


def whole(attributes: Attributes, key: str) -> int:
    """An attribute that is one int."""
    return cast("int", attributes[key])


def broadcast(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Common shape by NumPy's rules; two different symbols do not broadcast.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    columns = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    result: list[Dim] = []
    for column in columns:
        extents = {extent for extent in column if extent != 1}
        if len(extents) > 1:
            raise ValueError(f"shapes {list(shapes)} do not broadcast")
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))


def _one(dtype: DType, shape: Sequence[Dim]) -> tuple[TensorType, ...]:
    return (TensorType(dtype=dtype, shape=tuple(shape)),)


def _common(types: Sequence[TensorType]) -> DType:
    dtype = types[0].dtype
    if any(t.dtype is not dtype for t in types):
        found = ", ".join(t.dtype.value for t in types)
        raise ValueError(f"operands must have one element type, not {found}")
    return dtype


def as_elementwise(
    types: Sequence[TensorType], _attributes: Attributes
) -> tuple[TensorType, ...]:
    """The operands' common dtype, broadcast shape."""
    return _one(_common(types), broadcast([t.shape for t in types]))


def as_predicate(
    types: Sequence[TensorType], _attributes: Attributes
) -> tuple[TensorType, ...]:
    """Bool, broadcast shape."""
    _common(types)
    return _one(DType.BOOL, broadcast([t.shape for t in types]))


def as_select(
    types: Sequence[TensorType], _attributes: Attributes
) -> tuple[TensorType, ...]:
    """Common dtype of the second and third operand, broadcast shape."""
    return _one(_common(types[1:]), broadcast([t.shape for t in types]))


def as_cast(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """The dtype asked for."""
    return _one(DType(cast("str", attributes["to"])), types[0].shape)


def as_reshape(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """The shape asked for, which may hold symbols."""
    return _one(types[0].dtype, cast("tuple[Dim, ...]", attributes["shape"]))


def as_expand(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """The broadcast of the operand's shape and the shape asked for."""
    wanted = cast("tuple[Dim, ...]", attributes["shape"])
    return _one(types[0].dtype, broadcast([types[0].shape, wanted]))


def as_transpose(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """The extents, permuted."""
    perm = ints(attributes, "perm")
    return _one(types[0].dtype, [types[0].shape[axis] for axis in perm])


def as_slice(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """The extents asked for."""
    return _one(types[0].dtype, cast("tuple[Dim, ...]", attributes["sizes"]))


def as_concat(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """Extents add up along the axis."""
    axis = whole(attributes, "axis")
    parts = [t.shape[axis] for t in types]
    if any(isinstance(part, str) for part in parts) and len(parts) > 1:
        raise ValueError(f"symbolic extents {parts} cannot be added up")
    joined: Dim = parts[0] if len(parts) == 1 else sum(cast("list[int]", parts))
    shape = list(types[0].shape)
    shape[axis] = joined
    return _one(types[0].dtype, shape)


def as_pad(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """Extents grow by what is put before and after."""
    before, after = ints(attributes, "before"), ints(attributes, "after")
    shape = [
        extent if not b and not a else cast("int", extent) + b + a
        for extent, b, a in zip(types[0].shape, before, after, strict=True)
    ]
    return _one(types[0].dtype, shape)


def as_gather(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """The indexed axis is replaced by the shape of the indices."""
    axis = whole(attributes, "axis")
    table, index = types[0].shape, types[1].shape
    return _one(types[0].dtype, (*table[:axis], *index, *table[axis + 1 :]))


def as_reduction(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """Reduced axes become one, or vanish."""
    axes = ints(attributes, "axes")
    kept = whole(attributes, "keepdims")
    shape = [
        1 if axis in axes else extent
        for axis, extent in enumerate(types[0].shape)
        if kept or axis not in axes
    ]
    return _one(types[0].dtype, shape)


def as_matmul(
    types: Sequence[TensorType], _attributes: Attributes
) -> tuple[TensorType, ...]:
    """NumPy's matmul: batches broadcast, vectors lose their axis."""
    left, right = types[0].shape, types[1].shape
    if not left or not right:
        raise ValueError("a scalar has no product of matrices")
    rows = left[-2:-1] if len(left) > 1 else ()
    columns = right[-1:] if len(right) > 1 else ()
    inner = (left[-1], right[-2] if len(right) > 1 else right[-1])
    if inner[0] != inner[1]:
        raise ValueError(f"inner extents {inner[0]} and {inner[1]} differ")
    batch = broadcast([left[:-2], right[:-2]])
    return _one(_common(types), (*batch, *rows, *columns))


def _window(
    extent: Dim, kernel: int, stride: int, pads: int, dilation: int, *, ceil: int
) -> int:
    free = cast("int", extent) + pads - dilation * (kernel - 1) - 1
    return (-(-free // stride) if ceil else free // stride) + 1


def as_conv(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """Batch, output channels, and one extent per spatial axis."""
    data, weights = types[0].shape, types[1].shape
    rank = len(data) - 2
    pads = ints(attributes, "pads")
    spatial = [
        _window(
            data[2 + axis],
            cast("int", weights[2 + axis]),
            ints(attributes, "strides")[axis],
            pads[axis] + pads[rank + axis],
            ints(attributes, "dilations")[axis],
            ceil=0,
        )
        for axis in range(rank)
    ]
    return _one(types[0].dtype, (data[0], weights[0], *spatial))


def as_pool(
    types: Sequence[TensorType], attributes: Attributes
) -> tuple[TensorType, ...]:
    """Batch, channels, and one extent per spatial axis.

    With `ceil`, a last window that would start in the padding behind the data is
    left out (ONNX MaxPool and AveragePool since opset 11, as clarified in 19).
    """
    data = types[0].shape
    kernel, strides = ints(attributes, "kernel"), ints(attributes, "strides")
    pads, dilations = ints(attributes, "pads"), ints(attributes, "dilations")
    rank = len(kernel)
    ceil = whole(attributes, "ceil")
    spatial = []
    for axis in range(rank):
        begin, end = pads[axis], pads[rank + axis]
        extent = cast("int", data[2 + axis])
        count = _window(
            extent,
            kernel[axis],
            strides[axis],
            begin + end,
            dilations[axis],
            ceil=ceil,
        )
        if ceil and (count - 1) * strides[axis] >= extent + begin:
            count -= 1
        spatial.append(count)
    return _one(types[0].dtype, (*data[:2], *spatial))
