"""Nodes that only a library can run: normal form and output types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import onnx
from onnx import AttributeProto, checker, shape_inference

from tuner.errors import InvalidModel, UnsupportedModel
from tuner.frontend.builder import Builder, Ref
from tuner.frontend.call import Call
from tuner.frontend.contrib import first_type
from tuner.frontend.loops import loop_types
from tuner.frontend.protos import dims_of, dtype_of, proto_of, tensor_of
from tuner.frontend.schemas import signature
from tuner.ir.graph import Node
from tuner.ir.types import Dim, TensorType

FindType = Callable[[int], "onnx.TypeProto | None"]
"""What the model itself says of the type of an output, by position."""

_DATA_BYTES = 1 << 16
_WORDS: Final = frozenset(
    [
        "denotation",
        "device_configurations",
        "dim_param",
        "doc_string",
        "metadata_props",
    ]
)
"""Fields that say nothing of what a node computes."""
_RANDOM: Final = frozenset(
    [
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ]
)
"""Operators with random results; of Dropout only what may train."""


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def random_operator(node: Node) -> str:
    """The operator, when the results of an opaque node are random; else nothing."""
    proto = node.attributes.get("proto")
    if not isinstance(proto, bytes):
        return ""
    return _random(onnx.NodeProto.FromString(proto))


def _random(proto: onnx.NodeProto) -> str:
    trains = proto.op_type != "Dropout" or any(proto.input[2:])
    if not proto.domain and proto.op_type in _RANDOM and trains:
        return str(proto.op_type)
    inner = (node for graph in subgraphs(proto) for node in graph.node)
    return next(filter(None, map(_random, inner)), "")


def captures(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that the subgraphs of a node read from around it."""
    found: dict[str, None] = {}
    for graph in subgraphs(node):
        found.update(dict.fromkeys(_free_names(graph)))
    return tuple(found)


def _free_names(graph: onnx.GraphProto) -> Iterator[str]:
    bound = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    for node in graph.node:
        for name in (*node.input, *captures(node)):
            if name and name not in bound:
                yield name
        bound.update(node.output)
    yield from (v.name for v in graph.output if v.name not in bound)


def normal_form(
    call: Call, captured: Sequence[str] = ()
) -> dict[str, str | int | bytes]:
    """Attributes of an opaque node: the node without the user's names.

    In the stored node input number k of the primitive is called ``ik``, output
    number k ``ok``; an absent one is empty. Tensors that subgraphs read from around
    the node follow the node's own inputs.
    """
    proto = onnx.NodeProto(op_type=call.op, domain=call.domain)
    count = 0
    for ref in call.inputs:
        proto.input.append("" if ref is None else f"i{count}")
        count += ref is not None
    outer = {name: f"i{count + k}" for k, name in enumerate(captured)}
    count = 0
    for asked in call.outputs:
        proto.output.append(f"o{count}" if asked else "")
        count += asked
    for attribute in sorted(call.proto.attribute, key=lambda a: a.name):
        entry = proto.attribute.add()
        entry.CopyFrom(attribute)
    _silence(proto)
    inner = iter(range(1 << 62))
    for graph in subgraphs(proto):
        _rename(graph, outer, inner)
    return {
        "domain": call.domain,
        "op_type": call.op,
        "opset": call.opset,
        "proto": proto.SerializeToString(deterministic=True),
    }


def _rename(
    graph: onnx.GraphProto, outer: Mapping[str, str], numbers: Iterator[int]
) -> None:
    names = dict(outer)
    graph.name = "g"
    del graph.value_info[:]
    del graph.quantization_annotation[:]

    def define(name: str) -> str:
        names[name] = f"v{next(numbers)}"
        return names[name]

    given = [value.name for value in graph.input]
    for value in graph.input:
        value.name = define(value.name)
    for tensor in (*graph.initializer, *(t.values for t in graph.sparse_initializer)):
        known = tensor.name in given
        tensor.name = names[tensor.name] if known else define(tensor.name)
    for node in graph.node:
        node.name = ""
        node.attribute.sort(key=lambda a: str(a.name))
        renamed = [names.get(name, name) for name in node.input]
        del node.input[:]
        node.input.extend(renamed)
        for part in subgraphs(node):
            _rename(part, names, numbers)
        made = [define(name) if name else "" for name in node.output]
        del node.output[:]
        node.output.extend(made)
    for value in graph.output:
        value.name = names.get(value.name, value.name)


def _silence(message: Any) -> None:
    """Drop what is said for people alone, at any depth.

    That is documentation, denotations, metadata, names of dimensions, and names of
    tensors that are values of attributes. Names that bind something stay.
    """
    for field, value in message.ListFields():
        if field.name in _WORDS:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                _silence(part)
    if isinstance(message, AttributeProto):
        _unname(message)


