"""Random inputs that respect how they are used."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.tuner.frontend.models import model, node, read, value
from tests.tuner.runtime.graphs import exp_add, graph_of, tensor
from tuner.ir.interpreter import evaluate, from_bf16
from tuner.ir.types import DType, TensorType
from tuner.runtime.backend import PAGE_BYTES
from tuner.runtime.feeds import Variant, align, make_feeds


def test_a_seed_decides_everything() -> None:
    """Equal seeds give equal arrays, other seeds others; subsets do not matter."""
    graph = exp_add()
    once, again = make_feeds(graph, 3), make_feeds(graph, 3)
    other, part = make_feeds(graph, 4), make_feeds(graph, 3, names=("y",))
    np.testing.assert_array_equal(once["x"], again["x"])
    np.testing.assert_array_equal(once["y"], part["y"])
    assert not np.array_equal(once["x"], other["x"])
    assert not np.array_equal(once["x"], once["y"])


def test_arrays_begin_at_a_page() -> None:
    """Every array can be wrapped without a copy, and stays where it is."""
    for array in make_feeds(exp_add(1001), 0).values():
        assert array.ctypes.data % PAGE_BYTES == 0
        assert align(array) is array


def test_a_tensor_without_dimensions_is_an_array() -> None:
    """Of every element type and at a page: a flag that decides a branch is one."""
    for dtype in DType:
        graph = graph_of([], {"x": TensorType(dtype=dtype, shape=())}, ())
        array = make_feeds(graph, 1)["x"]
        assert isinstance(array, np.ndarray), dtype
        assert array.shape == ()
        assert array.ctypes.data % PAGE_BYTES == 0


def test_indices_stay_inside_the_table() -> None:
    """An index, also one that is computed with first, fits the gathered axis."""
    graph = graph_of(
        [
            ("j", "reshape", ["i"], {"shape": (8,)}),
            ("o", "gather", ["t", "j"], {"axis": 0}),
        ],
        {"t": tensor(3, 4), "i": tensor(2, 4, dtype=DType.I64)},
        ["o"],
    )
    index = make_feeds(graph, 0)["i"]
    assert 0 <= index.min() <= index.max() < 3


def test_roots_and_divisors_are_positive() -> None:
    """What reaches a root or a divisor unchanged is never negative or zero."""
    graph = graph_of(
        [
            ("r", "reshape", ["x"], {"shape": (64,)}),
            ("s", "sqrt", ["r"], {}),
            ("o", "div", ["s", "y"], {}),
        ],
        {"x": tensor(8, 8), "y": tensor(64)},
        ["o"],
    )
    feeds = make_feeds(graph, 0)
    assert feeds["x"].min() > 0
    assert feeds["y"].min() > 0


def test_known_ranges_win() -> None:
    """A range that the user gave holds for floats and whole numbers."""
    graph = graph_of(
        [("o", "add", ["x", "x"], {}), ("p", "add", ["k", "k"], {})],
        {"x": tensor(100), "k": tensor(100, dtype=DType.I32)},
        ["o", "p"],
    )
    feeds = make_feeds(graph, 0, ranges={"x": (5.0, 6.0), "k": (7, 8)})
    assert 5 <= feeds["x"].min() <= feeds["x"].max() <= 6
    assert set(feeds["k"].tolist()) == {7, 8}


def test_variants_differ_in_kind() -> None:
    """There are positive, mostly true and NaN-holding kinds of values."""
    graph = graph_of(
        [("o", "where", ["c", "x", "x"], {})],
        {"x": tensor(1000), "c": tensor(1000, dtype=DType.BOOL)},
        ["o"],
    )
    positive = make_feeds(graph, 0, variant=Variant(positive=True, true_share=0.9))
    assert positive["x"].min() > 0
    assert positive["c"].mean() > 0.8
    assert np.isnan(make_feeds(graph, 0, variant=Variant(nan_share=0.5))["x"]).any()


def test_a_chain_of_products_may_keep_its_size() -> None:
    """Divided by the root of their terms, long sums give what is as large as inputs."""
    kinds = {
        "x": tensor(64, 256),
        "w": tensor(256, 256),
        "i": tensor(1, 32, 16, 16),
        "f": tensor(32, 32, 3, 3),
    }
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    graph = graph_of(
        [("o", "matmul", ["x", "w"], {}), ("p", "conv", ["i", "f"], window)],
        kinds,
        ["o", "p"],
    )
    feeds = make_feeds(graph, 0, variant=Variant(by_fan_in=True))
    plain = make_feeds(graph, 0)
    assert 0.9 < (feeds["x"] @ feeds["w"]).std() < 1.1
    np.testing.assert_allclose(feeds["f"] * 288**0.5, plain["f"], rtol=1e-5)
    np.testing.assert_array_equal(feeds["i"], plain["i"])


def test_every_part_of_a_second_operand_is_divided() -> None:
    """Of weights behind a choice or a join, each; the choice itself stays as it is."""
    kinds = {
        "x": tensor(8, 64),
        "m": tensor(64, 4, dtype=DType.BOOL),
        "v": tensor(64, 4),
        "w": tensor(64, 4),
        "u": tensor(64, 4),
    }
    graph = graph_of(
        [
            ("c", "where", ["m", "v", "w"], {}),
            ("j", "concat", ["c", "u"], {"axis": 1}),
            ("o", "matmul", ["x", "j"], {}),
        ],
        kinds,
        ["o"],
    )
    feeds = make_feeds(graph, 0, variant=Variant(by_fan_in=True))
    plain = make_feeds(graph, 0)
    for name in ("u", "v", "w"):
        np.testing.assert_allclose(feeds[name] * 8, plain[name], rtol=1e-5)
    for name in ("x", "m"):
        np.testing.assert_array_equal(feeds[name], plain[name])


def test_bf16_is_stored_as_bits() -> None:
    """bf16 inputs are bit patterns of ordinary numbers."""
    graph = graph_of(
        [("o", "add", ["x", "x"], {})], {"x": tensor(100, dtype=DType.BF16)}, ["o"]
    )
    feeds = make_feeds(graph, 0)
    assert feeds["x"].dtype == np.uint16
    assert np.abs(from_bf16(feeds["x"])).max() < 10


@pytest.mark.parametrize(
    ("op", "shape", "index", "most"),
    [
        ("GatherElements", (6, 5), (6, 3), 4),
        ("GatherND", (3, 5, 2), (7, 2), 2),
        ("ScatterND", (3, 5, 2), (7, 2), 2),
        ("ScatterND", (9, 4), (2, 1), 8),
    ],
)
def test_parts_of_a_position_stay_inside_their_axes(
    op: str, shape: tuple[int, ...], index: tuple[int, ...], most: int
) -> None:
    """Where the index is computed of what is drawn, it is inside the table, too."""
    attributes = {"axis": 1} if op == "GatherElements" else {}
    given = [value("x", shape), value("i", index, TensorProto.INT64)]
    if op == "ScatterND":
        given.append(value("u", (*index[:-1], *shape[index[-1] :])))
    inputs = "x i u" if op == "ScatterND" else "x i"
    graph = read(model([node(op, inputs, "y", **attributes)], given, "y"))
    largest = 0
    for seed in range(20):
        feeds = make_feeds(graph, seed)
        evaluate(graph, feeds)  # raises for an index outside
        assert feeds["i"].min() >= 0
        first = feeds["i"] if op == "GatherElements" else feeds["i"][:, 0]
        largest = max(largest, int(first.max()))
    assert 0 < largest <= most


def test_wishes_that_contradict_themselves_are_passed_over() -> None:
    """What is drawn is inside its type, whatever a computed index would want."""
    nodes = [
        node("Mul", "a s", "l"),
        node("Add", "l b", "m"),
        node("Sub", "m c", "n"),
        node("Cast", "u", "v", to=TensorProto.INT64),
        node("Add", "v t", "w"),
        node("Gather", "x n", "y"),
        node("Gather", "x w", "z"),
    ]
    given = [value("x", (300, 2)), value("u", (4,), TensorProto.UINT8)]
    given += [value(name, (4,), TensorProto.INT64) for name in "abc"]
    known = {"s": np.asarray(16, np.int64), "t": np.asarray(3, np.int64)}
    graph = read(model(nodes, given, "y z", known))
    for seed in range(20):
        feeds = make_feeds(graph, seed)
        assert all(feeds[name].min() >= 0 for name in graph.inputs if name != "x")
