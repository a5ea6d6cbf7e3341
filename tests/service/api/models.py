"""Small models in both forms."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto, helper


def graph_json(prefix: str = "", width: int = 64) -> dict[str, Any]:
    """The graph tanh(relu(x) + x): three steps that belong in one kernel."""

    def node(op: str, inputs: list[str], output: str) -> dict[str, Any]:
        return {
            "name": f"{prefix}{op.lower()}",
            "op": op,
            "domain": "",
            "inputs": inputs,
            "outputs": [output],
            "attributes": {},
        }

    x, r, s, y = (f"{prefix}{name}" for name in "xrsy")
    return {
        "schema": "fuseplan.graph/1",
        "opset": {"": 18},
        "inputs": [{"name": x, "dtype": "f32", "shape": [32, width]}],
        "weights": [],
        "constants": [],
        "nodes": [
            node("Relu", [x], r),
            node("Add", [r, x], s),
            node("Tanh", [s], y),
        ],
        "outputs": [y],
    }


def graph_onnx(prefix: str = "", width: int = 64) -> bytes:
    """The same model as an ONNX protobuf."""
    x, r, s, y = (f"{prefix}{name}" for name in "xrsy")
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Relu", [x], [r], name=f"{prefix}relu"),
            helper.make_node("Add", [r, x], [s], name=f"{prefix}add"),
            helper.make_node("Tanh", [s], [y], name=f"{prefix}tanh"),
        ],
        "small",
        [helper.make_tensor_value_info(x, kind, [32, width])],
        [helper.make_tensor_value_info(y, kind, [32, width])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data
