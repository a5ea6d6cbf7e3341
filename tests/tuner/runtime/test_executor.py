"""Whole programs: arena, aliases, prepare, generated and library steps together."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import parser

from tests.tuner.runtime.graphs import graph_of, source, tensor
from tuner.errors import InternalError, KernelFailed
from tuner.ir.graph import Graph
from tuner.ir.types import Array
from tuner.plan import Buffer, MemoryPlan
from tuner.runtime.bench import Bench
from tuner.runtime.executor import Executor, spread
from tuner.runtime.null import NullBackend
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.requests import Again, PlanRequest, PlanResult, Program, Step
from tuner.runtime.runner import Runner
from tuner.runtime.server import Desk, answer
from tuner.runtime.whole import measure_programs

ROWS, INNER, COLUMNS = 16, 32, 64
COUNT = ROWS * COLUMNS


def _whole() -> Graph:
    """O = reshape(exp(x @ w2 + x @ w2)); w2 = w * 2 is prepared."""
    return graph_of(
        [
            ("h", "matmul", ["x", "w2"], {}),
            ("a", "add", ["h", "h"], {}),
            ("flat", "reshape", ["a"], {"shape": (COUNT,)}),
            ("e", "exp", ["flat"], {}),
            ("o", "reshape", ["e"], {"shape": (COLUMNS, ROWS)}),
        ],
        {"x": tensor(ROWS, INNER), "w2": tensor(INNER, COLUMNS)},
        ["o"],
        weights=("w2",),
    )


def _prepare() -> Graph:
    return graph_of(
        [("w2", "add", ["w", "w"], {})], {"w": tensor(INNER, COLUMNS)}, ["w2"]
    )


def _part(
    graph: Graph, outputs: tuple[str, ...], inputs: tuple[str, ...], *names: str
) -> Graph:
    nodes = tuple(graph.by_name[f"n_{name}"] for name in names)
    return replace(graph, nodes=nodes, inputs=inputs, outputs=outputs, weights=())


def _program(*, generated: bool) -> Program:
    graph = _whole()
    add = source("a[i] = h[i] + h[i];", reads=["h"], writes=["a"], count=COUNT)
    exp = source("e[i] = exp(a[i]);", reads=["a"], writes=["e"], count=COUNT)
    size = 4 * COUNT
    return Program(
        steps=(
            Step(name="k0", graph=_part(graph, ("h",), ("x", "w2"), "h")),
            Step(
                name="k1",
                graph=_part(graph, ("a",), ("h",), "a"),
                source=add if generated else None,
            ),
            Step(
                name="k2",
                graph=_part(graph, ("e",), ("a",), "flat", "e"),
                source=exp if generated else None,
            ),
        ),
        inputs=("x",),
        outputs=("o",),
        weights=("w",),
        types={**graph.types, **_prepare().types},
        memory=MemoryPlan(
            buffers=(
                Buffer(tensor="h", offset=0, bytes=size, first=0, last=1),
                Buffer(tensor="a", offset=size, bytes=size, first=1, last=2),
            ),
            aliases={"flat": "a", "o": "e"},
            arena_bytes=2 * size,
            peak_bytes=3 * size,
        ),
        prepare=_prepare(),
    )


@pytest.fixture
def values() -> dict[str, Array]:
    """An input and a weight."""
    random = np.random.default_rng(0)
    return {
        "x": random.standard_normal((ROWS, INNER)).astype(np.float32),
        "w": random.standard_normal((INNER, COLUMNS)).astype(np.float32) / 32,
    }


def _truth(values: Mapping[str, Any]) -> Array:
    made = np.exp(values["x"] @ (values["w"] * 4))
    result: Array = made.reshape(COLUMNS, ROWS)
    return result


@pytest.mark.parametrize("generated", [True, False])
def test_a_program_gives_the_right_numbers(
    opencl: OpenCLBackend, values: dict[str, Array], *, generated: bool
) -> None:
    """Generated kernels and library calls share one arena and one order."""
    executor = Executor(_program(generated=generated), {"w": values["w"]}, opencl)
    for _ in range(3):
        found = executor.run({"x": values["x"]})
        np.testing.assert_allclose(found["o"], _truth(values), rtol=1e-5)
    other = {"x": values["x"] + 1, "w": values["w"]}
    found = executor.run({"x": other["x"]})
    np.testing.assert_allclose(found["o"], _truth(other), rtol=1e-5)


def test_a_program_is_timed_whole_and_by_step(
    opencl: OpenCLBackend, values: dict[str, Array]
) -> None:
    """The whole has an interval, each step a time."""
    executor = Executor(_program(generated=True), {"w": values["w"]}, opencl)
    executor.load({"x": values["x"]})
    found = executor.time(repeats=7, budget_seconds=0.05)
    assert found.low_seconds <= found.seconds <= found.high_seconds
    assert set(executor.step_seconds(1)) == {"k0", "k1", "k2"}
    assert executor.peak_memory_bytes == 3 * 4 * COUNT


def test_library_steps_run_without_any_device(values: dict[str, Array]) -> None:
    """A program of library calls needs no compiler."""
    executor = Executor(_program(generated=False), {"w": values["w"]}, NullBackend())
    found = executor.run({"x": values["x"]})
    np.testing.assert_allclose(found["o"], _truth(values), rtol=1e-5)


@pytest.mark.parametrize(
    ("generated", "alone", "awake"),
    [(False, True, "1"), (False, False, "0"), (True, True, "0")],
    ids=["library alone", "beside others", "with kernels"],
)
def test_the_library_stays_awake_only_where_it_computes_alone(
    monkeypatch: pytest.MonkeyPatch,
    opencl: OpenCLBackend,
    values: dict[str, Array],
    awake: str,
    *,
    generated: bool,
    alone: bool,
) -> None:
    """Its threads may spin from run to run if nothing else needs the processors."""
    runtime = pytest.importorskip("onnxruntime")
    told: set[str] = set()

    class Session(runtime.InferenceSession):  # type: ignore[misc, name-defined]
        def __init__(self, model: bytes, settings: Any, **more: Any) -> None:
            name = "session.intra_op.allow_spinning"
            told.add(settings.get_session_config_entry(name))
            super().__init__(model, settings, **more)

    monkeypatch.setattr(runtime, "InferenceSession", Session)
    program = _program(generated=generated)
    Executor(program, {"w": values["w"]}, opencl, alone=alone)
    assert told == {awake}


class _Remote(NullBackend):
    """A device whose memory the host does not see."""

    def host(self, memory: Any) -> None:
        """Nothing is seen."""


def test_library_steps_reach_memory_that_the_host_does_not_see(
    values: dict[str, Array],
) -> None:
    """Tensors are copied to the library and back where they cannot be shared."""
    executor = Executor(_program(generated=False), {"w": values["w"]}, _Remote())
    found = executor.run({"x": values["x"]})
    np.testing.assert_allclose(found["o"], _truth(values), rtol=1e-5)


class _Coarse(NullBackend):
    """A device that cuts memory at multiples of 8 KiB alone."""

    alignment_bytes = 8192


def test_a_device_may_cut_memory_in_larger_steps_than_the_plan(
    values: dict[str, Array],
) -> None:
    """Buffers move apart; a slice at another place is refused."""
    program = _program(generated=False)
    offsets = [buffer.offset for buffer in program.memory.buffers]
    assert any(offset % 8192 for offset in offsets)
    executor = Executor(program, {"w": values["w"]}, _Coarse())
    found = executor.run({"x": values["x"]})
    np.testing.assert_allclose(found["o"], _truth(values), rtol=1e-5)
    with pytest.raises(KernelFailed, match="no multiple of 8192"):
        _Coarse().slice(_Coarse().allocate(16384), 128, 8)


@pytest.mark.parametrize("alignment", [1, 128, 512, 4096])
def test_buffers_that_move_apart_stay_apart(alignment: int) -> None:
    """In order, at multiples, and never nearer to one behind."""
    draw = random.Random(alignment)
    offsets = [128 * draw.randrange(200) for _ in range(60)]
    found = spread(offsets, alignment)
    assert set(found) == set(offsets)
    assert all(place % alignment == 0 for place in found.values())
    for first, second in itertools.pairwise(sorted(found)):
        assert found[second] - found[first] >= second - first
    if alignment <= 128:
        assert all(found[offset] == offset for offset in offsets)


def test_a_step_may_have_names_of_its_own(values: dict[str, Array]) -> None:
    """A kernel's graph names its tensors as it likes; the step maps them."""
    program = _program(generated=False)
    inner = graph_of([("q", "exp", ["p"], {})], {"p": tensor(COUNT)}, ["q"])
    step = Step(name="k2", graph=inner, tensors={"p": "flat", "q": "e"})
    changed = replace(program, steps=(*program.steps[:2], step))
    executor = Executor(changed, {"w": values["w"]}, NullBackend())
    found = executor.run({"x": values["x"]})
    np.testing.assert_allclose(found["o"], _truth(values), rtol=1e-5)


