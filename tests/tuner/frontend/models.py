"""Small models for the tests of the front end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tuner.frontend.onnx import read_onnx
from tuner.frontend.protos import proto_of
from tuner.ir.graph import Graph, Node
from tuner.ir.interpreter import evaluate
from tuner.ir.types import Array

F32 = TensorProto.FLOAT
Shape = Sequence[int | str]


def value(name: str, shape: Shape, element: int = F32) -> onnx.ValueInfoProto:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, element, list(shape))


def node(op: str, inputs: str, outputs: str, /, **attributes: Any) -> onnx.NodeProto:
    """A node; names of tensors are separated by blanks, `-` is an absent one."""
    given = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, given, outputs.split(), **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: str | Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 20,
    metadata: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model; results given by name alone have no stated type."""
    stated = (
        [onnx.ValueInfoProto(name=name) for name in outputs.split()]
        if isinstance(outputs, str)
        else outputs
    )
    initializers = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in (constants or {}).items()
    ]
    graph = helper.make_graph(list(nodes), "g", list(inputs), stated, initializers)
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    )
    for key, entry in (metadata or {}).items():
        made.metadata_props.add(key=key, value=json.dumps(entry))
    return made


def read(made: onnx.ModelProto, **options: Any) -> Graph:
    """The graph of a model."""
    return read_onnx(made.SerializeToString(), **options).graph


def ops(graph: Graph) -> list[str]:
    """Operators of a graph, in order."""
    return [n.op for n in graph.nodes]


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Normal floats, small integers."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name in (*graph.inputs, *graph.weights):
        kind = graph.types[name]
        if kind.dtype.is_float:
            array: Any = rng.standard_normal(kind.static_shape)
        else:
            array = rng.integers(0, 2, kind.static_shape)
        feeds[name] = np.asarray(array, dtype=kind.dtype.numpy)
    return feeds


def session(data: bytes) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one thread, quiet."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"]
    )


def run_opaque(node_: Node, arrays: Sequence[Array], graph: Graph) -> list[Array]:
    """An opaque node in ONNX Runtime, from its normal form."""
    whole = onnx.GraphProto(name="g")
    whole.node.append(onnx.NodeProto.FromString(node_.attributes["proto"]))
    for k, name in enumerate(node_.inputs):
        whole.input.add(name=f"i{k}").type.CopyFrom(proto_of(graph.types[name]))
    for k, name in enumerate(node_.outputs):
        whole.output.add(name=f"o{k}").type.CopyFrom(proto_of(graph.types[name]))
    alone = onnx.ModelProto(ir_version=10, graph=whole)
    attributes: Mapping[str, Any] = node_.attributes
    alone.opset_import.add(domain=attributes["domain"], version=attributes["opset"])
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    results: list[Array] = session(alone.SerializeToString()).run(None, feeds)
    return results


def evaluate_whole(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The interpreter, with opaque nodes in ONNX Runtime."""
    return evaluate(graph, feeds, opaque=lambda n, arrays: run_opaque(n, arrays, graph))


def agree(made: onnx.ModelProto, *, tolerance: float = 1e-5, **options: Any) -> Graph:
    """Assert that the imported graph computes what ONNX Runtime computes."""
    graph = read(made, **options)
    feeds = random_feeds(graph)
    ours = evaluate_whole(graph, feeds)
    theirs = session(made.SerializeToString()).run(list(graph.outputs), feeds)
    for name, expected in zip(graph.outputs, theirs, strict=True):
        assert ours[name].dtype == expected.dtype, name
        np.testing.assert_allclose(
            ours[name], expected, rtol=tolerance, atol=tolerance, err_msg=name
        )
    return graph
