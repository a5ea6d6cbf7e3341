"""Whole programs: verified against the user's model, timed by turns."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tuner.errors import TunerError, VerificationFailed
from tuner.ir.types import Array, DType
from tuner.plan import Measurement
from tuner.runtime import cancelling, jumps
from tuner.runtime.backend import Backend
from tuner.runtime.executor import Executor, prepared
from tuner.runtime.failures import failure_of
from tuner.runtime.flush import Flush, before_each, host_flush
from tuner.runtime.library import Launch, ReferenceModel, SessionOptions
from tuner.runtime.requests import PlanRequest, PlanResult, Program, Tell, silent
from tuner.runtime.timing import Protocol, Run, measure, measure_by_turns
from tuner.runtime.verification import EPSILON, MODEL_EPSILONS, Verdict, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequest:
    """Time the user's model, in a process where nothing else spins."""

    model: bytes
    weights: Mapping[str, Array]
    feeds: Mapping[str, Array]
    threads: int
    repeats: int
    budget_seconds: float
    attempts: int = 1
    flush_bytes: int = 0
    rounds: int = 1


class Reference:
    """The model as its user would run it: all optimisations, spinning threads."""

    def __init__(self, request: ReferenceRequest) -> None:
        """Load the model.

        Raises:
            KernelFailed: the library cannot run it.
        """
        self._request = request
        options = SessionOptions(threads=request.threads, spinning=True)
        model = ReferenceModel(request.model, request.weights, options)
        self._launch: Launch = model.launch(request.feeds)

    def measure(self) -> Measurement:
        """Time it."""
        request = self._request
        protocol = Protocol(
            repeats=request.repeats,
            budget_seconds=request.budget_seconds,
            attempts=request.attempts,
        )
        if not request.flush_bytes:
            return measure(self._elapsed, protocol)
        flush = host_flush(request.flush_bytes)
        return measure(before_each(self._elapsed, flush), protocol)

    def _elapsed(self, launches: int) -> float:
        launch = self._launch
        start = time.perf_counter()
        for _ in range(launches):
            launch()
        return time.perf_counter() - start


class Programs:
    """The programs of a request, loaded and verified.

    A program that cannot be loaded, or disagrees with the reference model, has a
    failed measurement; the others go on.
    """

    def __init__(
        self,
        backend: Backend,
        request: PlanRequest,
        options: SessionOptions | None = None,
        tell: Tell = silent,
    ) -> None:
        """Verify every program on every feed.

        Args:
            backend: the device.
            request: the programs.
            options: threads of library calls.
            tell: hears the name of each program before it runs for the first time.

        Raises:
            KernelFailed: the reference model cannot be run.
        """
        self._backend = backend
        self._request = request
        expected = _expected(request) if request.reference is not None else None
        self._is_compared = expected is not None
        self._loaded, self._failures = _load(backend, request, options, expected, tell)

    def measure(self) -> PlanResult:
        """Time by turns the programs that passed."""
        request, loaded = self._request, self._loaded
        executors = {name: e for name, (e, _) in loaded.items()}
        timed = _timed(executors, request, self._backend)
        found = {
            name: replace(
                timed[name],
                max_abs_error=verdict.max_abs_error,
                max_rel_error=verdict.max_rel_error,
            )
            for name, (_, verdict) in loaded.items()
        }
        by_step = executors if request.by_step else {}
        names = request.programs
        return PlanResult(
            measurements={n: found.get(n) or self._failures[n] for n in names},
            verified=self._is_compared and bool(found),
            step_seconds={name: e.step_seconds() for name, e in by_step.items()},
        )


def measure_programs(
    backend: Backend,
    request: PlanRequest,
    options: SessionOptions | None = None,
    tell: Tell = silent,
) -> PlanResult:
    """Verify programs and time by turns those that passed; see `Programs`.

    Raises:
        KernelFailed: the reference model cannot be run.
    """
    return Programs(backend, request, options, tell).measure()


_Loaded = dict[str, tuple[Executor, Verdict]]


def _load(
    backend: Backend,
    request: PlanRequest,
    options: SessionOptions | None,
    expected: list[dict[str, Array]] | None,
    tell: Tell,
) -> tuple[_Loaded, dict[str, Measurement]]:
    """An executor for each program that is right, a failure for each other.

    Programs that prepare alike share the weights.
    """
    shared: dict[int, Mapping[str, Array]] = {}
    loaded: _Loaded = {}
    failures: dict[str, Measurement] = {}
    for name, program in request.programs.items():
        tell(name)
        key = id(program.prepare)
        try:
            if key not in shared:
                shared[key] = prepared(program, request.weights)
            alone = len(request.programs) == 1
            executor = Executor(program, shared[key], backend, options, alone=alone)
            verdict = Verdict()
            if expected is not None:
                verdict = verify(request, name, executor, expected)
        except (TunerError, MemoryError) as error:
            failures[name] = failure_of(error)
        else:
            loaded[name] = (executor, verdict)
    tell("")
    return loaded, failures


def _timed(
    executors: Mapping[str, Executor], request: PlanRequest, backend: Backend
) -> dict[str, Measurement]:
    if not executors:
        return {}
    for executor in executors.values():
        executor.load(request.feeds[0])
    protocol = Protocol(
        repeats=request.repeats,
        budget_seconds=request.budget_seconds,
        attempts=request.attempts,
    )
    runs: list[Run] = [executor.elapsed for executor in executors.values()]
    if request.flush_bytes:
        flush = Flush(backend, request.flush_bytes)
        runs = [before_each(run, flush) for run in runs]
    timed = measure_by_turns(runs, protocol)
    return dict(zip(executors, timed, strict=True))


