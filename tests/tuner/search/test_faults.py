"""Whole tuning runs on devices where everything goes wrong: each run goes on.

The same faults in the same order, made up on `null` and real ones on `cpu`: there the
text of a kernel is exchanged for one that does harm, in a real child process.
"""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest
from onnx import parser

from tests.tuner.search.conftest import (
    made_up_seconds,
    results_by_key,
    run_to_end,
    session_of,
)
from tests.waiting import when_busy
from tuner.errors import DeviceUnavailable
from tuner.model import Model, load
from tuner.plan import Measurement, Source
from tuner.runtime.failures import failed
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget

FAULTS: Final = ("bounds", "endless", "wrong", "shared", "killed")
KINDS: Final = {
    "bounds": "runtime",
    "endless": "timeout",
    "wrong": "correctness",
    "shared": "resources",
    "killed": "runtime",
}
BUDGET: Final = Budget(seconds=60.0, trials=8, trials_per_kernel=8)
_BODIES: Final = {
    "bounds": "{out}[(1L << 40) + get_global_id(0)] = 0;",
    "endless": "volatile int k = 1; while (k) {{}} {out}[0] = k;",
    "wrong": "{out}[get_global_id(0) % 2] = 7;",
    "shared": "local float much[1 << 22]; much[get_local_id(0)] = 1; "
    "barrier(CLK_LOCAL_MEM_FENCE); {out}[0] = much[0];",
    "killed": "volatile int k = 1; while (k) {{}} {out}[0] = k;",
}


class Sabotaged:
    """A device whose first kernels go wrong, one after the other.

    Attributes:
        told: what came back, by fault.
        guilty: kind of failure by digest of the kernel, but for those killed by others.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.device_name: str = device.device_name
        self.toolchain: str = device.toolchain
        self.told: dict[str, Measurement] = {}
        self.guilty: dict[str, str] = {}
        self._asked: set[str] = set()

    def measure(self, request: MeasureRequest) -> Measurement:
        """Do harm as long as there are faults left, for every kernel once."""
        source = request.source
        is_spared = source is None or source.digest in self._asked or not request.timed
        if source is None or is_spared or len(self.told) == len(FAULTS):
            answer: Measurement = self.device.measure(request)
            return answer
        self._asked.add(source.digest)
        fault = FAULTS[len(self.told)]
        self.told[fault] = found = self.harm(fault, request, source)
        if not found.contended:
            self.guilty[source.digest] = found.failure
        return found

    def harm(self, fault: str, request: MeasureRequest, source: Source) -> Measurement:
        """What comes back of a kernel with a fault."""
        raise NotImplementedError

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Programs with a guilty kernel fail as it did; the others run."""
        failures = {
            name: failed(self.guilty[step.source.digest], "holds a kernel that fails")
            for name, program in request.programs.items()
            for step in program.steps
            if step.source is not None and step.source.digest in self.guilty
        }
        others = {n: p for n, p in request.programs.items() if n not in failures}
        answer: PlanResult = self.device.measure_whole(
            replace(request, programs=others)
        )
        return replace(answer, measurements={**answer.measurements, **failures})


class SabotagedNull(Sabotaged):
    """Says what a real device would."""

    def harm(self, fault: str, request: MeasureRequest, source: Source) -> Measurement:
        """The failure that the fault stands for."""
        del request, source
        return replace(failed(KINDS[fault], fault), contended=fault == "killed")


class SabotagedProcessor(Sabotaged):
    """Runs kernels that do harm."""

    def harm(self, fault: str, request: MeasureRequest, source: Source) -> Measurement:
        """Run the harmful text in place of the kernel's."""
        wild = replace(source, text=_with_body(source, _BODIES[fault]))
        seconds = 1.5 if fault == "endless" else 600.0
        wanted = replace(request, source=wild, deadline_seconds=seconds)
        if fault == "killed":
            pid = self.device.pid
            when_busy(pid, lambda: os.kill(pid, signal.SIGKILL))
        answer: Measurement = self.device.measure(wanted)
        return answer


