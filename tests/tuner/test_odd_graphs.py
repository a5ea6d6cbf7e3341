"""Graphs at the edge of what a model may be: each is planned; what runs is right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conftest import GLANCE_SECONDS, SOAK
from tests.tuner.frontend.models import model, node, value
from tuner.execution import run_plan
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Options

Make = Callable[[], onnx.ModelProto]


def handed_on() -> onnx.ModelProto:
    """An input, a weight and a constant that are outputs, too."""
    outputs = [value(name, (3, 100)) for name in ("x", "w", "y")]
    weight = np.arange(300, dtype=np.float32).reshape(3, 100)
    given = [value("x", (3, 100))]
    return model([node("Mul", "x w", "y")], given, outputs, {"w": weight})


def nothing_but_a_weight() -> onnx.ModelProto:
    """No node and no input."""
    weight = np.arange(100, dtype=np.float32)
    return model([], [], [value("w", (100,))], {"w": weight})


def dead_weight() -> onnx.ModelProto:
    """A product that nobody reads is the only reader of a weight."""
    nodes = [node("Exp", "x", "y"), node("MatMul", "x w", "dead")]
    weight = np.ones((4, 90), np.float32)
    return model(nodes, [value("x", (3, 4))], "y", {"w": weight})


def wide_concat() -> onnx.ModelProto:
    """More parts than a kernel may read, joined twice along one axis."""
    nodes = [
        helper.make_node("Concat", [f"x{k}" for k in range(70)], ["a"], axis=0),
        helper.make_node("Concat", ["a", *(f"x{k}" for k in range(50))], ["b"], axis=0),
        node("Neg", "b", "y"),
    ]
    return model(nodes, [value(f"x{k}", (k % 2 + 1, 3)) for k in range(70)], "y")


def many_captures() -> onnx.ModelProto:
    """A branch that reads more tensors than a kernel may: the library runs it."""
    names = [f"x{k}" for k in range(110)]
    total = helper.make_node("Sum", names, ["t"])
    other = helper.make_node("Max", names, ["e"])
    branches = [
        helper.make_graph([one], "branch", [], [value(one.output[0], (4,))])
        for one in (total, other)
    ]
    choice = helper.make_node(
        "If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]
    )
    given = [value(name, (4,)) for name in names]
    condition = value("c", (), TensorProto.BOOL)
    return model([choice], [*given, condition], [value("y", (4,))])


def fan_out() -> onnx.ModelProto:
    """One tensor with 300 readers, all of them outputs."""
    ops = ("Tanh", "Neg", "Sqrt", "Abs")
    nodes = [node("Exp", "x", "t")]
    nodes += [node(ops[k % 4], "t", f"o{k}") for k in range(300)]
    return model(nodes, [value("x", (64,))], " ".join(f"o{k}" for k in range(300)))


def no_elements() -> onnx.ModelProto:
    """Rows of length 0 beside rows that are there."""
    nodes = [
        node("Exp", "x", "e"),
        node("ReduceSum", "e axes", "s", keepdims=1),
        node("Add", "s z", "y"),
        node("MatMul", "x w", "p"),
    ]
    given = [value("x", (4, 0)), value("z", (4, 1)), value("w", (0, 3))]
    return model(nodes, given, "y p e", {"axes": np.array([1])})


def one_element() -> onnx.ModelProto:
    """Reductions, products and norms over axes of length 1."""
    nodes = [
        node("Softmax", "x", "a", axis=-1),
        node("ReduceMean", "a axes", "b", keepdims=1),
        node("MatMul", "b w", "c"),
        node("LayerNormalization", "c s", "y"),
    ]
    given = [value("x", (1, 1)), value("w", (1, 1)), value("s", (1,))]
    return model(nodes, given, "y", {"axes": np.array([0, 1])})


def same_operand() -> onnx.ModelProto:
    """Both operands of each node are one tensor."""
    nodes = [
        node("Add", "x x", "a"),
        node("Concat", "a a", "b", axis=0),
        node("Mul", "b b", "c"),
        node("MatMul", "s s", "d"),
    ]
    return model(nodes, [value("x", (5, 7)), value("s", (6, 6))], "c d")


def crossing_sums() -> onnx.ModelProto:
    """Sums over both axes in turns, each of what the one before scaled."""
    nodes = [
        node("Exp", "x", "a"),
        node("ReduceSum", "a first", "r", keepdims=1),
        node("ReduceSum", "a last", "s", keepdims=1),
        node("Div", "a r", "b"),
        node("Div", "b s", "c"),
        node("ReduceSum", "c first", "t", keepdims=1),
        node("MatMul", "c w", "d"),
        node("Add", "d s", "y"),
    ]
    axes = {"first": np.array([0]), "last": np.array([1])}
    return model(nodes, [value("x", (63, 65)), value("w", (65, 63))], "y t", axes)


def strange_names() -> onnx.ModelProto:
    """Names with blanks, quotes and line ends, and the same name twice."""
    first = "in put/\"\N{LATIN SMALL LETTER A WITH DIAERESIS}\n'; --"
    nodes = [
        helper.make_node("Exp", [first], ["t 1"], name="same"),
        helper.make_node("Neg", ["t 1"], ["<b>"], name="same"),
        helper.make_node("Add", ["t 1", "<b>"], ["o%s"], name=""),
    ]
    outputs = [value("o%s", (3, 4)), value("<b>", (3, 4))]
    return model(nodes, [value(first, (3, 4))], outputs)


def eight_axes() -> onnx.ModelProto:
    """All axes turned round, and every second one summed."""
    nodes = [
        node("Transpose", "x", "a", perm=[7, 6, 5, 4, 3, 2, 1, 0]),
        node("Add", "a b", "c"),
        node("ReduceSum", "c axes", "d", keepdims=0),
        node("Transpose", "d", "y", perm=[3, 1, 0, 2]),
    ]
    given = [value("x", (2, 1, 3, 1, 2, 2, 1, 3)), value("b", (1, 2, 1, 1, 3, 1, 1))]
    return model(nodes, given, "y c", {"axes": np.array([0, 2, 5, -1])})


GRAPHS: tuple[Make, ...] = (
    handed_on,
    nothing_but_a_weight,
    dead_weight,
    wide_concat,
    many_captures,
    fan_out,
    no_elements,
    one_element,
    same_operand,
    crossing_sums,
    strange_names,
    eight_axes,
)
QUICK = (handed_on, nothing_but_a_weight, dead_weight, no_elements, many_captures)
"""What runs in every test run."""


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("target", ["cpu", "sm_90", "ideal"])
def test_an_odd_graph_has_a_plan(make: Make, target: str) -> None:
    """With a bound that holds and no strategy that is cheaper."""
    found = make_plan(load(make().SerializeToString()), target, Options())
    partition = found.partition
    assert partition.bound_seconds <= partition.objective_seconds
    for baseline in found.baselines.values():
        most = baseline.objective_seconds * (1 + 1e-6)
        assert partition.objective_seconds <= most


@pytest.mark.parametrize(
    "make", GRAPHS if SOAK else QUICK, ids=lambda make: make.__name__
)
def test_an_odd_graph_runs(make: Make) -> None:
    """ONNX Runtime has the same results."""
    read = load(make().SerializeToString())
    plan = make_plan(read, "cpu", Options())
    assert run_plan(read, plan, sample_seconds=GLANCE_SECONDS).verified