def test_outputs_that_are_given_are_delivered(values: dict[str, Array]) -> None:
    """An output may be an input, a weight or a view of either."""
    kind = tensor(ROWS, INNER)
    program = Program(
        steps=(),
        inputs=("x",),
        outputs=("x", "v", "w", "c"),
        weights=("w",),
        constants={"c": np.arange(3.0, dtype=np.float32)},
        types={
            "x": kind,
            "v": tensor(ROWS * INNER),
            "w": tensor(INNER, COLUMNS),
            "c": tensor(3),
        },
        memory=MemoryPlan(buffers=(), aliases={"v": "x"}, arena_bytes=0, peak_bytes=0),
    )
    found = Executor(program, {"w": values["w"]}, NullBackend()).run(values)
    np.testing.assert_array_equal(found["v"], values["x"].reshape(-1))
    np.testing.assert_array_equal(found["w"], values["w"])
    np.testing.assert_array_equal(found["c"], [0, 1, 2])


def test_missing_values_are_named(values: dict[str, Array]) -> None:
    """A weight without a value, or an input of another shape, is named."""
    with pytest.raises(InternalError, match="w: no value"):
        Executor(_program(generated=False), {}, NullBackend())
    executor = Executor(_program(generated=False), {"w": values["w"]}, NullBackend())
    with pytest.raises(InternalError, match=r"x: fed float32\[1\]"):
        executor.run({"x": np.zeros(1, np.float32)})