def _unname(attribute: AttributeProto) -> None:
    tensors = list(attribute.tensors)
    sparse = list(attribute.sparse_tensors)
    tensors += [attribute.t] if attribute.HasField("t") else []
    sparse += [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for tensor in (*tensors, *(t.values for t in sparse), *(t.indices for t in sparse)):
        tensor.ClearField("name")


def output_types(
    b: Builder, call: Call, captured: Mapping[str, Ref], find: FindType
) -> list[TensorType | None]:
    """Types of the outputs; None for one that is not asked for.

    Args:
        b: knows the types and values of the inputs.
        call: the node.
        captured: what its subgraphs read from around it.
        find: types that the model states or that inference over the whole model finds.

    Raises:
        UnsupportedModel: a type is not known.
    """
    nested = any(True for _ in subgraphs(call.proto))
    inferred = loop_types(b, call, captured) if nested else _infer(b, call)
    kinds: list[TensorType | None] = []
    for position, asked in enumerate(call.outputs):
        if not asked:
            kinds.append(None)
            continue
        name = f"o{position}"
        candidates = [inferred.get(name)]
        if not _is_complete(candidates[0]):
            candidates.append(find(position))
        told = None if position else first_type(b, call)
        if told is not None:
            candidates.append(proto_of(told))
        kinds.append(_merge(b, call, position, candidates))
    return kinds


def _is_complete(kind: onnx.TypeProto | None) -> bool:
    if kind is None or not kind.HasField("tensor_type"):
        return False
    tensor = kind.tensor_type
    return tensor.HasField("shape") and None not in dims_of(tensor)


def _infer(b: Builder, call: Call) -> Mapping[str, onnx.TypeProto]:
    """Types by the standard's own inference of this one node."""
    known = signature(call.op, call.domain, call.opset)
    if known is None:
        return {}
    node = onnx.NodeProto(op_type=call.op, domain=call.domain)
    node.attribute.extend(call.proto.attribute)
    stated = {attribute.name for attribute in node.attribute}
    node.attribute.extend(a for n, a in known.defaults.items() if n not in stated)
    node.output.extend(f"o{k}" if asked else "" for k, asked in enumerate(call.outputs))
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for position, ref in enumerate(call.inputs):
        name = "" if ref is None else f"i{position}"
        node.input.append(name)
        if ref is None:
            continue
        types[name] = proto_of(b.types[ref])
        value = b.values[ref]
        if value is not None and value.nbytes <= _DATA_BYTES:
            data[name] = tensor_of(value, b.dtype(ref), name)
    opsets = [onnx.helper.make_opsetid(call.domain, call.opset)]
    try:
        return shape_inference.infer_node_outputs(
            known.schema, node, types, data, opset_imports=opsets
        )
    except (shape_inference.InferenceError, checker.ValidationError) as error:
        raise InvalidModel(b.where, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _merge(
    b: Builder,
    call: Call,
    position: int,
    candidates: Sequence[onnx.TypeProto | None],
) -> TensorType:
    """The first stated element type, and the most that is stated of each extent."""
    where = f"{b.where}, output {position}" if position else b.where
    stated = [k for k in candidates if k is not None and k.WhichOneof("value")]
    tensors = [k.tensor_type for k in stated if k.HasField("tensor_type")]
    result = call.proto.output[position] if call.proto.output else where
    if stated and not tensors:
        what = str(stated[0].WhichOneof("value")).removesuffix("_type")
        raise UnsupportedModel(
            where,
            f"gives {result!r}, which is no tensor but: {what}",
            hint="let the model deliver the tensors from which it is made, and make "
            "it outside of the model",
        )
    shaped = [dims_of(tensor) for tensor in tensors if tensor.HasField("shape")]
    element = next((t.elem_type for t in tensors if t.elem_type), 0)
    if not element or not shaped:
        what = "element type" if not element else "shape"
        raise UnsupportedModel(
            where,
            f"the {what} of the result {result!r} of "
            f"{call.domain or 'ai.onnx'}.{call.op} is not known",
            hint="state it as value_info of the tensor in the model, or say what the"
            " operator computes in a rule file (docs/rules.md)",
        )
    rank = len(shaped[0])
    fitting = [dims for dims in shaped if len(dims) == rank]
    shape: list[Dim] = []
    for axis in range(rank):
        known: Any = next((d[axis] for d in fitting if d[axis] is not None), None)
        fresh = f"{b.where}.{position}.{axis}"
        shape.append(fresh if known is None else known)
    return TensorType(dtype=dtype_of(element, where), shape=tuple(shape))


def as_opaque(
    b: Builder,
    call: Call,
    captured: Mapping[str, Ref],
    find: FindType,
) -> list[Ref | None]:
    """Add the node as one opaque primitive."""
    kinds = output_types(b, call, captured, find)
    refs = b.opaque(
        (*call.given(), *captured.values()),
        [kind for kind in kinds if kind is not None],
        normal_form(call, tuple(captured)),
    )
    rest = iter(refs)
    return [None if kind is None else next(rest) for kind in kinds]
