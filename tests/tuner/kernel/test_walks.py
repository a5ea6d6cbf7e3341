"""Walks that small random graphs do not reach, and values that are no plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.random_graphs import random_graph
from tests.tuner.kernel.random_walks import CPU, GPU, WALKS
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.interpreter import evaluate, to_bf16
from tuner.ir.types import Array, DType
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.schedule import space
from tuner.runtime.verification import widen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.ir.graph import Graph
    from tuner.runtime.opencl import OpenCLBackend

SEEDS = 3
LARGE = ("rows asked ahead", "staged operands")
SOAK_FACTOR = 100
SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0)
EITHER = ("maximum", "minimum", "reduce_max", "reduce_min", "relu")
DTYPES = (DType.F32, DType.F16, DType.BF16, DType.F64)
WHOLES = (DType.I8, DType.U8, DType.I32, DType.I64)


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_computes_what_the_graph_says(
    opencl: OpenCLBackend, walk: str, *, soak: bool
) -> None:
    """Any shape, type and schedule that the walk may meet."""
    first = 1 if walk in LARGE else SEEDS
    for seed in range(first * (SOAK_FACTOR if soak else 1)):
        drawn = WALKS[walk](seed)
        feeds = extreme_feeds(drawn.graph, seed)
        for schedule in drawn.schedules:
            found = run(opencl, drawn.graph, schedule, feeds)
            wrong = complaint(drawn.graph, feeds, found)
            assert not wrong, (seed, schedule.as_dict)


@pytest.mark.parametrize("dtype", [*DTYPES, *WHOLES], ids=str)
def test_special_values_go_where_the_reference_has_them(
    opencl: OpenCLBackend, dtype: DType, *, soak: bool
) -> None:
    """NaN, infinities and the sign of zero; whole numbers wrap at their ends."""
    lowered = 0
    count = SEEDS * (SOAK_FACTOR if soak else 1)
    for seed in range(1000, 1000 + count):
        graph = random_graph(seed, dtype=dtype)
        try:
            nest = lower(graph)
        except CannotLower:
            continue
        lowered += 1
        schedules = space(nest, CPU if seed % 2 else GPU)
        schedule = schedules[seed * 7919 % len(schedules)]
        feeds = extreme_feeds(graph, seed, share=0.02)
        found = run(opencl, graph, schedule, feeds)
        assert not unlike(graph, feeds, found), (seed, schedule.as_dict)
    assert lowered > count // 2


def extreme_feeds(graph: Graph, seed: int, share: float = 0.0) -> dict[str, Array]:
    """Random arrays; whole numbers reach the ends of their types.

    Args:
        graph: whose inputs are drawn; what places are taken from stays a place.
        seed: decides everything.
        share: of the elements of floats that are special.
    """
    draw = np.random.default_rng(seed)
    places = {node.inputs[1] for node in graph.nodes if node.op == "gather"}
    feeds = random_feeds(graph, seed)
    for name, array in feeds.items():
        kind = graph.types[name].dtype
        if name in places or kind is DType.BOOL:
            continue
        chosen = draw.random(array.shape) < (share if kind.is_float else 0.2)
        feeds[name] = np.where(chosen, _extremes(draw, kind, array.shape), array)
    return feeds


def _extremes(draw: np.random.Generator, kind: DType, shape: tuple[int, ...]) -> Array:
    if kind.is_float:
        values: Any = draw.choice(SPECIALS, shape)
        is_bf16 = kind is DType.BF16
        return (
            to_bf16(np.asarray(values, np.float32))
            if is_bf16
            else values.astype(kind.numpy)
        )
    info = np.iinfo(kind.numpy)
    ends = np.array([info.min, info.max, info.max - 1, info.min + 1], kind.numpy)
    return ends[draw.integers(0, len(ends), shape)]


def unlike(graph: Graph, feeds: Mapping[str, Array], found: Mapping[str, Array]) -> str:
    """Where a result is special and the reference is not, or the other way round.

    Zeros have the reference's sign where rounding decides nothing of it.
    """
    with np.errstate(all="ignore"):
        wide = evaluate(graph, feeds, precision="float64")
        native = evaluate(graph, feeds, precision="native")
    either = _either_zero(graph)
    for name, true in wide.items():
        kind = graph.types[name].dtype
        ours: Any = widen(found[name], kind)
        theirs: Any = widen(native[name], kind)
        if not kind.is_float:
            if not np.array_equal(ours, theirs):
                return f"{name}: {np.sum(ours != theirs)} whole numbers differ"
            continue
        sure = _kind(true) == _kind(theirs)
        wrong = sure & (_kind(ours) != _kind(theirs))
        if name not in either:
            sure = (true == 0) & ~_other_zero(true, theirs)
            wrong |= sure & _other_zero(ours, theirs)
        if wrong.any():
            at = np.flatnonzero(wrong)[0]
            return f"{name}: {ours.flat[at]} is not {theirs.flat[at]}"
    return ""


def _kind(values: Any) -> Any:
    """A number for what a value is: finite, NaN, or one of the infinities."""
    return np.isnan(values) * 1 + (values == np.inf) * 2 + (values == -np.inf) * 3


def _other_zero(values: Any, zeros: Any) -> Any:
    """Where both are zero, and of different signs."""
    both = (values == 0) & (zeros == 0)
    return both & (np.signbit(values) != np.signbit(zeros))


def _either_zero(graph: Graph) -> set[str]:
    """Tensors that depend on the greater of two zeros, which may be either."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.op in EITHER or found.intersection(node.inputs):
            found.update(node.outputs)
    return found