def _model() -> bytes:
    text = f"""<ir_version: 10, opset_import: ["":21]>
    g (float[{ROWS},{INNER}] X, float[{INNER},{COLUMNS}] W)
      => (float[{COLUMNS},{ROWS}] Y)
    <int64[2] s = {{{COLUMNS}, {ROWS}}}>
    {{ v = Add(W, W)  h = MatMul(X, v)  a = Add(h, h)  e = Exp(a)
       Y = Reshape(e, s) }}"""
    return bytes(parser.parse_model(text).SerializeToString())


def _request(values: Mapping[str, Array]) -> PlanRequest:
    return PlanRequest(
        programs={
            "plan": _program(generated=False),
            "unfused": _program(generated=False),
        },
        weights={"w": values["w"]},
        feeds=({"x": values["x"]}, {"x": values["x"] * 2}),
        reference=_model(),
        reference_names={"x": "X", "w": "W", "o": "Y"},
        reference_weights={"W": values["w"]},
        repeats=7,
        budget_seconds=0.05,
    )


def test_whole_programs_are_verified_and_timed(values: dict[str, Array]) -> None:
    """All programs agree with the user's model; the model is timed alone."""
    with Runner("null") as runner:
        found = runner.measure_whole(_request(values))
    assert found.verified, found.measurements
    assert set(found.measurements) == {"plan", "unfused", "reference"}
    assert all(m.seconds > 0 for m in found.measurements.values())
    assert all(not m.failure for m in found.measurements.values())


def test_a_program_and_the_model_are_timed_alone_in_rounds(
    values: dict[str, Array],
) -> None:
    """Each round adds its samples to both; nothing else is loaded beside either."""
    request = replace(_request(values), rounds=3)
    request = replace(request, programs={"plan": request.programs["plan"]})
    with Runner("null") as runner:
        found = runner.measure_whole(request)
        assert runner.deaths == 0
    assert found.verified
    counts = {name: len(one.samples) for name, one in found.measurements.items()}
    assert counts.keys() == {"plan", "reference"}
    assert all(count >= 3 * request.repeats for count in counts.values()), counts