def _with_body(source: Source, body: str) -> str:
    """A kernel of the same name and arguments that does something else."""
    pattern = rf"kernel void {source.entry}\((.*?)\)\s*\{{"
    head = re.search(pattern, source.text, re.DOTALL)
    assert head is not None
    names = [part.split()[-1].lstrip("*") for part in head.group(1).split(",")]
    place = [argument.is_output for argument in source.arguments].index(True)
    start = source.text[: head.end()].rindex("kernel void")
    signature = source.text[start : head.end()]
    return f"{signature} {body.format(out=names[place])} }}\n"


@contextmanager
def _null() -> Iterator[Sabotaged]:
    yield SabotagedNull(NullRunner(made_up_seconds))


@contextmanager
def _processor() -> Iterator[Sabotaged]:
    try:
        runner = Runner("cpu").__enter__()
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    with runner:
        yield SabotagedProcessor(runner)


@pytest.fixture(scope="module")
def little() -> Model:
    """A few operators with several sensible partitions, solved in no time."""
    return load(
        parser.parse_model(
            """<ir_version: 10, opset_import: ["":21]>
            g (float[64,96] X, float[64,96] Z) => (float[64,96] Y)
            <int64[1] axes = {1}>
            { a = Exp(X)  b = Mul(a, Z)  S = ReduceSum<keepdims=1>(b, axes)
              c = Div(b, S)  Y = Tanh(c) }"""
        ).SerializeToString()
    )


@pytest.mark.parametrize("device", [_null, _processor])
def test_every_fault_has_its_kind_and_the_run_goes_on(
    little: Model, device: Callable[[], Any]
) -> None:
    """Out of bounds, endless, wrong, too greedy, killed: in the end there is a plan.

    What failed by its own fault is stored, and never run again by a later run.
    """
    with device() as harmed:
        first = session_of(little, budget=BUDGET)
        known = results_by_key(run_to_end(first, harmed))
        assert {f: m.failure for f, m in harmed.told.items()} == KINDS
        assert [f for f, m in harmed.told.items() if m.contended] == ["killed"]
        assert first.is_done
        plan = first.plan()
        assert not plan.whole["plan"].failure
        used = {k.sources[0].digest for k in plan.kernels if k.sources}
        assert not used & set(harmed.guilty)
        stored = {
            key for key, r in known.items() if r["failure"] and not r["contended"]
        }
        assert len(stored) == len(harmed.guilty) == len(FAULTS) - 1
        again = run_to_end(session_of(little, known, budget=BUDGET), harmed)
        assert not stored & set(results_by_key(again))


@pytest.mark.parametrize("device", [_null, _processor])
def test_a_device_that_disappears_ends_the_run_and_says_so(
    little: Model, device: Callable[[], Any]
) -> None:
    """What was measured before is kept, there is a plan, and the reason is told."""
    with device() as harmed:
        gone = _Disappearing(harmed.device)
        tuning = session_of(little, budget=BUDGET)
        log = run_to_end(tuning, gone)
        assert tuning.is_done
        assert "device was lost" in tuning.partial_reason
        assert tuning.plan().kernels
        results = [result for _, results in log for result in results]
        assert "gone" in results[-1]
        assert any(math.isfinite(r.get("seconds") or math.inf) for r in results)


class _Disappearing:
    """A device that is there for one kernel, and then no more."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._left = 1
        self.device_name: str = device.device_name
        self.toolchain: str = device.toolchain

    def measure(self, request: MeasureRequest) -> Measurement:
        """The first answers; then the child is dead, and no new one finds a device."""
        self._left -= 1
        if self._left == -1 and isinstance(self._device, Runner):
            os.kill(self._device.pid, signal.SIGKILL)
            self._device.device = "cuda:99"
            time.sleep(0.2)
        elif self._left < 0 and not isinstance(self._device, Runner):
            raise DeviceUnavailable("null", "it fell off the bus")
        answer: Measurement = self._device.measure(request)
        return answer

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """As the device does."""
        answer: PlanResult = self._device.measure_whole(request)
        return answer
