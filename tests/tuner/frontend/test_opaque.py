"""Nodes that only a library can run."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.tuner.frontend.models import F32, agree, model, node, read, value
from tuner.frontend.opaque import captures
from tuner.ir.types import DType


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