def test_the_reference_may_be_left_untimed(values: dict[str, Array]) -> None:
    """Without a round, programs are verified against the model, which has no time."""
    with Runner("null") as runner:
        found = runner.measure_whole(replace(_request(values), rounds=0))
    assert found.verified
    assert set(found.measurements) == {"plan", "unfused"}


def test_nothing_can_be_timed_again_that_was_not_kept(
    values: dict[str, Array],
) -> None:
    """One round keeps nothing loaded, and to ask for another is an answer."""
    desk = Desk(Bench(NullBackend()))
    assert isinstance(answer(desk, replace(_request(values), rounds=1)), PlanResult)
    assert "nothing is loaded" in answer(desk, Again()).message
    assert isinstance(answer(desk, replace(_request(values), rounds=2)), PlanResult)
    assert isinstance(answer(desk, Again()), PlanResult)


def test_a_wrong_program_is_not_verified(values: dict[str, Array]) -> None:
    """A program that disagrees with the model fails for correctness, and says how."""
    request = replace(_request(values), weights={"w": values["w"] * 1.001})
    with Runner("null") as runner:
        found = runner.measure_whole(request)
    assert not found.verified
    assert found.measurements["plan"].failure == "correctness"
    assert found.measurements["plan"].max_abs_error > 0


def _with_bad_step(values: Mapping[str, Array], body: str) -> PlanRequest:
    """Three programs; the one called bad has another text for its last kernel."""
    good = _program(generated=True)
    kernel = source(body, reads=["a"], writes=["e"], count=COUNT)
    bad = replace(
        good, steps=(*good.steps[:-1], replace(good.steps[-1], source=kernel))
    )
    programs = {"plan": good, "bad": bad, "unfused": _program(generated=False)}
    return replace(_request(values), programs=programs)


@pytest.mark.parametrize(
    ("body", "failure"),
    [("e[i] = nonsense;", "compile"), ("e[i] = exp(a[i]) + 1;", "correctness")],
)
def test_a_program_that_fails_fails_alone(
    opencl: OpenCLBackend, values: dict[str, Array], body: str, failure: str
) -> None:
    """The others are verified and timed as if it were not there."""
    found = measure_programs(opencl, _with_bad_step(values, body))
    assert found.verified
    assert list(found.measurements) == ["plan", "bad", "unfused"]
    assert found.measurements["bad"].failure == failure
    for name in ("plan", "unfused"):
        assert found.measurements[name].samples


def test_a_program_that_kills_the_child_fails_alone(
    opencl: OpenCLBackend, values: dict[str, Array]
) -> None:
    """After a crash the other programs are measured in a new child."""
    request = _with_bad_step(values, "e[i + (1L << 40)] = exp(a[i]);")
    with Runner("cpu") as runner:
        found = runner.measure_whole(request)
        assert runner.deaths == 1
    assert found.verified
    assert found.measurements["bad"].failure == "runtime"
    assert all(found.measurements[n].samples for n in ("plan", "unfused", "reference"))


def test_a_program_that_never_ends_fails_alone(
    opencl: OpenCLBackend, values: dict[str, Array]
) -> None:
    """After the deadline the other programs are measured in a new child."""
    body = "volatile int k = 1; while (k) {} e[i] = k;"
    request = replace(_with_bad_step(values, body), deadline_seconds=3.0)
    with Runner("cpu") as runner:
        found = runner.measure_whole(request)
    assert found.measurements["bad"].failure == "timeout"
    assert found.measurements["plan"].samples


def test_programs_share_what_they_prepare(values: dict[str, Array]) -> None:
    """Weights are prepared and stored once for all programs of a request."""
    result = measure_programs(NullBackend(), _request(values))
    assert result.verified


def test_steps_are_timed_where_asked(values: dict[str, Array]) -> None:
    """A request may ask for the time of every step; else none is taken."""
    request = _request(values)
    assert not measure_programs(NullBackend(), request).step_seconds
    found = measure_programs(NullBackend(), replace(request, by_step=True))
    for name, program in request.programs.items():
        assert set(found.step_seconds[name]) == {step.name for step in program.steps}
