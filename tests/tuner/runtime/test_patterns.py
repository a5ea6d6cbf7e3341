"""Groups of primitives that the library has one operator for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.tuner.runtime.graphs import graph_of, tensor
from tuner.ir.graph import Graph
from tuner.ir.interpreter import evaluate
from tuner.ir.types import Array, DType
from tuner.runtime.library import open_graph
from tuner.runtime.onnx_patterns import spellings
from tuner.runtime.onnx_writer import write_model

Rows = Sequence[tuple[str, str, Sequence[str], Mapping[str, Any]]]
_LAST = {"axes": (2,), "keepdims": 1}
_PLACES = {"axes": (2, 3), "keepdims": 1}
_SOFT: Rows = (
    ("m", "reduce_max", ["x"], _LAST),
    ("d", "sub", ["x", "m"], {}),
    ("e", "exp", ["d"], {}),
    ("s", "reduce_sum", ["e"], _LAST),
)


def _normal(axes: Mapping[str, Any], *, by_square: bool, multiplies: bool) -> Rows:
    """Up to the normalised tensor `n`, in one of the ways that bodies take."""
    spread: Rows = (
        ("q", "mul", ["d", "d"], {}),
        ("qs", "reduce_sum", ["q"], axes),
        ("v", "div", ["qs", "count"], {}),
    )
    if by_square:
        spread = (
            ("q", "mul", ["x", "x"], {}),
            ("qs", "reduce_sum", ["q"], axes),
            ("qm", "div", ["qs", "count"], {}),
            ("mm", "mul", ["mean", "mean"], {}),
            ("v", "sub", ["qm", "mm"], {}),
        )
    end: Rows = (("n", "div", ["d", "r"], {}),)
    if multiplies:
        end = (("i", "reciprocal", ["r"], {}), ("n", "mul", ["i", "d"], {}))
    return (
        ("sum", "reduce_sum", ["x"], axes),
        ("mean", "div", ["sum", "count"], {}),
        ("d", "sub", ["x", "mean"], {}),
        *spread,
        ("ve", "add", ["v", "epsilon"], {}),
        ("r", "sqrt", ["ve"], {}),
        *end,
    )


_WEIGHTED: Rows = (("w", "mul", ["n", "scale"], {}), ("o", "add", ["shift", "w"], {}))
_SIMPLE: Rows = (
    ("q", "mul", ["x", "x"], {}),
    ("qs", "reduce_sum", ["q"], _LAST),
    ("v", "div", ["qs", "count"], {}),
    ("ve", "add", ["v", "epsilon"], {}),
    ("r", "sqrt", ["ve"], {}),
    ("i", "reciprocal", ["r"], {}),
    ("n", "mul", ["x", "i"], {}),
    ("o", "mul", ["scale", "n"], {}),
)
_GELU: Rows = (
    ("h", "div", ["x", "root"], {}),
    ("f", "erf", ["h"], {}),
    ("g", "add", ["f", "one"], {}),
    ("k", "mul", ["half", "g"], {}),
    ("o", "mul", ["x", "k"], {}),
)
_TANH: Rows = (
    ("c", "pow", ["x", "three"], {}),
    ("cc", "mul", ["small", "c"], {}),
    ("p", "add", ["x", "cc"], {}),
    ("h", "mul", ["p", "slope"], {}),
    ("f", "tanh", ["h"], {}),
    ("g", "add", ["f", "one"], {}),
    ("k", "mul", ["x", "half"], {}),
    ("o", "mul", ["k", "g"], {}),
)
_STATISTICS = ("mean", "i")
"""What a layer norm may be asked for beside its result."""
_CONSTANTS = {
    "one": 1.0,
    "half": 0.5,
    "three": 3.0,
    "small": 0.044715,
    "slope": math.sqrt(2 / math.pi),
    "root": math.sqrt(2),
    "epsilon": 1e-5,
    "low": -0.5,
    "high": 0.75,
}
_ROW = (2, 3, 5)
_IMAGE = (2, 3, 4, 5)
_CASES: Mapping[str, tuple[str, tuple[int, ...], Rows]] = {
    "softmax": ("Softmax", _ROW, (*_SOFT, ("o", "div", ["e", "s"], {}))),
    "log softmax": (
        "LogSoftmax",
        _ROW,
        (*_SOFT, ("l", "log", ["s"], {}), ("o", "sub", ["d", "l"], {})),
    ),
    **{
        f"layer norm {by_square} {multiplies}": (
            "LayerNormalization",
            _ROW,
            (*_normal(_LAST, by_square=by_square, multiplies=multiplies), *_WEIGHTED),
        )
        for by_square in (False, True)
        for multiplies in (False, True)
    },
    "instance norm": (
        "InstanceNormalization",
        _IMAGE,
        (
            *_normal(_PLACES, by_square=False, multiplies=False),
            ("o", "neg", ["n"], {}),
        ),
    ),
    "simple norm": ("SimplifiedLayerNormalization", _ROW, _SIMPLE),
    "gelu": ("Gelu", _ROW, _GELU),
    "gelu by tanh": ("Gelu", _ROW, _TANH),
    "mean": (
        "GlobalAveragePool",
        _IMAGE,
        (("s", "reduce_sum", ["x"], _PLACES), ("o", "div", ["s", "count"], {})),
    ),
    "clip": (
        "Clip",
        _ROW,
        (("a", "maximum", ["x", "low"], {}), ("o", "minimum", ["a", "high"], {})),
    ),
    "clip from zero": (
        "Clip",
        _ROW,
        (("a", "relu", ["x"], {}), ("o", "minimum", ["high", "a"], {})),
    ),
}


def _graph(
    rows: Rows,
    shape: tuple[int, ...],
    outputs: Sequence[str] = ("o",),
    *,
    dtype: DType = DType.F32,
    row: tuple[int, ...] = (),
    count: float = 0.0,
) -> Graph:
    read = {name for _, _, operands, _ in rows for name in operands}
    width = shape[-1] if len(shape) == len(_ROW) else shape[-1] * shape[-2]
    values = {**_CONSTANTS, "count": count or float(width)}
    vector = tensor(*(row or shape[-1:]), dtype=dtype)
    inputs = {"x": tensor(*shape, dtype=dtype), "scale": vector, "shift": vector}
    return graph_of(
        rows,
        {name: kind for name, kind in inputs.items() if name in read},
        outputs,
        constants={
            name: np.asarray(value, dtype.numpy)
            for name, value in values.items()
            if name in read
        },
        constant_types={name: tensor(dtype=dtype) for name in values if name in read},
    )


def _feeds(graph: Graph) -> dict[str, Array]:
    random = np.random.default_rng(7)
    return {
        name: random.normal(0.5, 1.0, graph.types[name].static_shape).astype(
            graph.types[name].dtype.numpy
        )
        for name in graph.inputs
    }


def _written(graph: Graph) -> list[str]:
    return [node.op_type for node in write_model(graph, {}).graph.node]


@pytest.mark.parametrize("case", _CASES)
def test_a_group_is_one_operator_with_the_same_result(case: str) -> None:
    """What the library has an operator for is written as that, and means the same."""
    op_type, shape, rows = _CASES[case]
    graph = _graph(rows, shape)
    plain = [op for op in _written(graph) if op not in (op_type, "Neg")]
    assert op_type in _written(graph)
    assert not plain
    feeds = _feeds(graph)
    found = open_graph(graph).run(feeds)
    for name, exact in evaluate(graph, feeds, precision="float64").items():
        np.testing.assert_allclose(found[name], exact, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("case", _CASES)
def test_a_value_on_the_way_that_is_delivered_stays(case: str) -> None:
    """A group that someone looks into is written node by node."""
    op_type, shape, rows = _CASES[case]
    kept = {"n", "w", *(_STATISTICS if op_type == "LayerNormalization" else ())}
    for inner in [row[0] for row in rows[:-1] if row[0] not in kept]:
        graph = _graph(rows, shape, ("o", inner))
        assert op_type not in _written(graph)
        assert set(open_graph(graph).run(_feeds(graph))) == {"o", inner}


@pytest.mark.parametrize("case", [name for name in _CASES if "layer norm" in name])
@pytest.mark.parametrize("outputs", [("o", "mean"), ("o", "i"), ("o", "mean", "i")])
def test_a_layer_norm_delivers_what_training_keeps(
    case: str, outputs: tuple[str, ...]
) -> None:
    """Mean and one over the deviation are results of the one operator, if read."""
    _, shape, rows = _CASES[case]
    if "i" not in {row[0] for row in rows}:
        rows = (*rows, ("i", "reciprocal", ["r"], {}))
    graph = _graph(rows, shape, outputs)
    assert _written(graph) == ["LayerNormalization"]
    feeds = _feeds(graph)
    found = open_graph(graph).run(feeds)
    for name, exact in evaluate(graph, feeds, precision="float64").items():
        assert found[name].shape == exact.shape
        np.testing.assert_allclose(found[name], exact, rtol=3e-5, atol=3e-6)


def test_a_statistic_is_there_for_whoever_reads_it_first() -> None:
    """A reader of the mean may stand before the norm's end, and is written after."""
    _, shape, rows = _CASES["layer norm False False"]
    early = next(n for n, row in enumerate(rows) if row[0] == "mean") + 1
    rows = (*rows[:early], ("y", "neg", ["mean"], {}), *rows[early:])
    graph = _graph(rows, shape, ("o", "y"))
    assert _written(graph) == ["LayerNormalization", "Neg"]
    feeds = _feeds(graph)
    exact = evaluate(graph, feeds, precision="float64")
    found = open_graph(graph).run(feeds)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], exact[name], 3e-5, 3e-6)


