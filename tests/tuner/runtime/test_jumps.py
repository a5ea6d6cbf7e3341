"""Models that round to whole numbers: a last bit decides over a step of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from tests.tuner.frontend.models import model, node, value
from tuner.execution import whole_request
from tuner.ir.types import DType
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Options
from tuner.runtime.jumps import NEAR, distance, has_jumps
from tuner.runtime.verification import EPSILON, MODEL_EPSILONS
from tuner.runtime.whole import Programs

if TYPE_CHECKING:
    from tuner.plan import Measurement
    from tuner.runtime.opencl import OpenCLBackend
    from tuner.runtime.requests import PlanRequest

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
