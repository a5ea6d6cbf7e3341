"""Values, types and attributes out of ONNX messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from tuner.errors import InvalidModel, ModelTooLarge, UnsupportedModel
from tuner.ir.types import Array, Dim, DType, TensorType

DTYPES: Final[Mapping[int, DType]] = {
    TensorProto.FLOAT: DType.F32,
    TensorProto.DOUBLE: DType.F64,
    TensorProto.FLOAT16: DType.F16,
    TensorProto.BFLOAT16: DType.BF16,
    TensorProto.INT64: DType.I64,
    TensorProto.INT32: DType.I32,
    TensorProto.INT8: DType.I8,
    TensorProto.UINT8: DType.U8,
    TensorProto.BOOL: DType.BOOL,
}
ELEMENTS: Final[Mapping[DType, int]] = {
    dtype: number for number, dtype in DTYPES.items()
}
_DENSE_BYTES: Final = 1 << 31
"""A sparse tensor becomes no larger than a whole model may be."""
_KNOWN: Final = ", ".join(dtype.value for dtype in DType)


def dtype_of(element: int, where: str) -> DType:
    """Our element type of an ONNX one.

    Raises:
        InvalidModel: ONNX has no such type.
        UnsupportedModel: the type is none of ours.
    """
    dtype = DTYPES.get(element)
    if dtype is not None:
        return dtype
    names: Any = TensorProto.DataType
    if element == 0 or element not in names.values():
        raise InvalidModel(
            where,
            f"element type {element} does not exist",
            hint="state a type of onnx.TensorProto.DataType",
        )
    raise UnsupportedModel(
        where,
        f"element type {names.Name(element)} is not supported",
        hint=f"take and deliver {_KNOWN}; other types may lie between nodes",
    )


def is_external(tensor: TensorProto) -> bool:
    """Whether the values of a tensor lie in another file."""
    place = tensor.data_location
    return place == TensorProto.EXTERNAL or bool(tensor.external_data)


def array_of(tensor: TensorProto, where: str) -> Array:
    """The values of a tensor message, as they are stored (bf16 as uint16).

    Raises:
        InvalidModel: data and dimensions do not fit.
        UnsupportedModel: the data lies in another file, or has a foreign type.
    """
    if is_external(tensor):
        raise UnsupportedModel(
            where,
            "its data lies in another file, and it is no weight",
            hint="keep that file beside the model, or save all in one file",
        )
    dtype = dtype_of(tensor.data_type, where)
    shape = tuple(tensor.dims)
    if any(extent < 0 for extent in shape):
        raise InvalidModel(where, f"has the shape {shape}")
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != math.prod(shape) * dtype.bytes:
            raise InvalidModel(
                where, f"{len(raw)} bytes do not fill {dtype.value}{list(shape)}"
            )
        return np.frombuffer(raw, dtype=dtype.numpy).reshape(shape)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InvalidModel(where, f"holds no readable data: {error}") from error
    return array.view(np.uint16) if dtype is DType.BF16 else array


def dense_of(sparse: onnx.SparseTensorProto, where: str) -> TensorProto:
    """A sparse tensor with its zeros written out.

    Raises:
        InvalidModel: indices and dimensions do not fit.
        ModelTooLarge: the zeros exceed what a model may hold.
        UnsupportedModel: it has a foreign element type.
    """
    shape = tuple(sparse.dims)
    dtype = dtype_of(sparse.values.data_type, where)
    size = math.prod(shape)
    if min(shape, default=0) < 0 or size * dtype.bytes > _DENSE_BYTES:
        raise ModelTooLarge(
            where,
            f"is a sparse tensor of {dtype.value}{list(shape)}",
            hint="leave it out of the model: make it a graph input",
        )
    values = array_of(sparse.values, where).reshape(-1)
    indices = array_of(sparse.indices, where)
    if indices.min(initial=0) < 0:
        raise InvalidModel(where, "its indices do not fit: one is negative")
    try:
        if indices.ndim > 1:
            indices = np.ravel_multi_index(tuple(indices.T), shape)
        dense = np.zeros(size, dtype.numpy)
        dense[indices] = values
    except (ValueError, IndexError, TypeError) as error:
        raise InvalidModel(where, f"its indices do not fit: {error}") from error
    return tensor_of(dense.reshape(shape), dtype, where)


def dims_of(kind: onnx.TypeProto.Tensor) -> list[Dim | None]:
    """Extents; None where neither a number nor a name is stated."""
    dims: list[Dim | None] = []
    for dim in kind.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param or None)
    return dims


def type_of(kind: onnx.TypeProto, where: str) -> TensorType:
    """The type of a tensor; an extent without a name is called after the tensor.

    Raises:
        InvalidModel: an extent is negative.
        UnsupportedModel: not a tensor, or of unknown rank.
    """
    if not kind.HasField("tensor_type"):
        what = kind.WhichOneof("value") or "nothing"
        raise UnsupportedModel(where, f"is not a tensor but {what}")
    tensor = kind.tensor_type
    dtype = dtype_of(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        raise UnsupportedModel(
            where,
            "has no shape",
            hint="state one; an unknown extent may be a name such as 'batch'",
        )
    shape: list[Dim] = []
    for axis, dim in enumerate(dims_of(tensor)):
        if isinstance(dim, int) and dim < 0:
            raise InvalidModel(
                where,
                f"has the extent {dim} on axis {axis}",
                hint="give a size, or a name such as 'batch' where it is open",
            )
        shape.append(f"{where}.{axis}" if dim is None else dim)
    return TensorType(dtype=dtype, shape=tuple(shape))


def proto_of(kind: TensorType) -> onnx.TypeProto:
    """The ONNX form of a type."""
    proto = onnx.TypeProto()
    tensor = proto.tensor_type
    tensor.elem_type = ELEMENTS[kind.dtype]
    tensor.shape.SetInParent()
    for dim in kind.shape:
        entry = tensor.shape.dim.add()
        if isinstance(dim, str):
            entry.dim_param = dim
        else:
            entry.dim_value = dim
    return proto


def tensor_of(array: Array, dtype: DType, name: str = "") -> TensorProto:
    """The ONNX form of stored values."""
    return TensorProto(
        name=name,
        data_type=ELEMENTS[dtype],
        dims=array.shape,
        raw_data=np.ascontiguousarray(array).tobytes(),
    )


def attribute_of(attribute: AttributeProto) -> Any:
    """The value of an attribute: Python numbers, str, tuples; protos otherwise."""
    field = _FIELDS.get(attribute.type)
    if field is None:
        return None
    value = getattr(attribute, field)
    if field == "s":
        return value.decode("utf-8", "replace")
    if field == "strings":
        return tuple(text.decode("utf-8", "replace") for text in value)
    return tuple(value) if field in _SEVERAL else value


_FIELDS: Final[Mapping[int, str]] = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.STRING: "s",
    AttributeProto.STRINGS: "strings",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
    AttributeProto.TENSOR: "t",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPH: "g",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
}
_SEVERAL: Final = frozenset({"ints", "floats", "tensors", "graphs"})
