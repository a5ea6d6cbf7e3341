"""Library kernels: every operator's spelling, sessions, and the reference model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from tests.tuner.runtime.graphs import graph_of, matmul_add, tensor
from tuner.errors import InternalError, KernelFailed
from tuner.ir.graph import Graph, Node
from tuner.ir.interpreter import evaluate, load, to_bf16
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import Array, DType, TensorType
from tuner.model import load as load_model
from tuner.runtime.library import ReferenceModel, open_graph, run_opaque
from tuner.runtime.onnx_rows import ROWS
from tuner.runtime.onnx_writer import write_model

_WINDOW = {"strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 1)}
ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "transpose": {"perm": (1, 0)},
    "slice": {"starts": (3, 0), "steps": (-2, 1), "sizes": (2, 3)},
    "reshape": {"shape": (2, 6)},
    "expand": {"shape": (2, 4, 3)},
    "concat": {"axis": 1},
    "pad": {"before": (1, 0), "after": (0, 2), "value": 1},
    "gather": {"axis": 0},
    "cast": {"to": "f32"},
    **{
        f"reduce_{kind}": {"axes": (1,), "keepdims": 0}
        for kind in ("sum", "prod", "max", "min")
    },
    "conv": {**_WINDOW, "group": 1},
    "max_pool": {**_WINDOW, "kernel": (2, 2), "ceil": 1},
    "average_pool": {**_WINDOW, "kernel": (2, 2), "ceil": 1, "count_pads": 0},
}
SHAPES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "conv": ((1, 3, 8, 8), (4, 3, 3, 3), (4,)),
    "max_pool": ((1, 3, 7, 7),),
    "average_pool": ((1, 3, 7, 7),),
    "matmul": ((4, 3), (3, 5)),
    "gather": ((7, 3), (2, 2)),
    "concat": ((4, 3), (4, 2)),
}
WHOLE_ONLY = ("bit_", "shift_")
FLOAT_ONLY = frozenset(
    [
        "floor",
        "ceil",
        "rint",
        "sqrt",
        "reciprocal",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "sigmoid",
        "isnan",
        "isinf",
        "conv",
        "average_pool",
    ]
)
NOT_IN_ONNX = frozenset(
    (f"shift_{side}", kind)
    for side in ("left", "right")
    for kind in (DType.I8, DType.I32, DType.I64)
)
"""ONNX shifts unsigned numbers alone."""


def _makes_sense(op: str, dtype: DType) -> bool:
    if dtype is DType.BOOL:
        moves = OPS[op].pattern is Pattern.INJECTIVE
        return moves or op.startswith("logical_") or op in ("where", "cast", "equal")
    if dtype.is_float:
        return not op.startswith((*WHOLE_ONLY, "logical_"))
    unsigned_neg = op == "neg" and dtype is DType.U8
    return op not in FLOAT_ONLY and not op.startswith("logical_") and not unsigned_neg


def _dtypes(op: str, dtype: DType, count: int) -> tuple[DType, ...]:
    if op == "gather":
        return (dtype, DType.I64)
    if op == "where":
        return (DType.BOOL, dtype, dtype)
    return (dtype,) * count


def _cases() -> Iterator[tuple[str, DType]]:
    for op in ROWS:
        if op != "opaque":
            yield from ((op, dtype) for dtype in DType if _makes_sense(op, dtype))


def _graph(op: str, dtype: DType) -> Graph:
    shapes = SHAPES.get(op, ((4, 3),) * OPS[op].arity[0])
    dtypes = _dtypes(op, dtype, len(shapes))
    inputs = {
        f"i{k}": TensorType(dtype=kind, shape=shape)
        for k, (kind, shape) in enumerate(zip(dtypes, shapes, strict=True))
    }
    return graph_of([("o", op, list(inputs), ATTRIBUTES.get(op, {}))], inputs, ["o"])


def _array(random: np.random.Generator, kind: TensorType, low: float) -> Array:
    shape = kind.static_shape
    if kind.dtype is DType.BOOL:
        return random.random(shape) < 0.5
    if not kind.dtype.is_float:
        return random.integers(1, 5, shape).astype(kind.dtype.numpy)
    values = random.uniform(low, low + 0.6, shape).astype(np.float32)
    if kind.dtype is DType.BF16:
        return to_bf16(values)
    return values.astype(kind.dtype.numpy)


def _run(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    outputs = {
        name: np.empty(graph.types[name].static_shape, graph.types[name].dtype.numpy)
        for name in graph.outputs
    }
    fixed = {name: feeds[name] for name in graph.weights}
    session = open_graph(graph, fixed)
    session.bind({**feeds, **outputs}, graph.types)()
    return outputs


def test_every_operator_has_a_spelling() -> None:
    """The emission table has a row for each row of the operator table, and no more."""
    assert set(ROWS) == set(OPS)


@pytest.mark.parametrize("op", sorted(set(ROWS) - {"opaque"}))
def test_the_library_means_the_same(op: str) -> None:
    """Each operator, in each element type, agrees with its NumPy reference."""
    random = np.random.default_rng(0)
    for dtype in (kind for name, kind in _cases() if name == op):
        if (op, dtype) in NOT_IN_ONNX:
            continue
        graph = _graph(op, dtype)
        low = 1.1 if op == "acosh" else 0.3
        feeds = {n: _array(random, graph.types[n], low) for n in graph.inputs}
        kind = graph.types["o"].dtype
        ours = load(_run(graph, feeds)["o"], kind, "float64")
        truth = load(evaluate(graph, feeds)["o"], kind, "float64")
        coarse = dtype in (DType.F16, DType.BF16)
        np.testing.assert_allclose(
            ours, truth, rtol=2e-2 if coarse else 1e-5, atol=1e-6, err_msg=dtype
        )


def test_what_onnx_cannot_say_is_refused() -> None:
    """An operator without a spelling for its type is an error, not a wrong answer."""
    with pytest.raises(InternalError, match="no wider type"):
        write_model(_graph("shift_left", DType.I32), {})


def test_weights_are_used_where_they_lie() -> None:
    """Weights become initializers; large ones are not copied into the model."""
    graph = matmul_add()
    random = np.random.default_rng(1)
    feeds = {n: _array(random, graph.types[n], 0.3) for n in ("x", "w", "b")}
    model = write_model(graph, {"w": feeds["w"], "b": feeds["b"]})
    assert [item.name for item in model.graph.input] == ["x"]
    large = next(item for item in model.graph.initializer if item.name == "w")
    assert large.data_location == TensorProto.EXTERNAL
    truth = feeds["x"] @ feeds["w"] + feeds["b"]
    np.testing.assert_allclose(_run(graph, feeds)["o"], truth, rtol=1e-5)


def _opaque(proto: onnx.NodeProto, opset: int, outputs: int = 1) -> dict[str, Any]:
    del outputs
    return {
        "domain": proto.domain,
        "op_type": proto.op_type,
        "opset": opset,
        "proto": proto.SerializeToString(),
    }


def test_opaque_nodes_run_as_they_were() -> None:
    """A node that we do not know keeps its attributes, holes and outputs."""
    proto = helper.make_node("TopK", ["i0", "i1"], ["o0", "o1"], axis=0, largest=0)
    node = Node(
        name="top",
        op="opaque",
        inputs=("x", "k"),
        outputs=("values", "places"),
        attributes=_opaque(proto, 11),
    )
    graph = Graph(
        nodes=(node,),
        inputs=("x", "k"),
        outputs=("values", "places"),
        types={
            "x": tensor(5),
            "k": tensor(1, dtype=DType.I64),
            "values": tensor(2),
            "places": tensor(2, dtype=DType.I64),
        },
    )
    x = np.array([3, 1, 2, 9, 0], np.float32)
    values, places = run_opaque(node, graph, [x, np.array([2])])
    assert values.tolist() == [0, 1]
    assert places.tolist() == [4, 1]


def test_old_operators_keep_their_old_meaning() -> None:
    """An opaque node runs in the opset that it was written for."""
    proto = helper.make_node("Softmax", ["i0"], ["o0"], axis=1)
    node = Node(
        name="soft",
        op="opaque",
        inputs=("x",),
        outputs=("y",),
        attributes=_opaque(proto, 11),
    )
    graph = Graph(
        nodes=(node,),
        inputs=("x",),
        outputs=("y",),
        types={"x": tensor(2, 3, 4), "y": tensor(2, 3, 4)},
    )
    x = np.zeros((2, 3, 4), np.float32)
    (y,) = run_opaque(node, graph, [x])
    np.testing.assert_allclose(y, 1 / 12)  # before opset 13 it flattened 3 x 4


def test_control_flow_sees_what_it_captured() -> None:
    """Subgraphs read the tensors around them under the names of this graph."""
    text = "<ir_version: 10, opset_import: ['':21]> g (float[2] i1, bool i0) => (float[2] o0) {o0 = If (i0) <then_branch = t () => (float[2] v0) {v0 = Neg(i1)}, else_branch = e () => (float[2] v1) {v1 = Abs(i1)}>}"  # noqa: E501
    proto = parser.parse_model(text.replace("'", '"')).graph.node[0]
    node = Node(
        name="if",
        op="opaque",
        inputs=("c", "x"),
        outputs=("y",),
        attributes=_opaque(proto, 21),
    )
    graph = Graph(
        nodes=(node,),
        inputs=("c", "x"),
        outputs=("y",),
        types={"c": tensor(dtype=DType.BOOL), "x": tensor(2), "y": tensor(2)},
    )
    x = np.array([1, -2], np.float32)
    (y,) = run_opaque(node, graph, [np.array(True), x])
    assert y.tolist() == [-1, 2]
    (y,) = run_opaque(node, graph, [np.array(False), x])
    assert y.tolist() == [1, 2]


def test_a_graph_that_the_library_refuses_is_a_kernel_failure() -> None:
    """An unknown operator is reported with the library's words."""
    proto = helper.make_node("NoSuchThing", ["i0"], ["o0"])
    node = Node(
        name="bad",
        op="opaque",
        inputs=("x",),
        outputs=("y",),
        attributes=_opaque(proto, 21),
    )
    graph = Graph(
        nodes=(node,),
        inputs=("x",),
        outputs=("y",),
        types={"x": tensor(2), "y": tensor(2)},
    )
    with pytest.raises(KernelFailed, match="NoSuchThing"):
        open_graph(graph)