@pytest.mark.parametrize("outer", ["neg", "maximum"])
def test_a_zero_of_the_other_sign_is_unlike(outer: str) -> None:
    """But for what depends on the greater of two zeros."""
    b = Builder()
    x = b.input(2)
    out = b.op("neg", x) if outer == "neg" else b.op("maximum", x, b.op("neg", x))
    graph = b.graph(out)
    feeds = {x: np.array([0.0, 1.0], np.float32)}
    with np.errstate(all="ignore"):
        right = evaluate(graph, feeds, precision="native")[out]
    assert not unlike(graph, feeds, {out: right})
    other = np.where(right == 0, -right, right)
    assert bool(unlike(graph, feeds, {out: other})) == (outer == "neg")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_only_moves_keeps_its_sign(opencl: OpenCLBackend, dtype: DType) -> None:
    """Zeros, infinities and NaN behind views, joins and choices, under any schedule."""
    b = Builder()
    x = b.input(37, 48, dtype=dtype)
    turned = b.op("transpose", x, perm=(1, 0))
    cut = b.op("slice", x, starts=(36, 1), steps=(-1, 2), sizes=(30, 20))
    padded = b.op("pad", cut, before=(1, 0), after=(0, 3), value=-0.0)
    rows = b.op("gather", x, b.input(9, dtype=DType.I64), axis=0)
    chosen = b.op("where", b.input(37, 48, dtype=DType.BOOL), x, b.op("neg", x))
    both = b.op("concat", chosen, rows, axis=0)
    graph = b.graph(turned, padded, both, b.op("abs", x))
    nest = lower(graph)
    feeds = extreme_feeds(graph, 3, share=0.5)
    with np.errstate(all="ignore"):
        truth = evaluate(graph, feeds, precision="native")
    for schedule in (*space(nest, CPU)[::17], *space(nest, GPU)[::29]):
        found = run(opencl, graph, schedule, feeds)
        for name, true in truth.items():
            ours, theirs = widen(found[name], dtype), widen(true, dtype)
            np.testing.assert_array_equal(ours, theirs, str(schedule.as_dict))
            known = ~np.isnan(theirs)
            assert np.array_equal(np.signbit(ours)[known], np.signbit(theirs)[known])
