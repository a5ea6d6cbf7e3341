"""Running graphs by the references."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.tuner.ir.graphs import build, kind, softmax
from tuner.errors import InternalError, UnsupportedModel
from tuner.ir.graph import Graph, Node
from tuner.ir.interpreter import evaluate, from_bf16, load, store, to_bf16
from tuner.ir.types import Array, DType


def test_a_graph_is_run() -> None:
    """Constants, reductions and broadcasts work together."""
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    y = evaluate(softmax(), {"x": x})["y"]
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, 2 * powers / powers.sum(1, keepdims=True), rtol=1e-6)
    assert y.dtype == np.float32


def test_float64_rounds_nothing() -> None:
    """A sum that f32 loses is kept, through casts of floats too."""
    graph = build(
        {"x": kind(1)},
        [
            ("add", "x c -> a", {}),
            ("cast", "a -> b", {"to": "f16"}),
            ("cast", "b -> d", {"to": "f32"}),
            ("sub", "d c -> y", {}),
        ],
        "y",
        {"c": 2.0**30},
    )
    x = np.array([1.0], np.float32)
    exact = evaluate(graph, {"x": x}, precision="float64")["y"]
    assert exact.dtype == np.float64
    assert exact.tolist() == [1.0]
    assert evaluate(graph, {"x": x})["y"].tolist() != [1.0]


def test_16_bit_floats_round_after_every_node() -> None:
    """Each computes in f32 and stores 16 bits."""
    graph = build(
        {"x": kind(1, dtype=DType.F16), "z": kind(1, dtype=DType.F16)},
        [("add", "x z -> a", {}), ("sub", "a x -> y", {})],
        "y",
    )
    feeds = {"x": np.array([2048], np.float16), "z": np.array([1], np.float16)}
    y = evaluate(graph, feeds)["y"]
    assert y.dtype == np.float16
    assert y.tolist() == [0.0]


def test_bf16_bits_and_values() -> None:
    """Ties go to even, specials stay, and a round trip changes nothing."""
    values = np.array(
        [1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, -np.inf, 0.0], np.float32
    )
    bits = to_bf16(values)
    assert from_bf16(bits).tolist() == [1.0, -2.5, 1.0, 1 + 2**-6, np.inf, -np.inf, 0]
    assert np.isnan(from_bf16(to_bf16(np.array([np.nan], np.float32))))[0]
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = ~np.isnan(from_bf16(every))
    np.testing.assert_array_equal(to_bf16(from_bf16(every))[finite], every[finite])


def test_bf16_tensors_pass_through_a_graph() -> None:
    """They come as bits and leave as bits."""
    graph = build(
        {"x": kind(2, 2, dtype=DType.BF16)}, [("matmul", "x x -> y", {})], "y"
    )
    x = to_bf16(np.array([[1, 2], [3, 4]], np.float32))
    assert from_bf16(evaluate(graph, {"x": x})["y"]).tolist() == [[7, 10], [15, 22]]


@pytest.mark.parametrize("dtype", list(DType))
def test_loading_and_storing_keep_values(dtype: DType) -> None:
    """Stored values survive the way through the computing form."""
    stored = store(np.array([0, 1, 1], np.float32), dtype)
    again = store(load(stored, dtype), dtype)
    assert again.dtype == dtype.numpy
    np.testing.assert_array_equal(again, stored)


def _opaque() -> Graph:
    graph = build({"x": kind(3)}, [("exp", "x -> a", {})], "a")
    node = Node(
        name="o",
        op="opaque",
        inputs=("a",),
        outputs=("y",),
        attributes={"op_type": "Z"},
    )
    return Graph(
        nodes=(*graph.nodes, node),
        inputs=("x",),
        outputs=("y",),
        types={**graph.types, "y": kind(3, dtype=DType.F16)},
    )


def test_opaque_nodes_are_run_by_the_callers_function() -> None:
    """It gets and gives stored arrays."""

    def double(node: Node, arrays: Sequence[Array]) -> list[Array]:
        assert node.name == "o"
        assert arrays[0].dtype == np.float32
        return [np.asarray(arrays[0] * np.float32(2)).astype(np.float16)]

    y = evaluate(_opaque(), {"x": np.zeros(3, np.float32)}, opaque=double)["y"]
    assert y.dtype == np.float16
    assert y.tolist() == [2, 2, 2]


def test_what_is_missing_is_said() -> None:
    """An input without array, an opaque node without a function."""
    with pytest.raises(InternalError, match="x"):
        evaluate(softmax(), {})
    with pytest.raises(UnsupportedModel, match="Z"):
        evaluate(_opaque(), {"x": np.zeros(3, np.float32)})