def test_a_norm_that_reads_its_own_mean_is_none() -> None:
    """Weights that depend on the mean cannot be operands of what makes it."""
    _, shape, rows = _CASES["layer norm False False"]
    early = next(n for n, row in enumerate(rows) if row[0] == "mean") + 1
    scaled = tuple(
        (out, op, ["own" if name == "scale" else name for name in reads], more)
        for out, op, reads, more in rows[early:]
    )
    picked = {"starts": (0, 0, 0), "steps": (1, 1, 1), "sizes": (1, 1, 1)}
    own: Rows = (
        ("first", "slice", ["mean"], picked),
        ("flat", "reshape", ["first"], {"shape": (1,)}),
        ("own", "add", ["flat", "scale"], {}),
    )
    graph = _graph((*rows[:early], *own, *scaled), shape)
    assert "LayerNormalization" not in _written(graph)
    feeds = _feeds(graph)
    exact = evaluate(graph, feeds, precision="float64")["o"]
    np.testing.assert_allclose(open_graph(graph).run(feeds)["o"], exact, 3e-5, 3e-6)


def test_weights_may_have_leading_ones() -> None:
    """Weights of shape [1, n] scale rows like those of shape [n]."""
    _, shape, rows = _CASES["layer norm True False"]
    graph = _graph(rows, shape, row=(1, shape[-1]))
    assert _written(graph).count("LayerNormalization") == 1
    feeds = _feeds(graph)
    exact = evaluate(graph, feeds, precision="float64")["o"]
    np.testing.assert_allclose(open_graph(graph).run(feeds)["o"], exact, 3e-5, 3e-6)


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("layer norm False False", {"count": 4.0}),
        ("layer norm False False", {"row": (3, 5)}),
        ("simple norm", {"count": 4.0}),
        ("mean", {"count": 19.0}),
        ("softmax", {"dtype": DType.F64}),
    ],
)
def test_what_only_looks_alike_is_written_as_it_is(
    case: str, changes: Mapping[str, Any]
) -> None:
    """Another divisor, other weights or another type make it something else."""
    op_type, shape, rows = _CASES[case]
    graph = _graph(rows, shape, **changes)
    assert op_type not in _written(graph)
    feeds = _feeds(graph)
    exact = evaluate(graph, feeds, precision="float64")["o"]
    np.testing.assert_allclose(open_graph(graph).run(feeds)["o"], exact, 3e-5, 3e-6)


def test_a_clip_whose_limits_are_crossed_is_none() -> None:
    """A Clip with its least above its greatest is not defined the same everywhere."""
    rows: Rows = (
        ("a", "maximum", ["x", "high"], {}),
        ("o", "minimum", ["a", "low"], {}),
    )
    assert not spellings(_graph(rows, _ROW))


@pytest.mark.parametrize("case", ["clip", "clip from zero"])
def test_a_clip_keeps_what_is_no_number(case: str) -> None:
    """NaN passes a clip as it passes a minimum and a maximum."""
    _, shape, rows = _CASES[case]
    graph = _graph(rows, shape)
    feeds = _feeds(graph)
    feeds["x"].flat[[0, 17, 29]] = math.nan
    assert np.isnan(open_graph(graph).run(feeds)["o"].flat[[0, 17, 29]]).all()
