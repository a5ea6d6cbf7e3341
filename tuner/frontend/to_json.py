"""ONNX to graph JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
from onnx import AttributeProto

from tuner.errors import UnsupportedModel
from tuner.frontend.document import SCHEMA, Json
from tuner.frontend.model import (
    inline,
    lighten,
    metadata_of,
    opsets_of,
    parse,
)
from tuner.frontend.protos import (
    array_of,
    attribute_of,
    dims_of,
    dtype_of,
)
from tuner.ir.interpreter import load
from tuner.ir.types import Array


def to_json(data: bytes) -> dict[str, Json]:
    """The JSON form of an ONNX model; weights keep their type and lose their values.

    Raises:
        InvalidModel: the bytes are not a model.
        UnsupportedModel: the model holds subgraphs or foreign element types.
    """
    model = inline(parse(data))
    metadata = metadata_of(model)
    taken = lighten(model)
    graph = model.graph
    given = {tensor.name for tensor in graph.initializer}
    weights = {*metadata.weights, *taken} - given
    rows = {
        value.name: _value_json(value)
        for value in graph.input
        if value.name not in given
    }
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "opset": dict(opsets_of(model)),
        "inputs": [row for name, row in rows.items() if name not in weights],
        "weights": [row for name, row in rows.items() if name in weights],
        "constants": [
            _tensor_json(t, t.name, {"name": t.name}) for t in graph.initializer
        ],
        "nodes": [_node_json(node) for node in graph.node],
        "outputs": [value.name for value in graph.output],
    }
    extra: dict[str, Json] = {}
    if metadata.input_ranges:
        extra["input_ranges"] = {k: list(v) for k, v in metadata.input_ranges.items()}
    if metadata.dim_defaults:
        extra["dim_defaults"] = dict(metadata.dim_defaults)
    if metadata.gain != 1:
        extra["gain"] = metadata.gain
    return {**document, "metadata": extra} if extra else document


def _value_json(value: onnx.ValueInfoProto) -> dict[str, Json]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise UnsupportedModel(value.name, "has no shape")
    dims = [
        f"{value.name}.{axis}" if dim is None else dim
        for axis, dim in enumerate(dims_of(tensor))
    ]
    dtype = dtype_of(tensor.elem_type, value.name)
    return {"name": value.name, "dtype": dtype.value, "shape": dims}


def _tensor_json(
    tensor: onnx.TensorProto, where: str, start: Mapping[str, Json]
) -> dict[str, Json]:
    dtype = dtype_of(tensor.data_type, where)
    array = array_of(tensor, where)
    return {
        **start,
        "dtype": dtype.value,
        "shape": list(array.shape),
        "data": _data_json(load(array, dtype)),
    }


def _data_json(array: Array) -> list[Json]:
    values: list[Json] = array.reshape(-1).tolist()
    if array.dtype.kind != "f":
        return values
    return [v if math.isfinite(v) else _name_special(v) for v in values]


def _name_special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _node_json(node: onnx.NodeProto) -> dict[str, Json]:
    where = node.name or node.op_type
    return {
        "name": node.name,
        "op": node.op_type,
        "domain": node.domain,
        "inputs": list(node.input),
        "outputs": list(node.output),
        "attributes": {a.name: _attribute_json(a, where) for a in node.attribute},
    }


def _attribute_json(attribute: AttributeProto, where: str) -> Json:
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise UnsupportedModel(
            where,
            f"its attribute {attribute.name!r} is a subgraph, which JSON does not hold",
            hint="hand in control flow as ONNX",
        )
    if attribute.type == AttributeProto.TENSOR:
        return _tensor_json(attribute.t, where, {})
    value = attribute_of(attribute)
    if isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, int | float | str | list):
        raise UnsupportedModel(
            where, f"its attribute {attribute.name!r} has no JSON form"
        )
    return value
