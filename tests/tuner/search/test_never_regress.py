"""A stored plan is only replaced by one that is not slower: over many updates."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import parser

from tests.tuner.search.conftest import body_of, made_up_seconds, run_to_end, session_of
from tuner.execution import program
from tuner.model import Model, load
from tuner.runtime.null import NullRunner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

UPDATES = 200
NOISE = 0.1
SHORT = Budget(seconds=1e6, trials=4, trials_per_kernel=4)


@pytest.fixture(scope="module")
def little() -> Model:
    """A few operators with several sensible partitions, solved in no time."""
    text = """<ir_version: 10, opset_import: ["":21]>
    g (float[64,96] X, float[64,96] Z) => (float[64,96] Y, float[64,1] S)
    { a = Exp(X)  b = Mul(a, Z)  S = ReduceSum<keepdims=1>(b, axes)
      c = Div(b, S)  d = Tanh(c)  Y = Add(d, X) }"""
    text = text.replace("{ a =", "<int64[1] axes = {1}>\n    { a =")
    return load(parser.parse_model(text).SerializeToString())


def _true_seconds(tuning: TuningSession, device: NullRunner) -> float:
    return device.program_seconds(program(tuning.model, tuning.plan(), "opencl"))


def test_no_update_makes_the_stored_plan_slower(little: Model, soak: bool) -> None:
    """With noisy times, no plan is slower than the one before beyond the noise.

    Every update has other noise, so what wins by luck is found out by the truth.
    """
    truth = NullRunner(made_up_seconds, interference=0.1)
    stored: dict[str, Any] | None = None
    before, replaced, gained = float("inf"), 0, 0.0
    updates = UPDATES if soak else UPDATES // 5
    for seed in range(updates):
        tuning = session_of(little, budget=SHORT, seed=seed, incumbent=stored)
        run_to_end(tuning, _Noisy(truth, noise=NOISE, seed=seed))
        if tuning.winner == "incumbent":
            continue
        now = _true_seconds(tuning, truth)
        assert now <= before * (1 + NOISE), f"update {seed}"
        stored, before, replaced = body_of(tuning), now, replaced + 1
        gained = max(gained, now)
    assert 1 <= replaced <= updates / 4
    assert before <= gained


class _Noisy(NullRunner):
    """Noise of its own around the true times of another device."""

    def __init__(self, truth: NullRunner, *, noise: float, seed: int) -> None:
        super().__init__(made_up_seconds, noise=noise, seed=seed)
        self._truth = truth

    def program_seconds(self, program: Any) -> float:
        return self._truth.program_seconds(program)
