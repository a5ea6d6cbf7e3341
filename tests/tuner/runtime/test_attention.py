"""Attention, found in primitives and run by the library's own operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tests.tuner.runtime.graphs import graph_of, tensor
from tuner.ir.graph import Graph
from tuner.ir.interpreter import evaluate
from tuner.ir.types import Array, DType, TensorType
from tuner.library_work import library_work
from tuner.pipeline import resolve_target
from tuner.runtime.library import open_graph
from tuner.runtime.onnx_attention import Attention, attentions
from tuner.runtime.onnx_patterns import spellings
from tuner.runtime.onnx_writer import write_model

BATCH, HEADS, ROWS, DEPTH = 2, 4, 5, 3
_BSNH = (0, 2, 1, 3)


@dataclass(frozen=True, kw_only=True)
class Form:
    """How an exporter writes attention.

    Attributes:
        shared: heads that share one of keys and values.
        keys: rows of keys and values.
        scales: where factors stand: of query, key, scores.
        mask: shape of a mask; empty for none.
        hides: what a selecting mask puts in place of a score; None adds the mask.
        guard: whether a softmax of nothing is cleared.
        flat: whether heads and batch are one axis for the products.
        joins: whether the result goes back to rows of all heads.
    """

    shared: int = 1
    keys: int = ROWS
    scales: tuple[float, float, float] = (1.0, 1.0, 0.5)
    mask: tuple[int, ...] = ()
    hides: float | None = None
    guard: bool = False
    flat: bool = False
    joins: bool = True


@dataclass
class _Build:
    """Nodes in order, with the constants that they read."""

    types: dict[str, TensorType]
    rows: list[tuple[str, str, list[str], dict[str, Any]]] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)

    def add(self, op: str, *operands: str, **attributes: Any) -> str:
        name = f"v{len(self.rows)}"
        self.rows.append((name, op, list(operands), attributes))
        return name

    def number(self, value: float) -> str:
        name = f"c{len(self.values)}"
        self.values[name] = value
        return name

    def shape(self, name: str, *extents: int) -> str:
        return self.add("reshape", name, shape=extents)

    def turn(self, name: str, *perm: int) -> str:
        return self.add("transpose", name, perm=perm)

    def scale(self, name: str, factor: float) -> str:
        if factor == 1:
            return name
        return self.add("mul", self.number(factor), name)


def _heads(build: _Build, name: str, form: Form, rows: int, factor: float) -> str:
    """Rows of all heads as a stack of matrices, shared heads repeated."""
    heads = HEADS // form.shared if name != "q" else HEADS
    found = build.turn(build.shape(name, BATCH, rows, heads, DEPTH), *_BSNH)
    if heads < HEADS:
        found = build.shape(found, BATCH, heads, 1, rows, DEPTH)
        full = (BATCH, heads, form.shared, rows, DEPTH)
        found = build.add("expand", found, shape=full)
        found = build.shape(found, BATCH, HEADS, rows, DEPTH)
    found = build.scale(found, factor)
    return build.shape(found, BATCH * HEADS, rows, DEPTH) if form.flat else found


def _soft(build: _Build, scores: str, rank: int) -> str:
    rows = {"axes": (rank - 1,), "keepdims": 1}
    most = build.add("reduce_max", scores, **rows)
    power = build.add("exp", build.add("sub", scores, most))
    return build.add("div", power, build.add("reduce_sum", power, **rows))


def _masked(build: _Build, scores: str, form: Form) -> str:
    if not form.mask:
        return scores
    if form.hides is None:
        return build.add("add", scores, "m")
    return build.add("where", "m", scores, build.number(form.hides))


def written(form: Form, extra: tuple[str, ...] = ()) -> Graph:
    """The graph of a form; its last node makes the result."""
    heads = HEADS // form.shared
    types = {
        "q": tensor(BATCH, ROWS, HEADS * DEPTH),
        "k": tensor(BATCH, form.keys, heads * DEPTH),
        "v": tensor(BATCH, form.keys, heads * DEPTH),
    }
    if form.mask:
        dtype = DType.F32 if form.hides is None else DType.BOOL
        types["m"] = tensor(*form.mask, dtype=dtype)
    build = _Build(types)
    query = _heads(build, "q", form, ROWS, form.scales[0])
    key = _heads(build, "k", form, form.keys, form.scales[1])
    value = _heads(build, "v", form, form.keys, 1.0)
    key = build.turn(key, 0, 2, 1) if form.flat else build.turn(key, 0, 1, 3, 2)
    scores = build.add("matmul", query, key)
    if form.flat and form.mask:
        scores = build.shape(scores, BATCH, HEADS, ROWS, form.keys)
    scores = _masked(build, build.scale(scores, form.scales[2]), form)
    soft = _soft(build, scores, 3 if form.flat and not form.mask else 4)
    if form.guard:
        missing = build.add("isnan", soft)
        soft = build.add("where", missing, build.number(0.0), soft)
    if form.flat and form.mask:
        soft = build.shape(soft, BATCH * HEADS, ROWS, form.keys)
    result = build.add("matmul", soft, value)
    if form.flat:
        result = build.shape(result, BATCH, HEADS, ROWS, DEPTH)
    if form.joins:
        result = build.shape(build.turn(result, *_BSNH), BATCH, ROWS, HEADS * DEPTH)
    return graph_of(
        build.rows,
        types,
        (result, *extra),
        constants={n: np.asarray(v, np.float32) for n, v in build.values.items()},
        constant_types={n: tensor() for n in build.values},
    )


def _feeds(graph: Graph, *, hidden_row: bool = False) -> dict[str, Array]:
    random = np.random.default_rng(11)
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        kind = graph.types[name]
        feeds[name] = random.normal(0, 1, kind.static_shape).astype(np.float32)
        if name == "m":
            hides = random.uniform(size=kind.static_shape) < 0.3
            hides[..., 0] = False
            if hidden_row:
                hides[..., 0, :] = True
            added = np.where(hides, -np.inf, feeds[name]).astype(np.float32)
            feeds[name] = ~hides if kind.dtype is DType.BOOL else added
    return feeds


def _agrees(graph: Graph, feeds: Mapping[str, Array]) -> None:
    found = open_graph(graph).run(feeds)
    with np.errstate(invalid="ignore"):
        exact = evaluate(graph, feeds, precision="float64")
    for name, truth in exact.items():
        assert found[name].shape == graph.types[name].shape
        np.testing.assert_allclose(found[name], truth, rtol=2e-5, atol=2e-6)


def _only(graph: Graph) -> Attention:
    (found,) = attentions(graph)
    return found


def _operators(graph: Graph) -> list[str]:
    return [node.op_type for node in write_model(graph, {}).graph.node]


_FULL = (BATCH, HEADS, ROWS, ROWS)
_FORMS: Mapping[str, Form] = {
    "plain": Form(),
    "scaled operands": Form(scales=(0.7, 0.8, 1.0)),
    "scaled everywhere": Form(scales=(0.7, 0.8, 1.5)),
    "no scale": Form(scales=(1.0, 1.0, 1.0)),
    "cross": Form(keys=7),
    "added mask": Form(mask=_FULL),
    "mask of keys": Form(mask=(BATCH, 1, 1, ROWS)),
    "mask of rows": Form(mask=(ROWS, ROWS)),
    "guarded": Form(mask=(1, 1, ROWS, ROWS), guard=True),
    "guarded by heads": Form(mask=(1, HEADS, ROWS, ROWS), guard=True),
    "guarded keys": Form(mask=(BATCH, 1, 1, ROWS), guard=True),
    "selecting mask": Form(mask=(BATCH, 1, ROWS, ROWS), hides=-math.inf, guard=True),
    "selecting, finite": Form(mask=(ROWS, ROWS), hides=-3e38, guard=True),
    "shared heads": Form(shared=2, mask=(ROWS, ROWS)),
    "one shared head": Form(shared=HEADS),
    "one axis of heads": Form(flat=True),
    "one axis, masked": Form(flat=True, mask=(BATCH, 1, ROWS, ROWS)),
    "stacked result": Form(joins=False),
    "stacked, guarded": Form(joins=False, mask=(1, 1, ROWS, ROWS), guard=True),
    "stacked, shared": Form(joins=False, shared=2),
}


@pytest.mark.parametrize("case", _FORMS)
def test_attention_is_one_operator_however_it_is_written(case: str) -> None:
    """Every form is found as a whole, and the library's operator gives its result."""
    form = _FORMS[case]
    graph = written(form)
    assert _only(graph).nodes == frozenset(graph.by_name)
    operators = _operators(graph)
    assert operators.count("Attention") == 1
    assert not {"MatMul", "Softmax", "Exp", "Div"}.intersection(operators)
    _agrees(graph, _feeds(graph))


