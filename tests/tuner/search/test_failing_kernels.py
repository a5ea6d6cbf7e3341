"""Kernels that fail, and a device that does: the run goes on with what works."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest

from tests.tuner.search.conftest import (
    PATIENT,
    made_up_seconds,
    no_clock,
    results_by_key,
    run_to_end,
    session_of,
    through_json,
)
from tuner.errors import DeviceUnavailable, VerificationFailed
from tuner.model import Model
from tuner.plan import Family, Measurement, Options, Pin, Source
from tuner.runtime.failures import failure_of
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult
from tuner.search.session import TuningSession

RunnerWith = Callable[[Callable[[MeasureRequest], float]], NullRunner]


def test_a_kernel_that_always_fails_is_avoided(
    model: Model, runner_with: RunnerWith
) -> None:
    """The partition goes around kernels that no schedule can run."""

    def seconds(request: MeasureRequest) -> float:
        is_reduction = any(n.op.startswith("reduce") for n in request.graph.nodes)
        if is_reduction and len(request.graph.nodes) > 1:
            return math.inf
        return made_up_seconds(request)

    tuning = session_of(model)
    run_to_end(tuning, runner_with(seconds))
    for kernel in tuning.plan().kernels:
        if kernel.family is Family.REDUCTION:
            assert len(kernel.region.nodes) == 1


def test_nodes_without_a_kernel_that_works_leave_a_plan(
    model: Model, runner_with: RunnerWith
) -> None:
    """Where every kernel with a sum fails the run ends, and says what is unmeasured."""

    def seconds(request: MeasureRequest) -> float:
        is_sum = any(n.op.startswith("reduce") for n in request.graph.nodes)
        return math.inf if is_sum else made_up_seconds(request)

    tuning = session_of(model)
    run_to_end(tuning, runner_with(seconds))
    plan = tuning.plan()
    assert any(kernel.measurement is None for kernel in plan.kernels)
    assert str(plan.evidence) != "measured"


def test_every_kind_of_failure_is_lived_with(model: Model) -> None:
    """Kernels that fail in every way are gone around; the plan is a measured one."""
    kinds = ("compile", "runtime", "timeout", "correctness", "resources")

    def failures(request: MeasureRequest) -> tuple[str, str] | None:
        if request.source is None or len(request.graph.nodes) == 1:
            return None
        number = int(request.source.digest[:4], 16)
        return (kinds[number % 5], "made up") if number % 2 else None

    tuning = session_of(model)
    told = [
        result["failure"]
        for _, results in run_to_end(
            tuning, NullRunner(made_up_seconds, failures=failures)
        )
        for result in results
        if result.get("failure")
    ]
    assert set(told) <= set(kinds)
    assert len(set(told)) >= 2
    plan = tuning.plan()
    assert str(plan.evidence) == "measured"
    assert all(k.measurement and not k.measurement.failure for k in plan.kernels)


class WrongSums(NullRunner):
    """A device on which generated kernels with a product give wrong results.

    Args:
        error: by how much one of them is wrong.
    """

    def __init__(self, error: Callable[[Source], float]) -> None:
        super().__init__(made_up_seconds)
        self._error = error

    def measure(self, request: MeasureRequest) -> Measurement:
        """Answer; what is said of a wrong result is rounded."""
        has_product = any(node.op == "matmul" for node in request.graph.nodes)
        if request.source is None or not has_product:
            return super().measure(request)
        error = self._error(request.source)
        problem = f"t2: error {error:.3g} at values up to 279"
        wrong = VerificationFailed(
            "output", problem, max_abs_error=error, max_rel_error=error / 279
        )
        return failure_of(wrong)


def _close(source: Source) -> float:
    """Errors that differ with the text, though three digits of them are the same."""
    return 0.0006 * (1 + int(source.digest[:12], 16) * 2.0**-64)


def test_what_fails_by_the_same_error_twice_is_given_up(model: Model) -> None:
    """All schedules of such a kernel err alike; other errors are worth a third one.

    To the last bit: what is said of both is the same.
    """
    runs, messages = {}, set()
    for name, error in (("alike", lambda _: 0.0006), ("other", _close)):
        tuning = session_of(model, budget=PATIENT)
        log = run_to_end(tuning, WrongSums(error))
        assert str(tuning.plan().evidence) == "measured"
        wrong = [
            result
            for _, results in log
            for result in results
            if result.get("failure") == "correctness"
        ]
        messages.update(result["message"] for result in wrong)
        runs[name] = max(Counter(result["kernel"] for result in wrong).values())
        assert tuning.progress()["measured_optimal"]
    assert runs == {"alike": 2, "other": 3}
    assert len(messages) == 1


def _wrong(message: str, error: float = 0.0) -> Measurement:
    problem = VerificationFailed("output", message, max_abs_error=error)
    return failure_of(problem)


@pytest.mark.parametrize(
    ("first", "second", "is_alike"),
    [
        (_wrong("a: error 0.1", 0.1), _wrong("b: error 0.1", 0.1), True),
        (_wrong("a: error 0.1", 0.1), _wrong("a: error 0.1", 0.1000001), False),
        (_wrong("a: error nan", math.nan), _wrong("a: error nan", math.nan), True),
        (_wrong("void: a"), _wrong("void: a"), True),
        (_wrong("void: a"), _wrong("a: was written beyond its end"), False),
    ],
    ids=["one value", "one text", "no number", "one reason", "two reasons"],
)
def test_errors_are_alike_by_their_values(
    model: Model, first: Measurement, second: Measurement, is_alike: bool
) -> None:
    """Where an error was measured its value counts, else what is said of it."""
    tuning = session_of(model)
    states = tuning._run.use(tuning.planner.unfused()).states
    state = max(states, key=lambda each: each.study.space_size)
    for schedule, wrong in zip(state.study.space, (first, second), strict=False):
        state.take(schedule, wrong)
    assert len(state.results) == 2
    assert state.is_hopeless == is_alike


def test_what_has_failed_is_tried_again_after_all_others(model: Model) -> None:
    """A second schedule of a kernel that failed waits for all that never ran.

    From one batch to the next: whatever waits without a run, when a failed kernel's
    turn comes again, is in the same batch before it. Batches are short, and nodes that
    may not be fused make several kernels wait from the beginning.
    """
    (first, *_) = (node for node in model.graph.nodes if node.op == "reduce_max")
    apart = Pin(fuse=False, nodes=(first.name, _reader(model, first.outputs[0])))
    options = Options(pins=(apart,))
    tuning = TuningSession(model, "cpu", options, PATIENT, clock=no_clock)
    device, choices = WrongSums(_close), set()
    while (batch := tuning.propose()) is not None:
        names = [i["kernel"] for i in batch["items"] if i["kind"] == "kernel"]
        states = tuning._run.kernels
        waiting = [s for s in states.values() if s.uses and s.is_waiting]
        unseen = {state.name for state in waiting if not state.results}
        again = [at for at, name in enumerate(names) if states[name].has_failed]
        assert not again or unseen <= set(names[: again[0]])
        if names and unseen and any(state.has_failed for state in waiting):
            choices.add(tuning.stage)
        results = through_json(tuning.measure(batch, device))
        tuning.observe(batch, [{**r, "cost_seconds": 3.0} for r in results])
    assert choices >= {"cover", "prove"}
    assert tuning.progress()["measured_optimal"]


def _reader(model: Model, tensor: str) -> str:
    (reader,) = (n.name for n in model.graph.nodes if tensor in n.inputs)
    return reader


@pytest.mark.parametrize("lives", [1, 9])
def test_a_device_that_disappears_ends_the_run_with_what_there_is(
    model: Model, lives: int
) -> None:
    """The run is over, says so, and its plan is the best known."""

    class Fading(NullRunner):
        left = lives

        def measure(self, request: MeasureRequest) -> Measurement:
            self.left -= 1
            if self.left < 0:
                raise DeviceUnavailable("cuda:0", "the device fell off the bus")
            return super().measure(request)

    tuning = session_of(model)
    log = run_to_end(tuning, Fading(made_up_seconds))
    assert tuning.is_done
    assert "fell off the bus" in tuning.partial_reason
    assert tuning.plan().kernels
    later = session_of(model, results_by_key(log))
    run_to_end(later, NullRunner(made_up_seconds))
    assert str(later.plan().evidence) == "measured"


def test_a_whole_run_that_somebody_kills_is_repeated(model: Model) -> None:
    """A kill from outside says nothing of the plans."""

    class Killed(NullRunner):
        kills = 1

        def measure_whole(self, request: PlanRequest) -> PlanResult:
            if self.kills:
                self.kills -= 1
                lost = Measurement(
                    seconds=math.inf, failure="runtime", message="", contended=True
                )
                return PlanResult(
                    measurements=dict.fromkeys(request.programs, lost), verified=False
                )
            return super().measure_whole(request)

    tuning = session_of(model)
    run_to_end(tuning, Killed(made_up_seconds))
    assert not tuning.plan().whole["plan"].failure
    assert tuning.partial_reason == ""
