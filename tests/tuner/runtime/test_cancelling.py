"""Results that are zero by arithmetic: only rounding is left of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.tuner.frontend.models import model, node, value
from tests.tuner.runtime.test_jumps import asked, judged
from tuner.execution import language_of, program
from tuner.ir.types import DType
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Options
from tuner.runtime.cancelling import explained
from tuner.runtime.executor import Executor, prepared

if TYPE_CHECKING:
    from tuner.runtime.opencl import OpenCLBackend


def divergence(heat: float = 1.0, gain: float = 1.0) -> bytes:
    """How far a distribution is from itself, found in two ways."""
    constants = {
        "b": np.linspace(-0.3, 0.5, 40).astype(np.float32),
        "t": np.float32(heat),
        "g": np.float32(gain),
        "axes": np.array([1], np.int64),
    }
    nodes = [
        node("Add", "x b", "h"),
        node("Mul", "h t", "w"),
        node("LogSoftmax", "h", "l"),
        node("Softmax", "w", "p"),
        node("Log", "p", "k"),
        node("Sub", "k l", "d"),
        node("Mul", "p d", "e"),
        node("ReduceSum", "e axes", "s", keepdims=0),
        node("Mul", "p g", "y"),
    ]
    made = model(
        nodes,
        [value("x", (16, 40))],
        [value("s", (16,)), value("y", (16, 40))],
        constants,
    )
    data: bytes = made.SerializeToString()
    return data


def test_what_rounding_leaves_of_a_difference_is_right(opencl: OpenCLBackend) -> None:
    """Ours and the library's are different noise about zero; other outputs are near."""
    found = judged(opencl, asked(divergence()))
    assert not found.failure, found.message
    assert found.max_rel_error > 1e-3


@pytest.mark.parametrize(("heat", "gain"), [(1.001, 1.0), (1.0, 1.0001)])
def test_noise_excuses_no_wrong_formula(
    opencl: OpenCLBackend, heat: float, gain: float
) -> None:
    """Neither a difference that is not zero, nor an output beside it that is off."""
    request = replace(asked(divergence()), reference=divergence(heat, gain))
    assert "error" in judged(opencl, request).message


def masked() -> bytes:
    """What a comparison of equal numbers lets through."""
    nodes = [
        node("Softmax", "x", "p"),
        node("Log", "p", "k"),
        node("LogSoftmax", "x", "l"),
        node("Sub", "k l", "d"),
        node("Greater", "d z", "m"),
        node("Mul", "x g", "w"),
        node("Where", "m w z", "y"),
    ]
    constants = {"z": np.float32(0), "g": np.float32(2)}
    made = model(nodes, [value("x", (64, 40))], [value("y", (64, 40))], constants)
    data: bytes = made.SerializeToString()
    return data


def test_what_a_comparison_lets_through_is_no_noise(opencl: OpenCLBackend) -> None:
    """Last bits of what is compared move such a result by a whole step."""
    found = load(masked())
    made = program(found, make_plan(found, "cpu", Options()), language_of("cpu"))
    rng = np.random.default_rng(0)
    feed = {n: rng.standard_normal((64, 40)).astype(np.float32) for n in made.inputs}
    executor = Executor(made, prepared(made, {}), opencl, None, alone=True)
    errors = dict.fromkeys(made.outputs, 1e-3)
    assert explained(executor, made, feed, errors, lambda _: 64.0) == frozenset()


def test_only_last_bits_are_noise(opencl: OpenCLBackend) -> None:
    """An output is explained up to some rounding of its operands, and no further."""
    found = load(divergence())
    made = program(found, make_plan(found, "cpu", Options()), language_of("cpu"))
    rng = np.random.default_rng(0)
    feed = {n: rng.standard_normal((16, 40)).astype(np.float32) for n in made.inputs}
    weights = {n: np.linspace(-0.3, 0.5, 40).astype(np.float32) for n in made.weights}
    executor = Executor(made, prepared(made, weights), opencl, None, alone=True)
    zero = made.outputs[0]

    def is_explained(error: float) -> bool:
        return bool(explained(executor, made, feed, {zero: error}, lambda _: 64.0))

    assert is_explained(1e-7)
    assert not is_explained(1e-3)
    assert made.types[zero].dtype is DType.F32