@pytest.mark.parametrize("case", [name for name, f in _FORMS.items() if f.guard])
def test_a_row_that_is_hidden_whole_becomes_zeros(case: str) -> None:
    """A guard keeps its meaning: minus infinity everywhere gives no weights at all."""
    graph = written(_FORMS[case])
    feeds = _feeds(graph, hidden_row=True)
    _agrees(graph, feeds)
    (result,) = graph.outputs
    found = open_graph(graph).run(feeds)[result]
    row = found[:, 0] if _FORMS[case].joins else found[:, :, 0]
    assert np.isfinite(found).all()
    assert _FORMS[case].hides == -3e38 or not row.any()


def test_no_copy_is_made_of_rows_of_all_heads() -> None:
    """What projections deliver is read, and the result written, where it lies."""
    for form in (Form(), Form(shared=2), Form(mask=_FULL)):
        assert set(_operators(written(form))) == {"Attention", "Reshape"}
        found = _only(written(form))
        orders = {one.order for one in (found.query, found.key, found.value)}
        assert orders == {found.result.order} == {"bsnh"}


def test_many_scores_of_short_heads_are_never_kept() -> None:
    """Where scores outnumber operands, the operator that keeps none of them runs."""
    rows = 64
    kind = tensor(1, rows, 4)
    build = _Build({"q": kind, "k": kind, "v": kind})
    stacks = [
        build.turn(build.shape(name, 1, rows, 2, 2), *_BSNH) for name in ("q", "k", "v")
    ]
    scores = build.add("matmul", stacks[0], build.turn(stacks[1], 0, 1, 3, 2))
    result = build.add("matmul", _soft(build, scores, 4), stacks[2])
    result = build.shape(build.turn(result, *_BSNH), 1, rows, 4)
    graph = graph_of(build.rows, build.types, (result,))
    assert "MultiHeadAttention" in _operators(graph)
    _agrees(graph, _feeds(graph))


