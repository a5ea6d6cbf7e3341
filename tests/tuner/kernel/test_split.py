"""Reductions in two launches: right, cheaper where rows are few, else refused."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cost_model.catalog import find
from cost_model.roofline import predict
from tests.conftest import SOAK
from tests.tuner.kernel.builder import Builder, softmax
from tests.tuner.kernel.golden import SPLITS, norm
from tests.tuner.kernel.running import complaint, random_feeds, run
from tests.tuner.kernel.test_side_by_side import squares
from tuner.errors import InternalError
from tuner.ir.types import DType
from tuner.kernel.count import work
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default, is_legal
from tuner.kernel.split import (
    halves,
    is_split,
    joined,
    launches,
    part_length,
    reduced_axis,
)
from tuner.kernel.split_space import split_default, split_fault, split_space
from tuner.plan import Family, Options, Resources
from tuner.pricing import launches_in_words, predict_nest, price
from tuner.runtime import nvrtc

if TYPE_CHECKING:
    from cost_model.device import Device
    from tuner.ir.graph import Graph
    from tuner.kernel.nest import LoopNest
    from tuner.plan import Schedule
    from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")
H100 = find("sm_90")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FLOATS = (DType.F32, DType.F16, DType.BF16, DType.F64)
REDUCTIONS = ("reduce_prod", "reduce_sum", "reduce_max", "reduce_min")
WHOLE = (DType.I32, DType.I64, DType.I8, DType.U8)
SEEDS = 200 if SOAK else 8
PAIRS = [
    (op, dtype)
    for place, dtype in enumerate(FLOATS + WHOLE)
    for number, op in enumerate(REDUCTIONS)
    if SOAK or number in (1, (0, 2, 3)[place % 3])
]
"""Sums of every type, and one other reduction; in the long form all."""


def cut(graph: Graph, parts: int) -> Schedule:
    """The plain schedule of a kernel in so many parts."""
    first, second = halves(lower(graph), parts)
    return joined(parts, default(first, CPU), default(second, CPU))


def reduced(
    op: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType
) -> Graph:
    """One reduction of an input."""
    b = Builder()
    return b.graph(b.op(op, b.input(*shape, dtype=dtype), axes=axes, keepdims=0))


def drawn(seed: int) -> Graph:
    """A reduction over some axes with something in front and behind."""
    draw = Random(seed)
    b = Builder()
    shape = tuple(draw.choice((1, 2, 3, 5, 17, 64, 130, 1021)) for _ in range(3))
    while math.prod(shape) > 30_000:
        shape = (*sorted(shape)[:-1], 7)
    axes = tuple(sorted(draw.sample(range(3), draw.randint(1, 3))))
    if all(shape[axis] == 1 for axis in axes):
        shape = tuple(37 if axis == axes[0] else n for axis, n in enumerate(shape))
    keep = draw.randint(0, 1)
    dtype = draw.choice(FLOATS[:3])
    x = b.input(*shape, dtype=dtype)
    y = b.op(draw.choice(("mul", "maximum", "add")), x, b.input(shape[2], dtype=dtype))
    results = []
    for op in draw.sample(REDUCTIONS[1:], 1 + seed % 2):
        source = b.op("abs", y) if draw.random() < 0.5 else y
        results.append(b.op(op, source, axes=axes, keepdims=keep))
    behind = b.op("sub", results[0], results[-1]) if seed % 2 else b.op("neg", *results)
    outputs = [b.op("tanh", behind), results[0]]
    return b.graph(*outputs, *([y] if draw.random() < 0.3 else []))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_reductions_in_parts_are_right(opencl: OpenCLBackend, seed: int) -> None:
    """Any shape, axes, prologue, epilogue and number of parts: what NumPy computes."""
    graph = drawn(seed)
    longest = reduced_axis(graph)
    feeds = random_feeds(graph, seed)
    for parts in {min(2 + seed % 4, longest), longest}:
        found = run(opencl, graph, cut(graph, parts), feeds)
        assert complaint(graph, feeds, found) == ""


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_every_reduction_in_every_type(
    opencl: OpenCLBackend, op: str, dtype: DType
) -> None:
    """Parts that do not divide the rows are filled with what changes nothing."""
    shape, axes = Random(op + dtype).choice(
        (((2, 1001), (1,)), ((300, 24), (0,)), ((4099,), (0,)), ((3, 2, 555), (0, 2)))
    )
    graph = reduced(op, shape, axes, dtype)
    feeds = random_feeds(graph, 3)
    if op == "reduce_min" and dtype is DType.I64:
        with pytest.raises(CannotLower, match="no filler"):
            cut(graph, 7)
        return
    found = run(opencl, graph, cut(graph, 7), feeds)
    assert complaint(graph, feeds, found) == ""


def test_a_value_that_is_no_number_stays_none(opencl: OpenCLBackend) -> None:
    """Maximum, minimum and sum keep it, in whatever part of the row it lies."""
    for op in ("reduce_max", "reduce_min", "reduce_sum"):
        graph = reduced(op, (2, 1001), (1,), DType.F32)
        for place in (0, 500, 1000):
            (name,) = graph.inputs
            values = np.ones((2, 1001), np.float32)
            values[1, place] = np.nan
            (found,) = run(opencl, graph, cut(graph, 4), {name: values}).values()
            assert np.isfinite(found[0])
            assert np.isnan(found[1])


def test_halves_are_summed_in_single_precision(opencl: OpenCLBackend) -> None:
    """Partial sums of 16-bit values are not rounded to 16 bits."""
    graph = reduced("reduce_sum", (1 << 16,), (0,), DType.F16)
    values = np.full(1 << 16, 1 / 64, np.float16)
    values[::2] = 1.0 / 63.0
    true = float(values.astype(np.float64).sum())
    (found,) = run(opencl, graph, cut(graph, 64), {graph.inputs[0]: values}).values()
    assert found == np.float16(true)


def test_equal_inputs_give_equal_bits(opencl: OpenCLBackend) -> None:
    """Partial results are put together in one order, run for run."""
    graph = norm(100_003)
    feeds = random_feeds(graph, 5)
    runs = [run(opencl, graph, cut(graph, 9), feeds) for _ in range(4)]
    first = {name: value.tobytes() for name, value in runs[0].items()}
    for other in runs[1:]:
        assert {name: value.tobytes() for name, value in other.items()} == first


def test_rows_with_no_more_than_one_element_have_no_parts() -> None:
    """Nothing to reduce, and one element a row, are kernels of one launch."""
    for shape in ((5, 0), (0, 5), (5, 1)):
        nest = lower(reduced("reduce_sum", shape, (1,), DType.F32))
        assert split_default(nest, H100) == ()
        with pytest.raises(CannotLower, match=r"elements|one element"):
            halves(nest, 2)


def test_what_needs_finished_rows_is_refused_with_the_reason() -> None:
    """All elements of a softmax read the maximum of their row."""
    with pytest.raises(CannotLower, match="need the finished result of a row"):
        halves(lower(softmax(2, 100_000)), 4)
    assert "finished result" in split_fault(lower(softmax(2, 100_000)), H100)
    assert split_default(lower(softmax(2, 100_000)), H100) == ()


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_few_long_rows_are_split_on_a_gpu(rows: int) -> None:
    """Rows of a million elements leave most of 132 multiprocessors idle."""
    graph = reduced("reduce_sum", (rows, 1_000_000), (1,), DType.F32)
    nest = lower(graph)
    plain = predict_nest(nest, default(nest, H100), H100, Options())
    found = price(graph, Family.REDUCTION, H100, Options())
    assert found is not None
    assert is_split(found.schedule)
    assert found.estimate.seconds < plain.estimate.seconds / 2
    assert found.floor_seconds <= min(plain.floor_seconds, found.estimate.seconds)


def test_many_rows_are_not_split() -> None:
    """Where rows keep the device busy, parts would only cost a launch."""
    for shape in ((1000, 4096), (132, 100_000)):
        nest = lower(reduced("reduce_sum", shape, (1,), DType.F32))
        assert split_default(nest, H100) == ()
    for shape in ((4, 1000), (1, 64)):
        found = price(
            reduced("reduce_sum", shape, (1,), DType.F32),
            Family.REDUCTION,
            H100,
            Options(),
        )
        assert found is not None
        assert not is_split(found.schedule)


def test_the_price_is_that_of_both_launches() -> None:
    """Each launch is predicted like a kernel of its own, and no bound lies above."""
    for device in (CPU, H100, find("a100-80")):
        for make in SPLITS.values():
            nest = lower(make())
            for schedule in split_default(nest, device):
                found = predict_nest(nest, schedule, device, Options())
                apart = [
                    predict(work(one, its, device), device)
                    for one, its in launches(nest, schedule)
                ]
                assert len(apart) == 2
                total = sum(each.seconds for each in apart)
                assert found.estimate.seconds == pytest.approx(total)
                assert found.floor_seconds <= found.estimate.seconds
                moved = [w.read_bytes + w.written_bytes for w in found.launches]
                whole = work(nest, default(nest, device), device)
                assert sum(moved) > whole.read_bytes + whole.written_bytes


def test_operations_are_those_of_the_way_that_does_fewer() -> None:
    """A kernel in parts does what both launches do; compared, no more than either."""
    for make in SPLITS.values():
        graph = make()
        nest = lower(graph)
        (plain, *cuts) = (default(nest, H100), *split_default(nest, H100))
        told = [
            price(graph, Family.REDUCTION, H100, Options(), schedule=each)
            for each in (plain, *cuts)
        ]
        for schedule, found in zip((plain, *cuts), told, strict=True):
            assert found is not None
            apart = [work(*each, H100) for each in launches(nest, schedule)]
            for pipe, count in found.operations.items():
                assert count == sum(w.operations.get(pipe, 0.0) for w in apart)
        best = price(graph, Family.REDUCTION, H100, Options())
        assert best is not None
        for pipe, count in best.operations.items():
            ways = [each.operations.get(pipe, 0.0) for each in told if each]
            assert count in ways
            assert count <= ways[0]


def test_a_compilers_word_needs_the_schedule_it_is_of() -> None:
    """Registers of one schedule are not taken for those of another."""
    found = Resources(
        registers=32,
        spill_store_bytes=0,
        spill_load_bytes=0,
        shared_bytes=0,
        architecture="sm_90",
    )
    with pytest.raises(InternalError, match="schedule"):
        price(norm(1000), Family.REDUCTION, H100, Options(), resources=found)


def test_traffic_alone_and_capped_memory_split_nothing() -> None:
    """Partial results are traffic, and memory that a cap does not see."""
    graph = norm(10_000_000)
    for device, options in (
        (find("ideal"), Options()),
        (H100, Options(memory_cap_bytes=1 << 40)),
    ):
        found = price(graph, Family.REDUCTION, device, options)
        assert found is not None
        assert not is_split(found.schedule)


@pytest.mark.parametrize("name", list(SPLITS))
def test_every_schedule_of_the_space_is_right(opencl: OpenCLBackend, name: str) -> None:
    """Drawn schedules of both a processor's and a GPU's space compute the result."""
    graph = SPLITS[name]()
    nest = lower(graph)
    feeds = random_feeds(graph, 1)
    for device in (CPU, H100):
        schedules = split_space(nest, device)
        assert len(set(schedules)) == len(schedules)
        assert len({tuple(s.as_dict) for s in schedules}) == 1
        assert {is_split(s) for s in schedules} == {True, False}
        for schedule in Random(7).sample(schedules, 4):
            found = run(opencl, graph, schedule, feeds)
            assert complaint(graph, feeds, found) == ""


@pytest.mark.parametrize("threads", [64, 512])
@pytest.mark.parametrize("name", list(SPLITS))
def test_both_launches_of_every_schedule_fit_the_device(
    name: str, threads: int
) -> None:
    """Also where blocks are smaller than what is good without tuning."""
    nest, device = lower(SPLITS[name]()), replace(H100, max_block_threads=threads)
    for schedule in split_space(nest, device):
        for one, its in launches(nest, schedule):
            assert is_legal(one, its, device)


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
@pytest.mark.parametrize("name", list(SPLITS))
def test_both_launches_compile_for_every_architecture(name: str) -> None:
    """One text holds both functions, and neither spills."""
    nest = lower(SPLITS[name]())
    for architecture in ARCHITECTURES:
        schedule = split_default(nest, H100)[-1]
        source = render(nest, schedule, CUDA)
        assert [one.entry for one in source.launches] == ["fused_0", "fused"]
        found = nvrtc.compile_cubin(source, architecture).resources
        assert found.spill_store_bytes == found.spill_load_bytes == 0


def test_loops_side_by_side_have_parts_of_equal_length(opencl: OpenCLBackend) -> None:
    """The longest has as many as were asked for, shorter ones fewer, short ones one."""
    graph = squares((512, 64), (7,), (100, 100), (2, 3))
    feeds = random_feeds(graph, 2)
    for parts in (2, 5, 64):
        schedule = cut(graph, parts)
        found = run(opencl, graph, schedule, feeds)
        assert complaint(graph, feeds, found) == ""
        source = render(lower(graph), schedule, OPENCL)
        counts = [kind.elements for kind in source.scratch.values()]
        length = part_length(512 * 64, parts)
        assert counts == [-(-n // length) for n in (512 * 64, 7, 100 * 100, 6)]


def test_a_reduction_of_reduced_values_is_refused() -> None:
    """Short sums inside long rows are no parts of these rows."""
    b = Builder()
    near = b.op("reduce_sum", b.input(2, 30_000, 4), axes=(2,), keepdims=0)
    graph = b.graph(b.op("reduce_max", near, axes=(1,), keepdims=0))
    with pytest.raises(CannotLower, match="different rows"):
        halves(lower(graph), 4)


@pytest.mark.parametrize(
    ("graph", "device", "word"),
    [
        (norm(10_000_000), H100, "parts: one would cost +"),
        (norm(100), H100, "one: 100 elements for a block are too few"),
        (softmax(2, 100_000), H100, "one: n1: elements need the finished result"),
        (softmax(4096, 8192), H100, "blocks keep 132 multiprocessors busy"),
        (norm(10_000_000), find("ideal"), "one: scratch memory would be traffic"),
    ],
)
def test_a_kernel_says_how_often_it_is_launched_and_why(
    graph: Graph, device: Device, word: str
) -> None:
    """In one line: the price of the other way, or what stands against it."""
    found = price(graph, Family.REDUCTION, device, Options())
    assert found is not None
    assert word in launches_in_words(graph, found.schedule, device, Options())


@pytest.mark.parametrize(
    ("device", "shape"), [("a100-80", (8, 131_072)), ("sm_120", (4, 200_000))]
)
def test_no_number_of_parts_is_dearer_than_one_launch(
    device: str, shape: tuple[int, int]
) -> None:
    """Not even where more parts take hardly longer than the fastest number of them."""
    graph, target = reduced("reduce_sum", shape, (1,), DType.F32), find(device)
    nest = lower(graph)
    plain = _seconds(nest, default(nest, target), target)
    cuts = [_seconds(nest, each, target) for each in split_default(nest, target)]
    assert min(cuts) < plain < max(cuts) < 1.01 * min(cuts)
    found = price(graph, Family.REDUCTION, target, Options())
    assert found is not None
    assert is_split(found.schedule)
    assert found.estimate.seconds <= plain


def test_one_launch_is_compared_with_the_cheapest_number_of_parts() -> None:
    """What two launches would cost is what the best two would."""
    graph = reduced("reduce_sum", (16, 80_000), (1,), DType.F32)
    nest = lower(graph)
    plain = default(nest, H100)
    cuts = [_seconds(nest, each, H100) for each in split_default(nest, H100)]
    more = 1e6 * (min(cuts) - _seconds(nest, plain, H100))
    assert min(cuts) < cuts[0]
    told = launches_in_words(graph, plain, H100, Options())
    assert told == f"one: two would cost {more:+.2f} µs"


def _seconds(nest: LoopNest, schedule: Schedule, device: Device) -> float:
    return predict_nest(nest, schedule, device, Options()).estimate.seconds


def test_launches_agree_on_their_scratch_memory() -> None:
    """What the first writes is what the second reads, with the same type."""
    for make in SPLITS.values():
        nest = lower(make())
        source = render(nest, split_default(nest, CPU)[0], OPENCL)
        first, second = source.launches
        made = {a.tensor: a.scratch for a in first.arguments if a.is_output}
        read = {a.tensor: a.scratch for a in second.arguments if not a.is_output}
        assert made == read == dict(source.scratch)
        assert source.text == first.text == second.text
        assert replace(source, before=()) == second
