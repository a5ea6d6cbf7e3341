"""Nodes that only a library can run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.tuner.frontend.models import F32, agree, model, node, read, value
from tuner.errors import UnsupportedModel
from tuner.frontend.opaque import captures
from tuner.frontend.strip import strip
from tuner.ir.types import DType
from tuner.model import load


def test_an_operator_without_a_rule_is_opaque_and_typed() -> None:
    """Its result has the type that the standard's inference finds."""
    made = model(
        [
            node("Exp", "x", "a"),
            node("CumSum", "a k", "b"),
            node("TopK", "b n", "v i", axis=1),
        ],
        [value("x", [3, 5])],
        [value("v", [3, 2]), value("i", [3, 2], TensorProto.INT64)],
        {"k": np.array(1, np.int64), "n": np.array([2], np.int64)},
    )
    graph = agree(made)
    assert [n.op for n in graph.nodes] == ["exp", "opaque", "opaque"]
    assert graph.types["i"].dtype is DType.I64
    assert graph.types["i"].shape == (3, 2)


def test_the_normal_form_has_no_names() -> None:
    """Two nodes that differ in names alone are equal; holes stay holes."""
    forms = []
    for name in ("left", "right"):
        made = model(
            [
                node(
                    "Resize",
                    f"{name} - s",
                    f"{name}_y",
                    mode="linear",
                    antialias=1,
                    name=name,
                )
            ],
            [value(name, [1, 1, 2, 2])],
            f"{name}_y",
            {"s": np.array([1, 1, 1.5, 1.5], np.float32)},
        )
        (found,) = read(made).nodes
        forms.append(found.attributes["proto"])
    assert forms[0] == forms[1]
    assert list(onnx.NodeProto.FromString(forms[0]).input) == ["i0", "", "i1"]


def _branch(name: str, op: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, "outer", name)], name, [], [value(name, [4])])


def test_control_flow_keeps_its_subgraphs_and_reads_what_they_capture() -> None:
    """A captured tensor is an input of the opaque node."""
    made = model(
        [
            node("Neg", "x", "outer"),
            node(
                "If",
                "c",
                "y",
                name="choice",
                then_branch=_branch("then", "Exp"),
                else_branch=_branch("else", "Abs"),
            ),
        ],
        [value("x", [4]), value("c", [], TensorProto.BOOL)],
        [value("y", [4])],
    )
    graph = agree(made)
    choice = graph.by_name["choice"]
    assert choice.op == "opaque"
    assert choice.inputs == ("c", "outer")


def test_a_loop_runs_opaque() -> None:
    """Trip count, condition and carried values are inputs like any other."""
    body = helper.make_graph(
        [node("Add", "carried step", "next"), node("Identity", "go", "go_on")],
        "body",
        [
            value("i", [], TensorProto.INT64),
            value("go", [], TensorProto.BOOL),
            value("carried", [3]),
        ],
        [value("go_on", [], TensorProto.BOOL), value("next", [3])],
    )
    made = model(
        [
            node("Exp", "x", "step"),
            node("Loop", "n t step", "y", name="loop", body=body),
        ],
        [value("x", [3])],
        [value("y", [3])],
        {"n": np.array(3, np.int64), "t": np.array(True)},
    )
    graph = agree(made)
    assert graph.by_name["loop"].inputs[-1] == "step"
    assert captures(made.graph.node[1]) == ("step",)


def test_an_operator_of_a_foreign_domain_takes_its_type_from_the_model() -> None:
    """Whoever exports it states it as value_info."""
    made = model([], [value("x", [2, 3])], "y")
    made.opset_import.append(helper.make_opsetid("mine", 1))
    made.graph.node.extend(
        [
            helper.make_node("Odd", ["x"], ["h"], "odd", domain="mine", level=3),
            node("Exp", "h", "y"),
        ]
    )
    made.graph.value_info.append(value("h", [2, 7], F32))
    graph = read(made)
    assert graph.types["y"].shape == (2, 7)
    assert graph.by_name["odd"].attributes["domain"] == "mine"


def test_extents_that_depend_on_data_get_a_name() -> None:
    """The number of non-zero elements is known at run time only."""
    made = model(
        [node("NonZero", "x", "y", name="nz")],
        [value("x", [4])],
        "y",
    )
    (rows, count) = read(made).types["y"].shape
    assert rows == 1
    assert isinstance(count, str)


