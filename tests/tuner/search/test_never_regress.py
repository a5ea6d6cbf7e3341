"""A stored plan is only replaced by one that is not slower: over many updates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from onnx import parser

from tests.tuner.search.conftest import body_of, made_up_seconds, run_to_end, session_of
from tuner.execution import program, whole_request
from tuner.model import Model, load
from tuner.plan import Options, Plan
from tuner.runtime.null import NullRunner
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.contest import surely_faster
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


def test_no_update_under_load_makes_a_plan_slower(
    opencl: OpenCLBackend, little: Model, soak: bool
) -> None:
    """Updates while another process computes: a quiet comparison finds none slower."""
    assert opencl.name
    before: Plan | None = None
    stored: dict[str, Any] | None = None
    budget = Budget(seconds=3.0, trials=4, trials_per_kernel=2)
    with Runner("cpu") as runner:
        for seed in range(20 if soak else 2):
            tuning = TuningSession(
                little, "cpu", Options(), budget, seed=seed, incumbent=stored
            )
            with _load():
                run_to_end(tuning, runner)
            now = tuning.plan()
            if tuning.winner == "incumbent" or now.whole["plan"].failure:
                continue
            if before is not None:
                plans = {"before": before, "now": now}
                request = whole_request(
                    little, plans, "opencl", budget_seconds=1.0, attempts=4
                )
                found = runner.measure_whole(request).measurements
                assert not surely_faster(found["before"], found["now"]), seed
            before, stored = now, body_of(tuning)
    assert before is not None


@contextmanager
def _load() -> Iterator[None]:
    """Another process computes."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


class _Noisy(NullRunner):
    """Noise of its own around the true times of another device."""

    def __init__(self, truth: NullRunner, *, noise: float, seed: int) -> None:
        super().__init__(made_up_seconds, noise=noise, seed=seed)
        self._truth = truth

    def program_seconds(self, program: Any) -> float:
        return self._truth.program_seconds(program)