_DEEP = Form(shared=2, mask=(1, 1, ROWS, ROWS), guard=True, scales=(0.7, 0.8, 1.5))


@pytest.mark.parametrize("inner", range(len(written(_DEEP).nodes) - 1))
def test_what_is_read_on_the_way_is_written_as_it_is(inner: int) -> None:
    """Whichever inner value is delivered too, all results stay what they are."""
    graph = written(_DEEP)
    name = graph.nodes[inner].outputs[0]
    _agrees(written(_DEEP, (name,)), _feeds(graph))


@pytest.mark.parametrize(
    "form",
    [
        Form(guard=True),
        Form(mask=(ROWS, ROWS), hides=-4.0),
        Form(scales=(1.0, 1.0, -0.5)),
        Form(scales=(-1.0, 1.0, 1.0)),
    ],
)
def test_what_only_looks_like_attention_is_written_as_it_is(form: Form) -> None:
    """A finite score in place of others, or a factor below zero, is something else."""
    graph = written(form)
    assert not list(attentions(graph))
    _agrees(graph, _feeds(graph))


def test_a_mask_that_is_scaled_is_none() -> None:
    """A factor behind the mask would be one of the mask, too."""
    graph = written(Form(mask=_FULL, scales=(1.0, 1.0, 1.0)))
    added = next(node for node in graph.nodes if node.op == "add")
    rows = []
    for node in graph.nodes:
        reads = ["late" if n == added.outputs[0] else n for n in node.inputs]
        rows.append((node.outputs[0], node.op, reads, node.attributes))
        if node is added:
            rows.append(("late", "mul", [added.outputs[0], "two"], {}))
    scaled = graph_of(
        rows,
        {name: graph.types[name] for name in graph.inputs},
        graph.outputs,
        constants={"two": np.asarray(2.0, np.float32)},
        constant_types={"two": tensor()},
    )
    assert not list(attentions(scaled))
    _agrees(scaled, _feeds(scaled))


def test_any_two_forms_may_be_joined() -> None:
    """Seeded forms of every kind at once: found, and right."""
    random = np.random.default_rng(5)
    masks: list[tuple[int, ...]] = [(), (ROWS, ROWS), (BATCH, 1, 1, ROWS), _FULL]
    kinds = itertools.product((1, 2, HEADS), masks, (None, -math.inf), (False, True))
    for shared, mask, hides, flat in kinds:
        form = Form(
            shared=shared,
            mask=mask,
            hides=hides,
            flat=flat,
            guard=bool(mask) and bool(random.integers(2)),
            joins=bool(random.integers(2)),
            scales=tuple(random.uniform(0.5, 1.5, 3).round(2)),
        )
        graph = written(form)
        assert len(list(attentions(graph))) == 1, form
        _agrees(graph, _feeds(graph))


def test_its_scores_cost_no_traffic() -> None:
    """The price knows one operator, which keeps its scores to itself."""
    cpu = resolve_target("cpu")
    graph = written(Form())
    (whole,) = library_work(graph, cpu).operators
    stacked = written(Form(joins=False))
    copies = library_work(stacked, cpu).operators[1:]
    assert [one.internal_bytes for one in copies] == [2 * 4 * BATCH * ROWS * 12]
    apart = written(Form(), (graph.nodes[-6].outputs[0],))
    assert whole.internal_bytes == 0
    assert len(library_work(apart, cpu).operators) > 1
    assert spellings(graph).keys() == {graph.nodes[-1].name}


def test_an_older_standard_has_no_attention() -> None:
    """Beside a node that means something else in ours, products stay products."""
    graph = written(Form())
    assert _operators(graph).count("Attention") == 1
    (result,) = graph.outputs
    opaque = replace(
        graph.nodes[-1],
        name="foreign",
        op="opaque",
        inputs=(result,),
        outputs=("y",),
        attributes={"domain": "", "op_type": "Softmax", "opset": 11, "proto": b""},
    )
    older = replace(
        graph,
        nodes=(*graph.nodes, opaque),
        outputs=("y",),
        types={**graph.types, "y": graph.types[result]},
    )
    assert "Attention" not in {one.op_type for one in spellings(older).values()}
    newer = {**opaque.attributes, "op_type": "Relu", "opset": 21}
    kept = replace(older, nodes=(*graph.nodes, replace(opaque, attributes=newer)))
    assert "Attention" in {one.op_type for one in spellings(kept).values()}
