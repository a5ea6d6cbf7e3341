"""Scatters: the standard's meaning, element by element, and what becomes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conformance.running import generated_plan, run_plan
from tests.conftest import SOAK
from tests.tuner.frontend.models import model, node, ops, read, value
from tuner.errors import InvalidModel
from tuner.frontend.rules.scatters import LOOKUPS, MOST_ROWS, TABLES, UNROLLED
from tuner.ir.interpreter import evaluate
from tuner.ir.ops import OPS, Pattern
from tuner.model import load
from tuner.plan import GENERATED
from tuner.runtime.backend import Backend

_Any = npt.NDArray[Any]
SEEDS = 1500 if SOAK else 120
RUNS = 150 if SOAK else 10
JOINS = {
    "none": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}
I64 = TensorProto.INT64


def by_element(
    data: _Any, index: _Any, updates: _Any, axis: int, reduction: str
) -> _Any:
    """The standard's text for ScatterElements, update after update."""
    result = data.copy()
    for place in np.ndindex(*index.shape):
        target = list(place)
        target[axis] = int(index[place])
        at = tuple(target)
        result[at] = JOINS[reduction](result[at], updates[place])
    return result


def by_point(data: _Any, index: _Any, updates: _Any, reduction: str) -> _Any:
    """The standard's text for ScatterND."""
    result = data.copy()
    for place in np.ndindex(*index.shape[:-1]):
        at = tuple(index[place])
        for rest in np.ndindex(*updates[place].shape):
            old, new = result[at + rest], updates[place][rest]
            result[at + rest] = JOINS[reduction](old, new)
    return result


