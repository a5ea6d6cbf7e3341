"""The ONNX message: reading, limits, weights apart, dimensions bound."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, inliner

from tuner.errors import InvalidModel, InvalidOption, ModelTooLarge, UnsupportedModel
from tuner.frontend.opaque import subgraphs
from tuner.frontend.protos import DTYPES, array_of, dense_of, is_external, proto_of
from tuner.ir.graph import Graph
from tuner.ir.types import Array, TensorType

WEIGHT_BYTES: Final = 256
"""Float tensors above this size are weights."""
OLDEST_OPSET: Final = 7
MOST: Final = (1 << 63) - 1
"""The largest extent that a message can hold."""


_NAME: Final = 200
_CUT: Final = "the file may be cut off, or be of another format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is read at most.

    Attributes:
        model_bytes: size of the message (protobuf itself ends at 2 GiB).
        nodes: nodes, those of subgraphs included.
        tensors: initializers, inputs and outputs.
        nesting: depth of subgraphs.
        rank: axes of a tensor.
        tensor_bytes: one tensor, wherever it is made; more than any machine holds, and
            little enough for sums of such sizes to stay exact in JSON numbers.
    """

    model_bytes: int = (1 << 31) - 1
    nodes: int = 50_000
    tensors: int = 200_000
    nesting: int = 16
    rank: int = 32
    tensor_bytes: int = 1 << 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Metadata entries that mean something here, decoded."""

    weights: tuple[str, ...] = ()
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dim_defaults: Mapping[str, int] = field(default_factory=dict)
    gain: float = 1.0


def parse(data: bytes, limits: Limits | None = None) -> onnx.ModelProto:
    """Read the message and check that it is within the limits.

    Raises:
        InvalidModel: the bytes are no ONNX model, or hold no graph.
        UnsupportedModel: the opset is too old or too new.
        ModelTooLarge: a limit is exceeded.
    """
    limits = limits or Limits()
    if len(data) > limits.model_bytes:
        raise ModelTooLarge(
            "model",
            f"{len(data)} bytes exceed {limits.model_bytes}",
            hint="leave the weights out: fuseplan strip",
        )
    if not data:
        raise InvalidModel("model", "is empty", hint=_CUT)
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except (DecodeError, RecursionError, ValueError) as error:
        is_json = data.lstrip()[:1] == b"{"
        what = "JSON, not an ONNX model" if is_json else "not a whole ONNX model"
        hint = "only ONNX models are taken here" if is_json else _CUT
        raise InvalidModel("model", f"the bytes are {what}", hint=hint) from error
    if not model.HasField("graph") or not model.opset_import:
        raise InvalidModel(
            "model",
            "holds no graph" if model.opset_import else "states no opset",
            hint=_CUT,
        )
    _check_opset(model)
    _check_size(model.graph, limits)
    return model


def opsets_of(model: onnx.ModelProto) -> Mapping[str, int]:
    """Version of each operator domain; the standard one is called ''."""
    return {
        "" if entry.domain == "ai.onnx" else entry.domain: entry.version
        for entry in model.opset_import
    }


def _check_opset(model: onnx.ModelProto) -> None:
    version = opsets_of(model).get("")
    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if not 1 <= entry.version < 1 << 31:
            raise InvalidModel(
                "model", f"states version {entry.version} of domain {entry.domain!r}"
            )
    if version is not None and not OLDEST_OPSET <= version <= newest:
        raise UnsupportedModel(
            "model",
            f"opset {version} is not between {OLDEST_OPSET} and {newest}",
            hint="convert it with onnx.version_converter",
        )


def _check_size(graph: onnx.GraphProto, limits: Limits) -> None:
    tensors = len(graph.initializer) + len(graph.input) + len(graph.output)
    if tensors > limits.tensors:
        raise ModelTooLarge("model", f"{tensors} tensors exceed {limits.tensors}")
    nodes = 0
    level = [graph]
    for _ in range(limits.nesting):
        nodes += sum(len(part.node) for part in level)
        _check_text(level)
        if nodes > limits.nodes:
            raise ModelTooLarge("model", f"more than {limits.nodes} nodes")
        level = [g for part in level for node in part.node for g in subgraphs(node)]
        if not level:
            return
    raise ModelTooLarge("model", f"subgraphs nest deeper than {limits.nesting}")


def _check_text(graphs: Sequence[onnx.GraphProto]) -> None:
    """Names must be text: protobuf hands out bytes where they are not UTF-8."""
    for graph in graphs:
        names: list[object] = [t.name for t in graph.initializer]
        names += [sparse.values.name for sparse in graph.sparse_initializer]
        for node in graph.node:
            names += (node.name, node.op_type, node.domain, *node.input, *node.output)
            names += [attribute.name for attribute in node.attribute]
        for value in (*graph.input, *graph.output, *graph.value_info):
            dims = value.type.tensor_type.shape.dim
            names += (value.name, *(dim.dim_param for dim in dims))
        for name in names:
            if not isinstance(name, str):
                raise InvalidModel("model", f"the name {name!r} is not UTF-8 text")


def check_tensors(graph: Graph, limits: Limits | None = None) -> Graph:
    """The graph, when none of its tensors with known sizes is too large.

    Raises:
        ModelTooLarge: one exceeds the limit.
    """
    most = (limits or Limits()).tensor_bytes
    for name, kind in graph.types.items():
        if not kind.symbols and kind.bytes > most:
            raise ModelTooLarge(
                name[:_NAME],
                f"{kind.bytes} bytes, the limit for one tensor is {most}",
                hint="look for a wrong dimension",
            )
    return graph


def metadata_of(model: onnx.ModelProto) -> Metadata:
    """The entries that mean something here.

    Raises:
        InvalidModel: one of them does not have the form that its name promises.
    """
    found: dict[str, Any] = {}
    for entry in model.metadata_props:
        decode = _DECODE.get(entry.key)
        if decode is None:
            continue
        try:
            found[entry.key] = decode(json.loads(entry.value))
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise InvalidModel(
                f"metadata {entry.key}",
                f"is not what it should be: {error}",
                hint=_FORMS[entry.key],
            ) from error
    return Metadata(**found)


def _range(pair: Any) -> tuple[float, float]:
    low, high = pair
    return low + 0, high + 0


_DECODE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "weights": lambda names: tuple(str(name) for name in list(names)),
    "input_ranges": lambda rows: {str(k): _range(v) for k, v in rows.items()},
    "dim_defaults": lambda rows: {str(k): int(v) for k, v in rows.items()},
    "gain": float,
}
_FORMS: Final = {
    "weights": "a JSON list of names of graph inputs",
    "input_ranges": 'JSON such as {"input_ids": [0, 30521]}',
    "dim_defaults": 'JSON such as {"batch": 2}',
    "gain": "a number",
}


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the model's own functions in the place of their calls.

    Raises:
        InvalidModel: a function is not well formed.
    """
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError) as error:
        raise InvalidModel("model", f"its functions cannot be inlined: {error}") from (
            error
        )