def _talkative() -> onnx.ModelProto:
    """Control flow in control flow, with every kind of word in it."""
    inner = {
        f"{name}_branch": helper.make_graph(
            [node(op, "bent", name)], name, [], [value(name, ["batch"])]
        )
        for name, op in (("then", "Exp"), ("else", "Abs"))
    }
    branches = {
        "then_branch": helper.make_graph(
            [
                node("Constant", "", "two", value=numpy_helper.from_array(TWO, "II")),
                node("Add", "outer two", "bent"),
                node("If", "c", "deep", name="deeper", **inner),
                node("LeakyRelu", "deep", "soft", alpha=0.5, name="softer"),
            ],
            "long",
            [],
            [value("soft", ["batch"])],
        ),
        "else_branch": helper.make_graph(
            [node("Mul", "outer half", "low")],
            "short",
            [],
            [value("low", ["batch"])],
            [numpy_helper.from_array(np.array([0.5], np.float32), "half")],
        ),
    }
    made = model(
        [
            node("Neg", "x", "outer"),
            node("If", "c", "y", name="choice", **branches),
        ],
        [value("x", ["batch"]), value("c", [], TensorProto.BOOL)],
        [value("y", ["batch"])],
        metadata={"dim_defaults": {"batch": 4}},
    )
    for part in made.graph.node[1].attribute:
        part.doc_string = "why"
        part.g.doc_string = "a branch"
        part.g.metadata_props.add(key="author", value="somebody")
        part.g.quantization_annotation.add(tensor_name="outer")
        for each in part.g.node:
            each.doc_string = "a node"
            each.metadata_props.add(key="namespace", value="layer.0")
            each.device_configurations.add(configuration_id="many")
            for attribute in each.attribute:
                attribute.doc_string = "an attribute"
        for tensor in part.g.initializer:
            tensor.doc_string = "a half"
            tensor.metadata_props.add(key="unit", value="m")
        for output in part.g.output:
            output.doc_string = "a result"
            output.type.denotation = "IMAGE"
            output.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
            output.metadata_props.add(key="unit", value="m")
    return made


TWO = np.array([2], np.float32)


def test_an_anonymous_model_with_control_flow_is_the_same_model() -> None:
    """No word or name within subgraphs has a part in the normal form."""
    data = _talkative().SerializeToString()
    keys = {
        load(part).fingerprint
        for part in (data, strip(data), strip(data, anonymous=True))
    }
    assert len(keys) == 1
    (proto,) = (
        n.attributes["proto"] for n in load(data).graph.nodes if n.op == "opaque"
    )
    assert isinstance(proto, bytes)
    words = (
        b"batch",
        b"II",
        b"half",
        b"layer.0",
        b"IMAGE",
        b"choice",
        b"soft",
        b"many",
    )
    assert not [word for word in words if word in proto]
    other = _talkative()
    other.graph.node[1].attribute[0].g.initializer[0].raw_data = TWO.tobytes()
    assert load(other.SerializeToString()).fingerprint not in keys


def test_control_flow_without_words_still_runs() -> None:
    """What the normal form drops is nothing that the library needs."""
    agree(_talkative(), dims={"batch": 4})


def _loop(result: str, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Three rounds that carry `a` and `b`, of which the first result is used."""
    body = helper.make_graph(
        [node("Identity", "go", "go_on"), *nodes],
        "body",
        [
            value("i", [], TensorProto.INT64),
            value("go", [], TensorProto.BOOL),
            onnx.ValueInfoProto(name="a"),
            onnx.ValueInfoProto(name="b"),
        ],
        [
            value("go_on", [], TensorProto.BOOL),
            *(onnx.ValueInfoProto(name=name) for name in ("a2", "b2", "row")),
        ],
    )
    return model(
        [
            node("Exp", "x", "step"),
            node("Loop", "n t x step", "p q r", name="loop", body=body),
            node("Neg", result, "y"),
        ],
        [value("x", [3, 4])],
        "y",
        {"n": np.array(3, np.int64), "t": np.array(True)},
    )


SAME = [
    node("Add", "a step", "a2"),
    node("Mul", "b a", "b2"),
    node("ReduceSum", "a2", "row", keepdims=0),
]


@pytest.mark.parametrize("result", ["p", "q"])
def test_what_a_loop_carries_keeps_its_shape(result: str) -> None:
    """Where the body gives back what it took, nobody has to state the type."""
    graph = agree(_loop(result, SAME), tolerance=1e-3)
    assert graph.types[result].shape == (3, 4)


def test_the_rounds_of_a_loop_are_not_counted() -> None:
    """A result of every round has an axis of unknown extent."""
    (rounds,) = read(_loop("r", SAME)).types["r"].shape
    assert isinstance(rounds, str)


GROWS = [
    node("Concat", "a step", "a2", axis=0),
    node("Concat", "b a", "b2", axis=0),
    node("ReduceSum", "a2", "row", keepdims=0),
]


@pytest.mark.parametrize("result", ["p", "q"])
def test_what_a_loop_changes_is_not_known(result: str) -> None:
    """Also where it only changes because another carried value does."""
    rows, columns = read(_loop(result, GROWS)).types[result].shape
    assert isinstance(rows, str)
    assert columns == 4


def test_a_rank_that_a_loop_changes_is_refused() -> None:
    """The message says how to state the type."""
    nodes = [
        node("Constant", "", "zero", value_ints=[0]),
        node("Unsqueeze", "a zero", "a2"),
        node("Identity", "b", "b2"),
        node("ReduceSum", "b", "row", keepdims=0),
    ]
    with pytest.raises(UnsupportedModel, match="value_info"):
        read(_loop("p", nodes))
