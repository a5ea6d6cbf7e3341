"""Plans whose reductions are two launches: priced, placed, run and written down."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.conftest import GLANCE_SECONDS
from tests.tuner.frontend.models import model, node, value
from tuner import document, execution, pipeline
from tuner.assembly import bound_to, kernel_form, kernel_sources
from tuner.errors import InternalError
from tuner.execution import run_plan
from tuner.fusion.memory import needed_bytes
from tuner.kernel.split import is_split
from tuner.plan import Options

if TYPE_CHECKING:
    import onnx

    from tuner.plan import Plan, PlannedKernel

SHAPES = ((512, 1024), (512,), (30_000, 64), (7, 9))


def scaled(elements: int) -> onnx.ModelProto:
    """The greatest magnitude in a vector, and the vector divided by it."""
    return model(
        [
            node("Abs", "x", "a"),
            node("ReduceMax", "a", "n", keepdims=0),
            node("Div", "x n", "y"),
        ],
        [value("x", [elements])],
        "n y",
    )


def clipped_sgd() -> onnx.ModelProto:
    """Tensors that are updated by gradients clipped by their global norm."""
    numbers = range(len(SHAPES))
    squares = [node("ReduceSumSquare", f"g{i}", f"s{i}", keepdims=0) for i in numbers]
    total = [
        node("Sum", " ".join(f"s{i}" for i in numbers), "total"),
        node("Sqrt", "total", "norm"),
        node("Max", "norm one", "above"),
        node("Div", "rate above", "scale"),
    ]
    steps = [
        one
        for i in numbers
        for one in (
            node("Mul", f"g{i} scale", f"d{i}"),
            node("Sub", f"p{i} d{i}", f"q{i}"),
        )
    ]
    inputs = [value(f"{k}{i}", SHAPES[i]) for i in numbers for k in "pg"]
    constants = {"one": np.float32(1), "rate": np.float32(0.1)}
    outputs = " ".join(f"q{i}" for i in numbers)
    return model([*squares, *total, *steps], inputs, outputs, constants)


@cache
def planned(made: str, target: str, cap: int | None = None) -> Plan:
    """A plan of one of the models above."""
    proto = clipped_sgd() if made == "sgd" else scaled(int(made))
    read = pipeline.load(proto.SerializeToString(), "onnx")
    device = pipeline.resolve_target(target)
    options = Options(memory_cap_bytes=cap)
    return pipeline.make_plan(read, device, options)


def split(plan: Plan) -> list[PlannedKernel]:
    """The kernels of two launches."""
    return [kernel for kernel in plan.kernels if is_split(kernel.schedule)]


def test_a_clipped_step_is_planned_faster() -> None:
    """Long sums are split, short ones are not, and that halves what the step costs."""
    plan = planned("sgd", "sm_90")
    whole = planned("sgd", "sm_90", 1 << 40)
    assert split(plan)
    assert not split(whole)
    ours, theirs = (p.partition.objective_seconds for p in (plan, whole))
    assert ours < theirs / 2
    for kernel in (*plan.kernels, *whole.kernels):
        assert ("~" in " ".join(_touched(kernel))) == is_split(kernel.schedule)


def _touched(kernel: PlannedKernel) -> list[str]:
    launches = [one for source in kernel.sources for one in source.launches]
    return [a.tensor for one in launches for a in one.arguments]


def test_the_objective_is_the_sum_of_all_launches() -> None:
    """The planner prices the group as what its two launches cost."""
    plan = planned("3000000", "sm_90")
    (kernel,) = split(plan)
    choice = plan.partition.choices[plan.kernels.index(kernel)]
    assert choice.seconds == pytest.approx(kernel.estimate.seconds)
    total = sum(each.estimate.seconds for each in plan.kernels)
    assert plan.partition.objective_seconds == pytest.approx(total)
    assert plan.partition.bound_seconds <= plan.partition.objective_seconds


def test_scratch_memory_lies_in_the_arena_and_overlaps_nothing_alive() -> None:
    """Each kernel's own, for that kernel alone."""
    for made in ("sgd", "3000000"):
        plan = planned(made, "sm_90")
        buffers = plan.memory.buffers
        for kernel in split(plan):
            step = plan.kernels.index(kernel)
            mine = [b for b in buffers if b.tensor.startswith(f"{kernel.name}~")]
            sizes = {n: kind.bytes for n, kind in kernel.sources[0].scratch.items()}
            assert {b.tensor: b.bytes for b in mine} == sizes
            for own in mine:
                assert (own.first, own.last) == (step, step)
                assert own.offset + own.bytes <= plan.memory.arena_bytes
            alive = [b for b in buffers if b.first <= step <= b.last]
            spans = sorted((b.offset, b.offset + b.bytes) for b in alive)
            for (_, end), (start, _) in pairwise(spans):
                assert end <= start