def _light_model() -> bytes:
    text = """<ir_version: 10, opset_import: ["":21]>
    g (float[8,32] x, float[32,16] w, float[16] b) => (float[8,16] o, bfloat16[8,16] p)
    { h = MatMul(x, w)  o = Add(h, b)  p = Cast<to=16>(o) }"""
    return bytes(parser.parse_model(text).SerializeToString())


def test_the_reference_model_takes_weights_as_weights() -> None:
    """A light model gives the same numbers as one with its weights inside."""
    random = np.random.default_rng(2)
    graph = matmul_add()
    feeds = {n: _array(random, graph.types[n], 0.3) for n in ("x", "w", "b")}
    weights = {"w": feeds["w"], "b": feeds["b"]}
    model = ReferenceModel(_light_model(), weights)
    found = model.run({"x": feeds["x"]})
    truth = feeds["x"] @ feeds["w"] + feeds["b"]
    np.testing.assert_allclose(found["o"], truth, rtol=1e-5)
    assert found["p"].dtype == np.uint16
    np.testing.assert_array_equal(found["p"], to_bf16(found["o"]))
    model.launch({"x": feeds["x"]})()


@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 2)])
def test_shapes_stay_as_they_are(shape: tuple[int, ...]) -> None:
    """A tensor without axes has none in the library either; nor one without elements.

    Inputs, weights, opaque nodes and arrays that lie in steps are meant.
    """
    sizes = ",".join(map(str, shape))
    kind = f"float[{sizes}]" if shape else "float"
    text = f"""<ir_version: 10, opset_import: ["":21]>
    g ({kind} x, {kind} w) => ({kind} y) {{ y = Add(x, w) }}"""
    data = parser.parse_model(text).SerializeToString()
    array = np.ones((*shape, 2), np.float32)[..., 0]
    for weights in ({}, {"w": array}):
        model = ReferenceModel(data, weights)
        found = model.run({"x": array, "w": array})["y"]
        assert found.shape == shape
        np.testing.assert_array_equal(found, array * 2)
        model.launch({"x": array, "w": array})()
    proto = onnx.NodeProto(op_type="Neg", input=["i0"], output=["o0"])
    node = Node(
        name="n",
        op="opaque",
        inputs=("x",),
        outputs=("y",),
        attributes=_opaque(proto, 21),
    )
    types = {"x": tensor(*shape), "y": tensor(*shape)}
    graph = Graph(nodes=(node,), inputs=("x",), outputs=("y",), types=types)
    (negative,) = run_opaque(node, graph, [array])
    assert negative.shape == shape
    np.testing.assert_array_equal(negative, -array)