class Scatter:
    """A random scatter: its model, its inputs and its result."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        rank = int(self.rng.integers(1, 4))
        self.shape = tuple(int(self.rng.choice((1, 2, 3, 5, 9))) for _ in range(rank))
        kind = self.rng.choice(("float32", "int32", "int64", "int8", "float64"))
        self.data = self._values(self.shape, kind)
        self.reduction = str(self.rng.choice(list(JOINS)))
        self.is_known = bool(self.rng.random() < 0.5)
        if self.rng.random() < 0.5:
            self._of_elements(str(kind))
        else:
            self._of_points(str(kind))

    def _values(self, shape: tuple[int, ...], kind: str) -> _Any:
        return np.asarray(self.rng.integers(-3, 4, shape)).astype(kind)

    def _indices(self, extent: int, shape: tuple[int, ...]) -> _Any:
        if self.rng.random() < 0.3 and shape[0] <= extent:
            start = int(self.rng.integers(0, extent - shape[0] + 1))
            line = np.arange(start, start + shape[0])
            return np.broadcast_to(line.reshape(-1, *[1] * (len(shape) - 1)), shape)
        return self.rng.integers(-extent, extent, shape)

    def _of_elements(self, kind: str) -> None:
        axis = int(self.rng.integers(0, len(self.shape)))
        extents = [int(self.rng.integers(1, n + 1)) for n in self.shape]
        extents[axis] = int(self.rng.choice((0, 1, UNROLLED, 4, 7)))
        if self.rng.random() < 0.5:
            extents = [extents[k] if k == axis else n for k, n in enumerate(self.shape)]
        extent = self.shape[axis]
        moved = (extents[axis], *extents[:axis], *extents[axis + 1 :])
        index = np.zeros(moved, np.int64)
        if index.size:
            index[...] = self._indices(extent, moved)
        self.index = np.ascontiguousarray(np.moveaxis(index, 0, axis))
        self.updates = self._values(tuple(extents), kind)
        plain = np.where(self.index < 0, self.index + extent, self.index)
        self.wanted = by_element(self.data, plain, self.updates, axis, self.reduction)
        self.made = ("ScatterElements", {"axis": axis})

    def _of_points(self, kind: str) -> None:
        depth = int(self.rng.integers(1, len(self.shape) + 1))
        count = int(self.rng.choice((0, 1, UNROLLED, 4, 6)))
        parts = [
            self._indices(self.shape[k], (count,)) if count else np.zeros(0, np.int64)
            for k in range(depth)
        ]
        self.index = np.stack(parts, axis=-1).astype(np.int64)
        if self.rng.random() < 0.3:
            self.index = self.index.reshape(1, count, depth)
        self.updates = self._values((*self.index.shape[:-1], *self.shape[depth:]), kind)
        bounds = np.asarray(self.shape[:depth])
        plain = np.where(self.index < 0, self.index + bounds, self.index)
        self.wanted = by_point(self.data, plain, self.updates, self.reduction)
        self.made = ("ScatterND", {})

    def proto(self) -> onnx.ModelProto:
        """The model; its indices are a constant or an input."""
        op, attributes = self.made
        element = helper.np_dtype_to_tensor_dtype(self.data.dtype)
        given = [
            value("x", self.data.shape, element),
            value("u", self.updates.shape, element),
        ]
        if not self.is_known:
            given.append(value("i", self.index.shape, I64))
        constants = {"i": self.index} if self.is_known else {}
        one = node(op, "x i u", "y", reduction=self.reduction, **attributes)
        return model([one], given, "y", constants)

    @property
    def feeds(self) -> dict[str, _Any]:
        """Inputs by name."""
        known = {} if self.is_known else {"i": self.index}
        return {"x": self.data, "u": self.updates, **known}


def test_random_scatters_mean_what_the_standard_says() -> None:
    """Known and unknown indices, from either end, twice the same, boxes, no updates."""
    taken_apart = 0
    for seed in range(SEEDS):
        made = Scatter(seed)
        graph = read(made.proto())
        if "opaque" in ops(graph):
            continue
        taken_apart += 1
        found = evaluate(graph, {n: made.feeds[n] for n in graph.inputs})["y"]
        assert found.dtype == made.wanted.dtype
        np.testing.assert_array_equal(found, made.wanted, err_msg=str(seed))
    assert taken_apart > 0.6 * SEEDS


def test_random_scatters_run_in_kernels_of_ours(opencl: Backend) -> None:
    """Every kernel of their plans is generated, and gives the standard's values."""
    for seed in range(RUNS):
        made = Scatter(seed)
        read_ = load(made.proto().SerializeToString())
        if any(one.op == "opaque" for one in read_.graph.nodes):
            continue
        plan = generated_plan(read_)
        assert all(kernel.family in GENERATED for kernel in plan.kernels)
        found = run_plan(read_, plan, made.feeds, opencl)["y"]
        np.testing.assert_array_equal(found, made.wanted, err_msg=str(seed))


def scatter_nd(
    shape: tuple[int, ...], index: Any, *, known: bool = True, reduction: str = "none"
) -> onnx.ModelProto:
    """A ScatterND of float32."""
    index = np.asarray(index, np.int64)
    updates = (*index.shape[:-1], *shape[index.shape[-1] :])
    given = [value("x", shape), value("u", updates)]
    if not known:
        given.append(value("i", index.shape, I64))
    one = node("ScatterND", "x i u", "y", reduction=reduction)
    return model([one], given, "y", {"i": index} if known else {})


def test_an_assigned_slice_only_moves_elements() -> None:
    """What exporters write for `x[1:3, 2:4] = u` is slices that are joined."""
    index = np.stack(np.meshgrid([1, 2], [2, 3], indexing="ij"), axis=-1)
    graph = read(scatter_nd((5, 6, 7), index))
    assert set(ops(graph)) == {"slice", "concat"}


def test_few_unknown_rows_need_no_reduction() -> None:
    """One new row of a cache is an element-wise kernel."""
    graph = read(scatter_nd((64, 10), [[0]], known=False))
    assert all(OPS[op].pattern <= Pattern.INJECTIVE for op in ops(graph))


def test_elements_at_unknown_positions_are_the_librarys() -> None:
    """They stay one node, whatever they number."""
    one = node("ScatterElements", "x i u", "y", axis=1)
    given = [value("x", (64, 10)), value("i", (64, 1), I64), value("u", (64, 1))]
    assert ops(read(model([one], given, "y"))) == ["opaque"]