def _expected(request: PlanRequest) -> list[dict[str, Array]]:
    """The reference model's outputs for each feed, by its own names."""
    assert request.reference is not None
    model = ReferenceModel(request.reference, request.reference_weights)
    names = request.reference_names
    return [
        model.run({names.get(name, name): array for name, array in feed.items()})
        for feed in request.feeds
    ]


def verify(
    request: PlanRequest,
    name: str,
    executor: Executor,
    expected: list[dict[str, Array]],
) -> Verdict:
    """Compare a program's outputs with the reference model's on every feed."""
    worst = Verdict()
    program = request.programs[name]
    for feed, truth in zip(request.feeds, expected, strict=True):
        outputs = executor.run(feed)
        pairs = {
            tensor: (
                outputs[tensor],
                truth[request.reference_names.get(tensor, tensor)],
            )
            for tensor in program.outputs
        }
        found = [compare(program, tensor, *pair) for tensor, pair in pairs.items()]
        verdicts = dict(zip(pairs, found, strict=True))
        reason = ""
        if any(verdict.reason for verdict in found):
            reason = _why_wrong(executor, program, feed, pairs, verdicts)
        worst = Verdict(
            reason=reason,
            max_abs_error=max(v.max_abs_error for v in (worst, *found)),
            max_rel_error=max(v.max_rel_error for v in (worst, *found)),
        )
        if reason:
            raise VerificationFailed(
                f"program {name}",
                reason,
                max_abs_error=worst.max_abs_error,
                max_rel_error=worst.max_rel_error,
            )
    return worst


def _why_wrong(
    executor: Executor,
    program: Program,
    feed: Mapping[str, Array],
    pairs: Mapping[str, tuple[Array, Array]],
    verdicts: Mapping[str, Verdict],
) -> str:
    """Why a program off the reference is wrong; empty if rounding explains it."""
    reasons = {tensor: verdict.reason for tensor, verdict in verdicts.items()}
    first = next(filter(None, reasons.values()))
    if not _are_alike(pairs):
        return first
    errors = {
        tensor: verdict.max_abs_error
        for tensor, verdict in verdicts.items()
        if verdict.reason and program.types[tensor].dtype.is_float
    }
    units = partial(_units, program)
    noise = cancelling.explained(executor, program, feed, errors, units)
    reasons |= dict.fromkeys(noise, "")
    first = next(filter(None, reasons.values()), "")
    if first and jumps.has_jumps(program):
        bound = partial(_bound, program)
        return jumps.why_wrong(executor, program, feed, pairs, reasons, bound)
    return first


def _units(program: Program, dtype: DType) -> float:
    """The bound in rounding units of the coarsest type."""
    return _bound(program, dtype) / EPSILON[_coarsest(program, dtype)]


def _are_alike(pairs: Mapping[str, tuple[Array, Array]]) -> bool:
    return all(ours.shape == truth.shape for ours, truth in pairs.values())


def compare(program: Program, tensor: str, ours: Array, truth: Array) -> Verdict:
    """A whole program's output against the library's, within `_bound`."""
    dtype = program.types[tensor].dtype
    left: Any = widen(ours, dtype)
    right: Any = widen(truth, dtype)
    if left.shape != right.shape:
        return Verdict(reason=f"{tensor}: shape {left.shape}, not {right.shape}")
    if not dtype.is_float:
        wrong = int(np.count_nonzero(left != right))
        reason = f"{tensor}: {wrong} of {left.size} elements differ" if wrong else ""
        return Verdict(reason=reason, max_abs_error=float(wrong))
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if same.all():
        return Verdict()
    with np.errstate(invalid="ignore"):
        error = float(np.max(np.where(same, 0.0, np.abs(left - right))))
    finite = np.abs(right[np.isfinite(right)])
    scale = float(finite.max()) if finite.size else 0.0
    bound = _bound(program, dtype) * scale
    relative = error / scale if scale else error
    reason = "" if error <= bound else f"{tensor}: error {error:.3g} of {scale:.3g}"
    return Verdict(reason=reason, max_abs_error=error, max_rel_error=relative)


def _bound(program: Program, dtype: DType) -> float:
    """How far both sides may be apart, of the greatest value.

    64 rounding units of the coarsest type, or those of a sum, times the root of its
    length: the library adds elements one by one, so its own error grows with their
    number, by its root where errors fall either way. It adds up 16-bit numbers in 32
    bits, as our kernels do, so a long sum of theirs asks for no more.

    Source: N. J. Higham, "The Accuracy of Floating Point Summation", SIAM Journal on
    Scientific Computing 14(4), 1993, section 5.
    """
    sums = (
        math.sqrt(graph.types[node.inputs[0]].elements / out.elements)
        * min(EPSILON[out.dtype], EPSILON[DType.F32])
        for graph in (step.graph for step in program.steps)
        for node in graph.nodes
        for out in (graph.types[node.outputs[0]],)
        if node.op == "reduce_sum" and out.dtype.is_float and out.elements
    )
    coarsest = MODEL_EPSILONS * EPSILON[_coarsest(program, dtype)]
    return max(coarsest, max(sums, default=0.0))


def _coarsest(program: Program, dtype: DType) -> DType:
    """The float type with the largest rounding unit between inputs and outputs."""
    made = (
        step.graph.types[out].dtype
        for step in program.steps
        for node in step.graph.nodes
        for out in node.outputs
    )
    floats = {dtype, *(kind for kind in made if kind.is_float)}
    return max(floats, key=lambda kind: EPSILON[kind])
