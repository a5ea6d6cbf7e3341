"""Piecewise plans of a model whose best partition changes with its sizes."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import helper

from cost_model.catalog import find as find_device
from service.cli import pieces
from service.jobs.bucketing import Asked, Piecewise, Points, plan_pieces
from service.jobs.planning import Planner as Reader
from service.jobs.planning import Question
from tests.service.cli.conftest import Fuseplan, fuseplan  # noqa: F401 - a fixture
from tuner.assembly import limits_for
from tuner.errors import InvalidOption
from tuner.fusion.buckets import MARGIN, MOST_BUCKETS
from tuner.fusion.transfer import grouping, transferred

ROWS, COLUMNS = (1, 4096), (32, 128)


def normalised(
    rows: str = "rows",
    columns: str = "columns",
    *,
    tag: str = "",
    axes: list[int] | None = None,
) -> bytes:
    """A map, its total over some axes or all, and a division: one to three kernels."""
    shape = [rows, columns]
    over = ["t"] if axes is None else ["t", "axes"]

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tag + name, onnx.TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Exp", [tag + "x"], ["e"], name=tag + "exp"),
        helper.make_node("Tanh", ["e"], ["t"], name=tag + "tanh"),
        helper.make_node("ReduceSum", over, ["s"], name=tag + "total", keepdims=1),
        helper.make_node("Div", ["t", "s"], [tag + "y"], name=tag + "div"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
    if axes is not None:
        kept = onnx.numpy_helper.from_array(np.array(axes, dtype=np.int64), "axes")
        graph.initializer.append(kept)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def _pieces(
    data: bytes,
    ranges: dict[str, tuple[int, int]],
    options: dict[str, Any] | None = None,
    **limits: Any,
) -> tuple[Piecewise, Points]:
    question = Question(data=data, form="onnx", target="ideal", options=options or {})
    asked = Asked(question=question, ranges=ranges)
    reader, device = Reader(plan_seconds=10.0), find_device("ideal")
    found = plan_pieces(asked, reader, device, **limits)
    points = Points(
        asked=asked,
        reader=reader,
        device=device,
        time_limit_seconds=10.0,
        names=tuple(sorted(ranges)),
    )
    return found, points


@pytest.fixture(scope="module")
def one() -> tuple[Piecewise, Points]:
    """One open dimension."""
    return _pieces(normalised(), {"rows": ROWS}, {"shapes": {"columns": 64}})


def test_the_partition_changes_with_the_size(one: tuple[Piecewise, Points]) -> None:
    """There are breakpoints, and just at each of them another partition is best."""
    found, points = one
    (breakpoints,) = found.as_json["breakpoints"].values()
    assert breakpoints
    assert found.pieces.complete
    for start in breakpoints:
        before, after = found.pieces.find((start - 1,)), found.pieces.find((start,))
        assert before is not None
        assert after is not None
        points.best((start,))
        assert points.loss(before.partition, (start,)) > MARGIN
        assert before.partition != after.partition


def test_direct_plans_inside_a_bucket_are_its_partition_or_near(
    one: tuple[Piecewise, Points],
) -> None:
    """At random sizes a plan of its own gains no more than the margin."""
    found, points = one
    rng = random.Random(7)
    for bucket in found.pieces.buckets:
        assert bucket.loss <= found.pieces.margin
        for _ in range(6):
            size = (rng.randint(bucket.low[0], bucket.high[0]),)
            if points.best(size) != bucket.partition:
                assert points.loss(bucket.partition, size) <= found.pieces.margin


def test_a_partition_of_other_sizes_has_the_price_of_a_plan_of_its_own(
    one: tuple[Piecewise, Points],
) -> None:
    """Moved to sizes at which it is the best, it costs what the solver says."""
    _, points = one
    prepared, planner, solution = points.solved((64,))
    again, other, there = points.solved((65,))
    best = grouping(prepared.model.graph, solution.partition)
    assert best == grouping(again.model.graph, there.partition)
    moved = transferred(
        again.model.graph,
        best,
        other.price,
        profile="reference",
        limits=limits_for(again.device, again.options),
    )
    assert moved is not None
    total = sum(choice.seconds for choice in moved)
    assert total == pytest.approx(there.partition.objective_seconds)
    assert planner is not other


def test_each_bucket_has_a_plan_and_the_range_in_which_it_holds(
    one: tuple[Piecewise, Points],
) -> None:
    """Validity names the extents of inputs as ranges; buckets cover all sizes once."""
    found, _ = one
    told = found.as_json
    assert told["dimensions"] == {"rows": list(ROWS)}
    ends = [bucket["ranges"]["rows"] for bucket in told["buckets"]]
    assert ends[0][0] == ROWS[0]
    assert ends[-1][1] == ROWS[1]
    assert all(b[0] == a[1] + 1 for a, b in pairwise(ends))
    for bucket in told["buckets"]:
        low, high = bucket["ranges"]["rows"]
        (shape,) = bucket["plan"]["validity"]["shapes"].values()
        assert shape == [low if low == high else [low, high], 64]
        assert low <= bucket["planned_at"]["rows"] <= high
        assert len(bucket["plan"]["kernels"]) == bucket["kernels"]
    assert told["timing"]["planning_seconds"] > 0
    assert told["points_solved"] == found.pieces.solved


def test_two_dimensions_are_cut_into_boxes() -> None:
    """Buckets are boxes; with few of them the answer says what they may lose."""
    ranges = {"rows": ROWS, "columns": COLUMNS}
    found, points = _pieces(normalised(), ranges, most=8)
    told = found.as_json
    assert 1 < len(told["buckets"]) <= 8 < MOST_BUCKETS
    assert all(len(b["ranges"]) == 2 for b in told["buckets"])
    largest = max(b["largest_loss"] for b in told["buckets"])
    assert told["complete"] == (largest <= MARGIN)
    rng = random.Random(3)
    for _ in range(10):
        size = (rng.randint(*COLUMNS), rng.randint(*ROWS))
        bucket = found.pieces.find(size)
        assert bucket is not None
        points.best(size)
        stated = max(bucket.loss, MARGIN)
        assert points.loss(bucket.partition, size) <= stated * 1.01


def test_names_leave_no_trace_in_the_key(one: tuple[Piecewise, Points]) -> None:
    """Renamed nodes, tensors and ranged dimensions give the same key; ranges do not."""
    found, _ = one
    renamed, _ = _pieces(
        normalised("n", "columns", tag="other_"),
        {"n": ROWS},
        {"shapes": {"columns": 64}},
    )
    assert renamed.key.key == found.key.key
    shorter, _ = _pieces(normalised(), {"rows": (1, 9)}, {"shapes": {"columns": 64}})
    assert shorter.key.key != found.key.key


def test_a_range_of_no_dimension_is_refused() -> None:
    """The message lists the open dimensions."""
    with pytest.raises(InvalidOption, match="rows, columns"):
        _pieces(normalised(), {"batch": (1, 8)})


def test_time_ends_with_buckets_that_cover_everything() -> None:
    """Out of time at once, one bucket is left, and says what it is."""
    found, _ = _pieces(
        normalised(),
        {"rows": ROWS},
        {"shapes": {"columns": 64}},
        time_limit_seconds=0.0,
    )
    (bucket,) = found.pieces.buckets
    assert (bucket.low, bucket.high) == ((ROWS[0],), (ROWS[1],))


def test_a_lookup_with_sizes_finds_the_bucket(
    fuseplan: Fuseplan,  # noqa: F811 - a fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After `plan` with ranges, `lookup` gives the bucket; other sizes are planned."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model.onnx"
    model.write_bytes(normalised())
    words = ("--shape", "rows=1..4096,columns=64", "-t", "ideal", "--json")
    planned = fuseplan("plan", model, *words)
    assert planned.code == 0, planned.err
    first = planned.json["buckets"][0]["plan"]["kernels"][0]
    assert set(first["nodes"]) <= {"exp", "tanh", "total", "div"}
    text = fuseplan("plan", model, *words[:4], "--groups").out
    assert "breakpoints  rows: " in text
    assert text.count("largest loss") == len(planned.json["buckets"])
    assert "  k0: exp, tanh" in text
    for rows in (1, 100, 4000):
        shape = ("--shape", f"rows={rows},columns=64", "-t", "ideal", "--json")
        found = fuseplan("lookup", model, *shape).json
        assert found["source"] == "bucket"
        low, high = found["bucket"]["ranges"]["rows"]
        assert low <= rows <= high
        (bucket,) = [
            b for b in planned.json["buckets"] if b["ranges"]["rows"] == [low, high]
        ]
        assert found["digest"] == bucket["digest"]
        names = {name for kernel in found["kernels"] for name in kernel["nodes"]}
        assert {"exp", "tanh", "total", "div"} == names
    for other in ("rows=5000,columns=64", "rows=100,columns=65"):
        missed = fuseplan("lookup", model, "--shape", other, "-t", "ideal", "--json")
        assert missed.json["source"] == "analytic"
    for file in (tmp_path / "cache").rglob("*.json"):
        file.write_text("{ broken")
    missed = fuseplan("lookup", model, *shape)
    assert json.loads(missed.out)["source"] == "analytic"


@pytest.mark.parametrize(
    "word", ["rows=0..5", "rows=9..5", "rows=1..", "=1..5", "r=a..b"]
)
def test_wrong_ranges_are_refused(
    fuseplan: Fuseplan,  # noqa: F811 - a fixture
    tmp_path: Path,
    word: str,
) -> None:
    """A range goes from a positive size to one that is no smaller."""
    model = tmp_path / "model.onnx"
    model.write_bytes(normalised())
    ended = fuseplan("plan", model, "--shape", word)
    assert ended.code == 2
    assert "--shape" in ended.err


def test_a_lookup_where_the_model_has_other_operators_says_so(
    fuseplan: Fuseplan,  # noqa: F811 - a fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One row needs no total over rows: a plan for many holds at all sizes but that.

    Out of time there is one bucket; its plan is of a size that is like most others.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model.onnx"
    model.write_bytes(normalised(axes=[0]))
    asked = pieces.Ranged(model, "ideal", ["columns=64"], {"rows": (1, 4096)}, {}, ())
    assert len(pieces.plan(asked, time_limit_seconds=0.0).pieces.buckets) == 1
    for rows, source in ((77, "bucket"), (3000, "bucket"), (1, "analytic")):
        shape = ("--shape", f"rows={rows},columns=64", "-t", "ideal", "--json")
        found = fuseplan("lookup", model, *shape)
        assert found.json["source"] == source, rows
        assert ("other operators" in found.err) == (source == "analytic")