_MANY_SESSIONS = """
import sys
from pathlib import Path
from tests.tuner.runtime.graphs import matmul_add
from tuner.runtime.library import SessionOptions, open_graph, share_threads

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

if sys.argv[1] == "shared":
    share_threads()
options = SessionOptions(threads=2, spinning=sys.argv[2] == "True")
kept = [open_graph(matmul_add(), options=options)]
before = threads()
kept += [open_graph(matmul_add(), options=options) for _ in range(5)]
print(threads() - before)
"""


@pytest.mark.parametrize(
    ("mode", "spinning", "more"),
    [("shared", False, 0), ("shared", True, 0), ("own", False, 5)],
)
def test_sessions_share_threads_where_the_process_is_ours(
    mode: str, more: int, *, spinning: bool
) -> None:
    """Many library calls leave no pool for each of them, even if threads stay awake."""
    command = [sys.executable, "-c", _MANY_SESSIONS, mode, str(spinning)]
    root = Path(__file__).parents[3]
    told = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True, timeout=300
    )
    assert int(told.stdout) == more


_SPINNING = """
import sys
from tests.tuner.runtime.graphs import matmul_add
from tuner.runtime.library import ReferenceModel, SessionOptions, open_graph
from tuner.runtime.library import share_threads
from tuner.runtime.onnx_writer import write_model

share_threads() if sys.argv[1] != "own" else None
options = SessionOptions(threads=2, spinning=sys.argv[2] == "True")
if sys.argv[1] == "reference":
    model = write_model(matmul_add(), {}).SerializeToString()
    kept = ReferenceModel(model, options=options)._session
else:
    kept = open_graph(matmul_add(), options=options)
settings = kept.session.get_session_options()
for name in ("session.force_spinning_stop", "session.intra_op.allow_spinning"):
    try:
        print(settings.get_session_config_entry(name))
    except RuntimeError:
        print("unset")
"""


