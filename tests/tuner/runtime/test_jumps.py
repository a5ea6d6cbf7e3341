"""Models that round to whole numbers: a last bit decides over a step of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from tests.tuner.frontend.models import model, node, value
from tests.tuner.runtime.graphs import graph_of, tensor
from tuner.execution import whole_request
from tuner.ir.types import DType
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Options
from tuner.runtime.jumps import NEAR, Doubt, distance, has_jumps
from tuner.runtime.requests import Step
from tuner.runtime.verification import EPSILON, MODEL_EPSILONS
from tuner.runtime.whole import Programs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tuner.plan import Measurement
    from tuner.runtime.opencl import OpenCLBackend
    from tuner.runtime.requests import PlanRequest

    Nodes = list[tuple[str, str, list[str], Mapping[str, Any]]]

SHAPE = (2, 3, 12, 12)


def rounded(name: str, scale: str, zero: str, made: str) -> list[onnx.NodeProto]:
    """To 8 bits and back."""
    return [
        node("QuantizeLinear", f"{name} {scale} {zero}", f"{made}_q"),
        node("DequantizeLinear", f"{made}_q {scale} {zero}", made),
    ]


def quantised(weight_scale: float = 0.02) -> bytes:
    """A convolution in 8 bits and the means of its planes.

    Sums of products of multiples of the scales lie half way between two steps often.
    """
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(120),
        "w_q": rng.integers(-127, 127, (8, 3, 3, 3)).astype(np.int8),
        "w_s": np.full(8, weight_scale, np.float32),
        "w_z": np.zeros(8, np.int8),
        "t": np.float32(0.1),
        "u": np.uint8(0),
    }
    nodes = [
        *rounded("x", "s", "z", "a"),
        node("DequantizeLinear", "w_q w_s w_z", "w", axis=0),
        node("Conv", "a w", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        *rounded("r", "t", "u", "b"),
        node("GlobalAveragePool", "b", "y"),
    ]
    made = model(nodes, [value("x", SHAPE)], "y", constants)
    data: bytes = made.SerializeToString()
    return data


def asked(data: bytes) -> PlanRequest:
    """A plan to compare with the library, on two inputs."""
    found = load(data)
    plan = make_plan(found, "cpu", Options())
    return whole_request(found, {"plan": plan}, "opencl", budget_seconds=0.01)


def judged(backend: OpenCLBackend, request: PlanRequest) -> Measurement:
    """What is said of the plan."""
    found = Programs(backend, replace(request, repeats=7)).measure()
    return found.measurements["plan"]


def test_results_a_step_apart_are_right(opencl: OpenCLBackend) -> None:
    """The library adds up whole numbers, we add up floats: some results differ."""
    found = judged(opencl, asked(quantised()))
    assert found.message == ""
    assert found.max_rel_error > MODEL_EPSILONS * EPSILON[DType.F32]


def test_a_wrong_kernel_of_such_a_model_is_named(opencl: OpenCLBackend) -> None:
    """Each kernel is compared on what it was given, so near is not enough."""
    request = asked(quantised())
    program = request.programs["plan"]
    last = program.steps[-1]
    assert last.source is not None
    share = "0.0069444445f"  # of one element of 144
    assert share in last.source.text
    wrong = replace(last.source, text=last.source.text.replace(share, "0.00695f"))
    steps = (*program.steps[:-1], replace(last, source=wrong))
    bad = replace(request, programs={"plan": replace(program, steps=steps)})
    assert f"{last.name}: " in judged(opencl, bad).message


def test_a_wrong_formula_of_such_a_model_is_found(opencl: OpenCLBackend) -> None:
    """Right kernels of another model are off everywhere, not here and there."""
    request = asked(quantised())
    other = replace(request, reference=quantised(weight_scale=0.021))
    assert "away, as a whole" in judged(opencl, other).message


def test_models_without_jumps_are_compared_as_ever(opencl: OpenCLBackend) -> None:
    """Nothing but rounding is forgiven where no last bit decides over a step."""
    made = model([node("Tanh", "x", "y")], [value("x", (4, 90))], "y")
    request = asked(made.SerializeToString())
    program = request.programs["plan"]
    assert not has_jumps(program)
    other = model([node("Softsign", "x", "y")], [value("x", (4, 90))], "y")
    found = judged(opencl, replace(request, reference=other.SerializeToString()))
    assert "error" in found.message


def masked(gain: float, threshold: float) -> bytes:
    """GELU by the error function, and a mask by the size of sums."""
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.standard_normal((16, 16)).astype(np.float32),
        "half": np.float32(0.5 * gain),
        "root": np.float32(2**-0.5),
        "one": np.float32(1.0),
        "none": np.float32(0.0),
        "limit": np.float32(threshold),
    }
    nodes = [
        node("MatMul", "x w", "s"),
        node("Mul", "s root", "a"),
        node("Erf", "a", "e"),
        node("Add", "e one", "f"),
        node("Mul", "s f", "g"),
        node("Mul", "g half", "h"),
        node("Greater", "s limit", "m"),
        node("Where", "m h none", "y"),
    ]
    made = model(nodes, [value("x", (4, 16))], "y", constants)
    data: bytes = made.SerializeToString()
    return data


def test_a_mask_excuses_no_wrong_formula(opencl: OpenCLBackend) -> None:
    """0.9 % are an error, not a step, where no sum is within rounding of the limit."""
    request = asked(masked(1.0, 0.1))
    assert has_jumps(request.programs["plan"])
    assert judged(opencl, request).message == ""
    other = replace(request, reference=masked(1.009, 0.1))
    assert "error" in judged(opencl, other).message


def drawn(nodes: Nodes, values: dict[str, list[float]]) -> set[str]:
    """Which tensors of a program of one step a last bit may have moved."""
    arrays = {name: np.array(v, np.float32) for name, v in values.items()}
    kinds = {name: tensor(*array.shape) for name, array in arrays.items()}
    graph = graph_of(nodes, kinds, [n[0] for n in nodes])
    doubt = Doubt(home=str, bound=lambda dtype: 64 * EPSILON[dtype], exact={"limit"})
    doubt.follow(Step(name="s", graph=graph), arrays)
    return doubt.unsure


@pytest.mark.parametrize(
    ("op", "near", "far"),
    [
        ("rint", 1.500001, 1.2),
        ("floor", 2.000001, 2.4),
        ("ceil", 1.999999, 2.4),
        ("sign", 1e-7, 0.5),
    ],
)
def test_a_step_is_unsure_within_rounding_alone(
    op: str, near: float, far: float
) -> None:
    """And with it whatever depends on it; nothing else is."""
    nodes: Nodes = [
        ("o", op, ["x"], {}),
        ("p", "exp", ["o"], {}),
        ("q", "exp", ["x"], {}),
    ]
    assert drawn(nodes, {"x": [near, far]}) == {"o", "p"}
    assert drawn(nodes, {"x": [far, far]}) == set()
    assert drawn(nodes, {"x": [1.0, 2.0]}) == set()  # whole numbers


def test_a_comparison_is_unsure_within_rounding_alone() -> None:
    """Where one side is no given value; the greatest value says how far rounding is."""
    nodes: Nodes = [("o", "greater", ["x", "limit"], {})]
    assert drawn(nodes, {"x": [0.300001, 0.5], "limit": [0.3, 0.3]}) == {"o"}
    assert drawn(nodes, {"x": [0.31, 0.5], "limit": [0.3, 0.3]}) == set()
    assert drawn(nodes, {"x": [0.31, 5e3], "limit": [0.3, 0.3]}) == {"o"}
    given: Nodes = [("o", "greater", ["limit", "limit"], {})]
    assert drawn(given, {"limit": [0.3, 0.3]}) == set()


@pytest.mark.parametrize(
    ("ours", "truth", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([3.0, 0.0], [3.0, 4.0], 0.8),
        ([1.0, 0.0], [0.0, 0.0], float("inf")),
        ([np.nan, 5.0], [np.nan, 5.0], 0.0),
        ([np.inf, 5.0], [np.inf, 5.0], 0.0),
    ],
)
def test_distance_is_of_the_whole(
    ours: list[float], truth: list[float], expected: float
) -> None:
    """Root of mean squares, of that of the reference; equal strange values count 0."""
    assert distance(np.array(ours), np.array(truth)) == pytest.approx(expected)


def test_a_value_that_is_strange_on_one_side_is_far_away() -> None:
    """No infinity and no NaN is near a number."""
    for strange in (np.inf, np.nan):
        away = distance(np.array([strange, 1.0]), np.array([1.0, 1.0]))
        assert not away <= NEAR