def test_every_argument_is_scratch_memory_or_a_tensor_of_the_plan() -> None:
    """One that is neither is a fault of ours, and passes for no tensor of the plan."""
    plan = planned("3000000", "sm_90")
    (kernel,) = split(plan)
    form = kernel_form(plan.graph, kernel.region, kernel.family)
    (source, *_) = kernel_sources(form, kernel.schedule)
    assert bound_to(source, form.names, kernel.name) == kernel.sources[0]
    names = {n: there for n, there in form.names.items() if n not in form.graph.outputs}
    with pytest.raises(InternalError, match="no tensor of the plan"):
        bound_to(source, names, kernel.name)


def test_a_cap_of_memory_is_kept() -> None:
    """Under a cap nothing is split: scratch memory would go past it unseen."""
    cap = 4 * (2 * 3_000_000 + 1)
    free = planned("3000000", "sm_90")
    plan = planned("3000000", "sm_90", cap)
    assert not split(plan)
    assert needed_bytes(free.graph, free.memory) > cap
    assert needed_bytes(plan.graph, plan.memory) <= cap


@pytest.mark.parametrize("elements", [1, 1000, 3_000_017])
def test_a_plan_runs_and_agrees_with_the_library(elements: int) -> None:
    """With and without parts, on this machine's processor, verified."""
    read = pipeline.load(scaled(elements).SerializeToString(), "onnx")
    plan = planned(str(elements), "cpu")
    assert bool(split(plan)) == (elements > 1_000_000)
    report = run_plan(read, plan, device="cpu", sample_seconds=GLANCE_SECONDS)
    assert report.verified


def test_the_error_of_the_librarys_own_long_sum_is_no_fault_of_a_plan() -> None:
    """The length of a vector of three million: the library adds one by one."""
    proto = model(
        [node("ReduceL2", "x", "n", keepdims=0)], [value("x", [3_000_000])], "n"
    )
    read = pipeline.load(proto.SerializeToString(), "onnx")
    plan = pipeline.make_plan(read, pipeline.resolve_target("cpu"), Options())
    assert run_plan(read, plan, sample_seconds=GLANCE_SECONDS).verified


def test_a_stored_body_tells_both_launches() -> None:
    """The body says what runs first, on what, and where the parts' results lie."""
    plan = planned("3000000", "sm_90")
    body = document.body(plan, target={}, toolchain={})
    (kernel,) = split(plan)
    (told,) = [k for k in body["kernels"] if k["name"] == kernel.name]
    launch = told["launch"]
    (before,) = launch["before"]
    assert before["entry"] != launch["entry"]
    (name,) = launch["scratch"]
    assert name in before["arguments"]
    assert name in launch["arguments"]
    assert name in {b["tensor"] for b in body["buffers"]}
    others = [k["launch"] for k in body["kernels"] if k is not told]
    assert all("before" not in other for other in others if other)


def test_a_program_knows_the_types_of_its_scratch_memory() -> None:
    """What an executor or an export allocates has a type like any tensor."""
    read = pipeline.load(scaled(3_000_000).SerializeToString(), "onnx")
    plan = planned("3000000", "sm_90")
    program = execution.program(read, plan, "cuda")
    for buffer in program.memory.buffers:
        assert program.types[buffer.tensor].bytes == buffer.bytes
