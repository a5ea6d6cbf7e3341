"""A small model with layers that repeat, and a runner with made-up times."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from onnx import TensorProto, helper

from tuner.model import Model, load
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest


def small_model() -> bytes:
    """Two equal layers: product, bias, activation, residual, normalisation."""
    nodes, weights = [], []
    x = "x"
    for layer in range(2):
        names = [f"w{layer}", f"b{layer}", f"s{layer}", f"t{layer}"]
        shapes = [[96, 96], [96], [96], [96]]
        weights += [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
            for n, s in zip(names, shapes, strict=True)
        ]
        n = f"l{layer}"
        nodes += [
            helper.make_node("MatMul", [x, names[0]], [f"{n}m"], name=f"{n}.matmul"),
            helper.make_node("Add", [f"{n}m", names[1]], [f"{n}a"], name=f"{n}.bias"),
            helper.make_node("Tanh", [f"{n}a"], [f"{n}h"], name=f"{n}.tanh"),
            helper.make_node("Add", [f"{n}h", x], [f"{n}r"], name=f"{n}.residual"),
            helper.make_node(
                "LayerNormalization",
                [f"{n}r", names[2], names[3]],
                [f"{n}o"],
                name=f"{n}.norm",
            ),
        ]
        x = f"{n}o"
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 96]), *weights],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [32, 96])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    model.metadata_props.add(
        key="weights", value='["' + '","'.join(w.name for w in weights) + '"]'
    )
    return model.SerializeToString()


@pytest.fixture(scope="session")
def model() -> Model:
    """The small model, loaded."""
    return load(small_model())


def made_up_seconds(request: MeasureRequest) -> float:
    """A time that depends on the kernel's text alone: 10 to 100 microseconds."""
    text = request.source.text if request.source else repr(request.graph.nodes)
    digest = hashlib.sha256(text.encode()).digest()
    return 1e-5 + digest[0] / 255 * 9e-5


@pytest.fixture
def runner() -> NullRunner:
    """Answers with made-up times."""
    return NullRunner(made_up_seconds)


@pytest.fixture
def runner_with() -> Callable[[Callable[[MeasureRequest], float]], NullRunner]:
    """Answers with the times of a function."""
    return NullRunner