def is_weight(tensor: TensorProto) -> bool:
    """Whether a constant counts as a weight: a float above `WEIGHT_BYTES`."""
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None or not dtype.is_float:
        return False
    return bool(math.prod(tensor.dims) * dtype.bytes > WEIGHT_BYTES)


def constant_tensor(node: onnx.NodeProto) -> TensorProto | None:
    """The tensor of a Constant node that holds one."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for attribute in node.attribute:
        if attribute.name == "value" and len(node.output) == 1:
            tensor: TensorProto = attribute.t
            return tensor
    return None


def lighten(
    model: onnx.ModelProto, keep: Collection[str] = ()
) -> dict[str, Array | None]:
    """Turn large float initializers and constants into graph inputs, in place.

    Returns:
        The values taken out, by name; None where they lie in another file.

    Raises:
        InvalidModel: the data of one of them is damaged.
    """
    graph = model.graph
    taken = {
        tensor.name: tensor
        for tensor in graph.initializer
        if is_weight(tensor) and tensor.name not in keep
    }
    if taken:
        small = [t for t in graph.initializer if t.name not in taken]
        del graph.initializer[:]
        graph.initializer.extend(small)
    for index in reversed(range(len(graph.node))):
        held = constant_tensor(graph.node[index])
        name = graph.node[index].output[0] if held is not None else ""
        if held is not None and is_weight(held) and name not in keep:
            taken[name] = held
            del graph.node[index]
    listed = {value.name: value for value in graph.input}
    for name, tensor in taken.items():
        kind = TensorType(dtype=DTYPES[tensor.data_type], shape=tuple(tensor.dims))
        entry = listed.get(name) or graph.input.add(name=name)
        entry.type.CopyFrom(proto_of(kind))
    return {
        name: None if is_external(tensor) else array_of(tensor, name)
        for name, tensor in taken.items()
    }


def write_metadata(model: onnx.ModelProto, key: str, value: object) -> None:
    """Set one metadata entry; its value becomes JSON."""
    text = json.dumps(value)
    for entry in model.metadata_props:
        if entry.key == key:
            entry.value = text
            return
    model.metadata_props.add(key=key, value=text)


def symbols_of(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Names of the symbolic dimensions of the inputs, in order."""
    names = (
        dim.dim_param
        for value in graph.input
        for dim in value.type.tensor_type.shape.dim
        if dim.dim_param
    )
    return tuple(dict.fromkeys(names))


def plain(model: onnx.ModelProto) -> None:
    """Write sparse initializers out, and forget names that several nodes share.

    ONNX Runtime takes no two nodes of one name, which say nothing anyway.
    """
    graph = model.graph
    for sparse in graph.sparse_initializer:
        graph.initializer.append(dense_of(sparse, sparse.values.name))
    del graph.sparse_initializer[:]
    level = [graph]
    while level:
        for part in level:
            counts = Counter(node.name for node in part.node)
            for node in part.node:
                if counts[node.name] > 1:
                    node.name = ""
        level = [g for part in level for node in part.node for g in subgraphs(node)]


def bind(model: onnx.ModelProto, dims: Mapping[str, int]) -> None:
    """Give sizes to symbolic dimensions, in place.

    Raises:
        InvalidOption: the model has no such dimension, or the size is not positive.
    """
    known = symbols_of(model.graph)
    for name, size in dims.items():
        if name not in known:
            there = ", ".join(known) or "none"
            raise InvalidOption(
                f"dimension {name}",
                "the inputs of the model have no such dimension",
                hint=f"symbolic dimensions: {there}",
            )
        if not 1 <= size <= MOST:
            raise InvalidOption(
                f"dimension {name}",
                f"{size} is not a positive size" if size < 1 else "exceeds 64 bits",
                hint="give a whole number from 1",
            )
    if not dims:
        return
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