@pytest.mark.parametrize(
    ("mode", "spinning", "told"),
    [
        ("shared", False, ["1", "unset"]),
        ("shared", True, ["unset", "unset"]),
        ("reference", False, ["1", "unset"]),
        ("reference", True, ["unset", "1"]),
        ("own", False, ["unset", "0"]),
        ("own", True, ["unset", "1"]),
    ],
)
def test_threads_stay_awake_between_calls_only_where_asked(
    mode: str, told: list[str], *, spinning: bool
) -> None:
    """The pool stops with each call, but for who computes alone.

    The user's own model, timed alone, has threads of its own.
    """
    command = [sys.executable, "-c", _SPINNING, mode, str(spinning)]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == told


def test_a_view_stands_beside_an_operator_of_an_old_opset() -> None:
    """Before opset 14 a reshape has no word on zeros, and needs none."""
    text = """<ir_version: 6, opset_import: ["": 11]>
    g (float[3,4] x) => (float[12] y) <int64 axis = {1}, int64[1] s = {12}> {
        a = CumSum(x, axis)
        y = Reshape(a, s) }"""
    graph = load_model(parser.parse_model(text).SerializeToString()).graph
    x: Any = np.arange(12, dtype=np.float32).reshape(3, 4)
    ((name,), (made,)) = graph.inputs, graph.outputs
    y = np.empty(12, np.float32)
    open_graph(graph).bind({name: x, made: y}, graph.types)()
    np.testing.assert_array_equal(y, np.cumsum(x, axis=1).reshape(12))


def test_a_product_with_packed_weights_is_not_rounded_to_bytes() -> None:
    """What a plan is compared with is as exact as the element types say."""
    rng = np.random.default_rng(0)
    packed: Any = rng.integers(-8, 8, (32, 8))
    scales: Any = rng.random((2, 8), np.float32)
    x: Any = rng.standard_normal((2, 32), np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 32]), ("y", [2, 8]))
    ]
    constants = [
        helper.make_tensor("w", TensorProto.INT4, [32, 8], packed.reshape(-1)),
        helper.make_tensor("s", TensorProto.FLOAT, [2, 8], scales.reshape(-1)),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 21)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    y = ReferenceModel(made.SerializeToString()).run({"x": x})["y"]
    wanted = x.astype(np.float64) @ (packed * scales.repeat(16, 0))
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
