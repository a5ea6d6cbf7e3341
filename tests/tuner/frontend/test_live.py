"""What of a model none of its outputs depends on is left."""

from __future__ import annotations

from onnx import helper

from tests.tuner.frontend.models import model, node, value
from tuner.frontend.live import without_dead


def test_an_input_left_out_needs_no_output_left_out() -> None:
    """Both are written as an empty name, which is no tensor."""
    dead = helper.make_node("LSTM", ["s", "w", "r"], ["", "h"], hidden_size=2)
    made = model(
        [dead, node("Clip", "x - most", "y")],
        [
            value("x", [3]),
            value("most", []),
            value("s", [4, 1, 5]),
            value("w", [1, 8, 5]),
            value("r", [1, 8, 2]),
        ],
        [value("y", [3])],
    )
    live = without_dead(made, {"w", "r"})
    assert [each.op_type for each in live.graph.node] == ["Clip"]
    assert [each.name for each in live.graph.input] == ["x", "most", "s"]


def test_a_model_without_dead_nodes_is_the_same() -> None:
    """Inputs that are left out, and results that are, change nothing."""
    made = model(
        [
            helper.make_node("LSTM", ["s", "w", "r"], ["", "h"], hidden_size=2),
            node("Clip", "h - most", "y"),
        ],
        [
            value("most", []),
            value("s", [4, 1, 5]),
            value("w", [1, 8, 5]),
            value("r", [1, 8, 2]),
        ],
        [value("y", [1, 1, 2])],
    )
    assert without_dead(made, {"w", "r"}) is made
