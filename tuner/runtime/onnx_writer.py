"""Small graphs written as ONNX models, for ONNX Runtime to run.

Primitives are written one by one (`onnx_rows`), and groups of them that are one
operator of the runtime as that (`onnx_patterns`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import (
    ModelProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from tuner.ir.graph import Graph
from tuner.ir.types import Array, DType, TensorType
from tuner.runtime.onnx_calls import Extents, Filled, Made, Operand, Shaped, Spelling
from tuner.runtime.onnx_patterns import differs, meaning, spellings
from tuner.runtime.onnx_rows import ELEMENT, Writer, write_node

WRITING_REVISION: Final = 2
"""Grows whenever an unchanged graph is written as other operators: times of library
calls are times of a writing."""
OPSET: Final = 21
_IR_VERSION: Final = 10
EXTERNAL_BYTES: Final = 1024
"""Initializers above this size are handed over by address, not inside the model."""


def _write_group(writer: Writer, spelling: Spelling) -> None:
    """Operators of f32 in place of a group."""
    made: list[str] = []
    for call in spelling.calls:
        inputs = [_operand(writer, given, made) for given in call.inputs]
        outputs = [name or writer.fresh() + "g" for name in call.results]
        writer.nodes.append(
            helper.make_node(
                call.op_type, inputs, outputs, domain=call.domain, **call.attributes
            )
        )
        made.append(outputs[0])


def _operand(writer: Writer, given: Operand, made: Sequence[str]) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, Made):
        return made[given.call]
    if isinstance(given, Shaped):
        return _shaped(writer, given)
    return "" if given is None else _literal(writer, given)


def _shaped(writer: Writer, given: Shaped) -> str:
    if writer.graph.types[given.tensor].shape == given.shape:
        return given.tensor
    return writer.add("Reshape", [given.tensor, writer.constant(given.shape)])


def _literal(writer: Writer, given: float | Filled | Extents) -> str:
    if isinstance(given, Filled):
        return writer.vector(given.count, given.value)
    if isinstance(given, Extents):
        return writer.constant(given.values)
    return writer.scalar(given, DType.F32)


def _value_info(name: str, kind: TensorType) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, ELEMENT[kind.dtype], list(kind.shape))


def tensor(name: str, array: Array, kind: TensorType) -> TensorProto:
    """An initializer with its bytes inside the model."""
    return helper.make_tensor(
        name,
        ELEMENT[kind.dtype],
        list(kind.static_shape),
        np.asarray(array, order="C").tobytes(),
        raw=True,
    )


def external(name: str, kind: TensorType) -> TensorProto:
    """An initializer whose bytes the session is given by address."""
    proto = TensorProto(name=name, data_type=ELEMENT[kind.dtype])
    proto.dims.extend(kind.static_shape)
    proto.data_location = TensorProto.EXTERNAL
    for key, value in (("location", name), ("length", str(kind.bytes))):
        proto.external_data.add(key=key, value=value)
    return proto


def is_external(kind: TensorType) -> bool:
    """Whether an initializer of this type is handed over by address."""
    return kind.bytes > EXTERNAL_BYTES


def write_model(graph: Graph, fixed: Mapping[str, Array]) -> ModelProto:
    """Write a graph as an ONNX model.

    Args:
        graph: any graph of primitive and opaque nodes with static shapes.
        fixed: values of some inputs and weights; they become initializers, the
            larger ones without their bytes (see `is_external`).
    """
    writer = Writer(graph)
    groups = spellings(graph)
    unwritten = {
        name
        for group in groups.values()
        for name in group.nodes
        if graph.by_name[name].outputs[0] not in group.results
    }
    for name in _in_order(graph, groups):
        if name in groups:
            _write_group(writer, groups[name])
        else:
            write_node(writer, graph.by_name[name])
    values = {**graph.constants, **fixed}
    initializers = [
        external(name, graph.types[name])
        if is_external(graph.types[name])
        else tensor(name, array, graph.types[name])
        for name, array in values.items()
        if name in graph.types
    ]
    proto = helper.make_graph(
        writer.nodes,
        "kernel",
        _infos(graph, (n for n in (*graph.inputs, *graph.weights) if n not in values)),
        _infos(graph, graph.outputs),
        initializer=[*initializers, *writer.constants],
        value_info=_infos(graph, _inner(graph, unwritten)),
    )
    return helper.make_model(
        proto, opset_imports=_opsets(graph, groups.values()), ir_version=_IR_VERSION
    )


def _in_order(graph: Graph, groups: Mapping[str, Spelling]) -> Iterator[str]:
    """Nodes and groups, by their last node, each behind all that it reads.

    A group of several results may be read before the place of its last node.
    """
    heads = {name: last for last, group in groups.items() for name in group.nodes}
    written: set[str] = set()
    for node in graph.nodes:
        waiting = [heads.get(node.name, node.name)]
        if waiting[0] != node.name:
            continue
        while waiting:
            name = waiting[-1]
            members = groups[name].nodes if name in groups else (name,)
            reads = (operand for m in members for operand in graph.by_name[m].inputs)
            makers = (graph.producer(operand) for operand in reads)
            before = {heads.get(n.name, n.name) for n in makers if n is not None}
            missing = sorted(before - written - {name})
            waiting.extend(missing)
            if missing:
                continue
            waiting.pop()
            if name not in written:
                written.add(name)
                yield name


def _opsets(graph: Graph, groups: Iterable[Spelling]) -> list[Any]:
    """Ours, unless an opaque node means something else in it."""
    calls = [call for group in groups for call in group.calls]
    needed = max((call.since for call in calls), default=OPSET)
    versions = {"": max(OPSET, needed), **{c.domain: 1 for c in calls if c.domain}}
    for node in graph.nodes:
        if node.op != "opaque":
            continue
        domain, opset = meaning(node)
        if domain:
            versions[domain] = max(opset, versions.get(domain, 1))
        elif differs(node, versions[""]):
            versions[""] = opset
    return [helper.make_opsetid(domain, v) for domain, v in versions.items()]


def _inner(graph: Graph, unwritten: Collection[str]) -> Collection[str]:
    delivered = set(graph.outputs)
    written = (node for node in graph.nodes if node.name not in unwritten)
    made = (out for node in written for out in node.outputs)
    return [name for name in made if name not in delivered]


def _infos(graph: Graph, names: Iterable[str]) -> list[ValueInfoProto]:
    return [_value_info(name, graph.types[name]) for name in names]