def test_a_table_of_very_many_rows_is_not_made() -> None:
    """A small model may speak of a large tensor."""
    one = node("ScatterElements", "x i u", "y", axis=0)
    known = {"i": np.asarray([[0], [5]], np.int64)}
    for rows, left in ((MOST_ROWS, False), (MOST_ROWS + 1, True)):
        given = [value("x", (rows, 1)), value("u", (2, 1))]
        assert (ops(read(model([one], given, "y", known))) == ["opaque"]) is left


def test_a_cache_and_its_update_have_one_rank() -> None:
    """Said in the operator's own words."""
    given = [value("x", (2, 8, 4)), value("u", (8, 4))]
    with pytest.raises(InvalidModel, match="extents are the same"):
        read(model([node("TensorScatter", "x u", "y")], given, "y"))


def test_many_unknown_positions_are_the_librarys() -> None:
    """What would take more comparisons than the traffic hides stays one node."""
    within = np.zeros((8 * LOOKUPS, 1))
    rows = scatter_nd((1000, 8), within, known=False)
    assert "reduce_max" in ops(read(rows))
    beyond = np.zeros((8 * LOOKUPS + 1, 1))
    assert ops(read(scatter_nd((1000, 8), beyond, known=False))) == ["opaque"]
    joined = scatter_nd((1000, 8), within, known=False, reduction="add")
    assert ops(read(joined)) == ["opaque"]
    often = np.zeros((TABLES + 1, 1))
    many = scatter_nd((1000, 8), often, reduction="add")
    assert "reduce_sum" in ops(read(many))


@pytest.mark.parametrize(
    ("index", "updates", "text"),
    [
        ([[9]], (1, 6), "index 9 or 9 of 5"),
        ([[1], [-6]], (2, 6), "index 1 or -6 of 5"),
        ([[1]], (2, 6), r"updates of shape \(1, 6\)"),
        ([[1, 2, 3]], (1,), "last axis of the indices"),
    ],
)
def test_a_point_outside_is_an_error(index: Any, updates: Any, text: str) -> None:
    """It says where, what, and what would fit."""
    one = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], name="write")
    given = [value("x", (5, 6)), value("u", updates)]
    with pytest.raises(InvalidModel, match=f"write.*{text}"):
        read(model([one], given, "y", {"i": np.asarray(index, np.int64)}))


@pytest.mark.parametrize(
    ("index", "updates"), [((2, 7), (2, 7)), ((2, 3), (2, 2)), ((2,), (2,))]
)
def test_elements_outside_are_an_error(index: Any, updates: Any) -> None:
    """Indices beyond the data, or of another shape than the updates."""
    one = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], name="write")
    given = [value("x", (5, 6)), value("i", index, I64), value("u", updates)]
    with pytest.raises(InvalidModel, match=r"write.*into"):
        read(model([one], given, "y"))


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_takes_its_update(opencl: Backend, mode: str) -> None:
    """From an index of each sequence's own on, past the end if it is a ring."""
    rng = np.random.default_rng(1)
    cache = rng.standard_normal((3, 2, 7, 4)).astype(np.float32)
    update = rng.standard_normal((3, 2, 3, 4)).astype(np.float32)
    start = np.asarray([0, 4, 6 if mode == "circular" else 2])
    wanted = cache.copy()
    for row, first in enumerate(start):
        for k in range(3):
            wanted[row, :, (first + k) % 7] = update[row, :, k]
    shapes = {"x": cache.shape, "u": update.shape}
    given = [*(value(n, s) for n, s in shapes.items()), value("i", (3,), I64)]
    one = node("TensorScatter", "x u i", "y", mode=mode)
    read_ = load(model([one], given, "y", opset=24).SerializeToString())
    plan = generated_plan(read_)
    assert [kernel.family in GENERATED for kernel in plan.kernels] == [True]
    feeds = {"x": cache, "u": update, "i": start}
    np.testing.assert_array_equal(run_plan(read_, plan, feeds, opencl)["y"], wanted)
