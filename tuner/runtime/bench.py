"""Verify a kernel, then time it: what happens inside the child process."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from tuner.errors import TunerError, VerificationFailed
from tuner.ir.fingerprint import text
from tuner.ir.graph import Graph, Node
from tuner.ir.interpreter import Precision, evaluate
from tuner.ir.types import Array
from tuner.plan import Measurement, Source
from tuner.runtime import library
from tuner.runtime.backend import Backend, Enqueue, Memory
from tuner.runtime.feeds import Variant, align, make_feeds, variants
from tuner.runtime.flush import Flush, before_each
from tuner.runtime.kernels import bind_generated, bind_library
from tuner.runtime.requests import MeasureRequest
from tuner.runtime.timing import Protocol, Run, measure_by_turns
from tuner.runtime.verification import (
    KERNEL_EPSILONS,
    Truth,
    Verdict,
    epsilon,
    greatest_error,
    judge,
    why_void,
    widen,
)

_KEPT_BYTES: Final = 2 << 30
_POISONS: Final = (0xFF, 0xA5)
"""Bytes that outputs hold before a verified run: NaN in every float type; then a
pattern that no whole number shares with the first."""

_GUARD_BYTES: Final = 4096
"""Poisoned bytes behind every output, that no kernel may touch."""


@dataclass(slots=True, kw_only=True)
class Case:
    """Inputs of a graph, and the reference outputs that belong to them.

    Attributes:
        feeds: stored inputs, one mapping for each seed.
        references: float64 outputs, likewise; empty when nothing is verified.
        void: why a comparison would say nothing; empty when it does.
    """

    graph: Graph
    feeds: tuple[Mapping[str, Array], ...]
    references: tuple[Mapping[str, Truth], ...]
    void: str

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        fed = (array for group in self.feeds for array in group.values())
        true = (t.values for group in self.references for t in group.values())
        return sum(array.nbytes for array in (*fed, *true))

    def library_error(self, index: int, name: str) -> float:
        """The library's greatest error in one output; 0 if it cannot run the graph."""
        if not library.is_available():
            return 0.0
        graph, feeds = self.graph, self.feeds[index]
        outputs = {
            out: np.empty(graph.types[out].static_shape, graph.types[out].dtype.numpy)
            for out in graph.outputs
        }
        try:
            library.open_graph(graph).bind({**feeds, **outputs}, graph.types)()
        except TunerError:
            return 0.0
        ours = widen(outputs[name], graph.types[name].dtype)
        error = greatest_error(ours, self.references[index][name])
        return error if math.isfinite(error) else 0.0

    def rounded(self, index: int, name: str) -> Array:
        """An output in the types' own precision."""
        return interpret(self.graph, self.feeds[index], "native")[name]


def interpret(
    graph: Graph, feeds: Mapping[str, Array], precision: Precision
) -> dict[str, Array]:
    """Evaluate by the references, opaque nodes by the library."""

    def opaque(node: Node, arrays: Sequence[Array]) -> Sequence[Array]:
        return library.run_opaque(node, graph, arrays)

    return evaluate(graph, feeds, precision=precision, opaque=opaque)


def make_case(request: MeasureRequest) -> Case:
    """Draw inputs, another kind of them as long as the check would be void."""
    plain, *others = variants(request.graph)
    case = _draw(request, plain)
    if not request.verify:
        return case
    for variant in (plain, *others):
        case = case if variant is plain else _draw(request, variant)
        first, second = (interpret(request.graph, f, "float64") for f in case.feeds)
        case.references = tuple(
            {name: Truth.of(values) for name, values in outputs.items()}
            for outputs in (first, second)
        )
        case.void = why_void(_varying_part(request), first, second)
        if not case.void:
            break
    return case


def _varying_part(request: MeasureRequest) -> Graph:
    """The graph with what differs between seeds as its inputs."""
    varying = tuple(n for n in request.graph.inputs if n not in _fixed_names(request))
    return replace(request.graph, inputs=varying, weights=())


def _fixed_names(request: MeasureRequest) -> frozenset[str]:
    """Inputs that are the same in every run; weights only beside other inputs."""
    graph = request.graph
    weights = {*graph.weights, *request.weights}
    others = [n for n in graph.inputs if n not in weights and n not in request.values]
    return frozenset({*request.values, *(weights if others else ())})


def _draw(request: MeasureRequest, variant: Variant) -> Case:
    graph, fixed = request.graph, _fixed_names(request)
    draw = partial(make_feeds, graph, variant=variant, ranges=request.ranges)
    names = (*graph.inputs, *graph.weights)
    given = {n: align(a) for n, a in request.values.items() if n in names}
    still = tuple(name for name in names if name in fixed and name not in given)
    moving = tuple(name for name in names if name not in fixed)
    common = {**given, **draw(request.seeds[0], names=still)}
    feeds = tuple({**common, **draw(seed, names=moving)} for seed in request.seeds)
    return Case(graph=graph, feeds=feeds, references=(), void="")


def _case_key(request: MeasureRequest) -> str:
    """What decides inputs and references; equal for requests that ask the same.

    By text, and not by the bytes in which a request travels: those hold what a graph
    has remembered of itself since, such as its nodes by name.
    """
    values = sorted(request.values.items())
    parts = (
        text(request.graph),
        repr(request.weights),
        repr([(name, *_content(array)) for name, array in values]),
        repr(sorted(request.ranges.items())),
        repr(request.seeds),
        repr(request.verify),
    )
    return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()


def _content(array: Array) -> tuple[str, tuple[int, ...], str]:
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    return str(array.dtype), array.shape, digest


def _identity(request: MeasureRequest) -> tuple[str, str, str]:
    """What a verification was a verification of."""
    source = request.source
    called = "library" if source is None else f"{source.digest}/{source.grid}"
    case = _case_key(replace(request, verify=True))
    return case, called, request.exactness


class Bench:
    """A device with the inputs and references of recent requests kept warm."""

    def __init__(
        self, backend: Backend, options: library.SessionOptions | None = None
    ) -> None:
        """Use a device.

        Args:
            backend: where generated kernels run.
            options: threads of library calls.
        """
        self.backend = backend
        self.options = options
        self._cases: OrderedDict[str, Case] = OrderedDict()
        self._verified: dict[tuple[str, str, str], Verdict] = {}
        self._flush: tuple[int, Flush] | None = None

    def measure(self, request: MeasureRequest) -> Measurement:
        """Verify, then time.

        Raises:
            CompileFailed, ResourcesExceeded, KernelFailed, VerificationFailed: what
                the failure kinds of a measurement stand for.
        """
        if not request.timed:
            return self._only_verify(request)
        return self.measure_by_turns([request])[0]

    def _only_verify(self, request: MeasureRequest) -> Measurement:
        """Verify what was not verified in this process; no samples are taken."""
        key = _identity(request)
        if key not in self._verified:
            self._prepare(replace(request, verify=True))
        verdict = self._verified[key]
        return Measurement(
            seconds=math.inf,
            max_abs_error=verdict.max_abs_error,
            max_rel_error=verdict.max_rel_error,
        )

    def measure_by_turns(
        self, requests: Sequence[MeasureRequest]
    ) -> tuple[Measurement, ...]:
        """Verify all, then time them by turns under the first one's protocol."""
        prepared = [self._prepare(request) for request in requests]
        first = requests[0]
        protocol = Protocol(
            repeats=first.repeats,
            budget_seconds=first.budget_seconds * len(requests),
            abandon_above_seconds=max(r.abandon_above_seconds for r in requests),
            attempts=first.attempts,
        )
        timed = measure_by_turns([run for run, _ in prepared], protocol)
        return tuple(
            replace(
                measurement,
                max_abs_error=verdict.max_abs_error,
                max_rel_error=verdict.max_rel_error,
            )
            for measurement, (_, verdict) in zip(timed, prepared, strict=True)
        )

    def _prepare(self, request: MeasureRequest) -> tuple[Run, Verdict]:
        case = self._case(request)
        if case.void:
            raise VerificationFailed("check", f"void: {case.void}")
        outputs = self._outputs(case)
        enqueue = self._bind(request, case, 0, outputs)
        verdict = Verdict()
        if request.verify:
            other = self._bind(request, case, 1, outputs)
            first = self._verify(case, 0, enqueue, outputs)
            verdict = _worse(first, self._verify(case, 1, other, outputs))
            self._verified[_identity(request)] = verdict
        warm: Run = partial(self.backend.elapsed, enqueue)
        if request.company is not None:
            warm = self._in_company(enqueue, *request.company)
        return self.cold(warm, request.flush_bytes), verdict

    def _in_company(self, enqueue: Enqueue, graph: Graph, source: Source) -> Run:
        """Launches by turns with another kernel, less what that one takes on its own.

        Two pools of threads that take turns find each other awake or asleep, and the
        caches as the other left them. Never less than the launches alone.
        """
        other = MeasureRequest(graph=graph, source=source, verify=False)
        case = self._case(other)
        beside = self._bind(other, case, 0, self._outputs(case))

        def both() -> None:
            enqueue()
            beside()

        def run(launches: int) -> float:
            alone, own, together = (
                self.backend.elapsed(each, launches) for each in (enqueue, beside, both)
            )
            return max(alone, together - own)

        return run

    def cold(self, run: Run, flush_bytes: int) -> Run:
        """The same run with so much memory touched before each launch."""
        if not flush_bytes:
            return run
        if self._flush is None or self._flush[0] != flush_bytes:
            self._flush = None
            self._flush = (flush_bytes, Flush(self.backend, flush_bytes))
        return before_each(run, self._flush[1])

    def _case(self, request: MeasureRequest) -> Case:
        key = _case_key(request)
        if key not in self._cases:
            self._cases[key] = make_case(request)
        self._cases.move_to_end(key)
        while len(self._cases) > 1 and self._kept_bytes() > _KEPT_BYTES:
            self._cases.popitem(last=False)
        return self._cases[key]

    def _kept_bytes(self) -> int:
        return sum(case.size_bytes for case in self._cases.values())

    def _outputs(self, case: Case) -> dict[str, Memory]:
        types = case.graph.types
        return {
            name: self.backend.allocate(types[name].bytes + _GUARD_BYTES)
            for name in case.graph.outputs
        }

    def _bind(
        self,
        request: MeasureRequest,
        case: Case,
        index: int,
        outputs: Mapping[str, Memory],
    ) -> Enqueue:
        feeds = case.feeds[index]
        if request.source is not None:
            inputs = {name: self.backend.wrap(array) for name, array in feeds.items()}
            memories = {**inputs, **outputs}
            return bind_generated(
                self.backend, request.source, memories, exactness=request.exactness
            )
        known = _fixed_names(request)
        fixed = {name: array for name, array in feeds.items() if name in known}
        inputs = {
            name: self.backend.wrap(array)
            for name, array in feeds.items()
            if name not in fixed
        }
        return bind_library(
            self.backend, case.graph, {**inputs, **outputs}, fixed, self.options
        )

    def _verify(
        self, case: Case, index: int, enqueue: Enqueue, outputs: Mapping[str, Memory]
    ) -> Verdict:
        for memory in outputs.values():
            self.backend.fill(memory, _POISONS[index % 2])
        enqueue()
        self.backend.synchronise()
        worst = Verdict()
        for name in case.graph.outputs:
            worst = _worse(worst, self._judge(case, index, name, outputs[name]))
        return worst

    def _judge(self, case: Case, index: int, name: str, memory: Memory) -> Verdict:
        kind = case.graph.types[name]
        raw = np.empty(kind.bytes + _GUARD_BYTES, np.uint8)
        self.backend.read(memory, raw)
        if (raw[kind.bytes :] != _POISONS[index % 2]).any():
            raise VerificationFailed("output", f"{name}: was written beyond its end")
        stored = raw[: kind.bytes].view(kind.dtype.numpy).reshape(kind.static_shape)
        verdict = judge(
            name,
            widen(stored, kind.dtype),
            case.references[index][name],
            bound=KERNEL_EPSILONS * epsilon(case.graph),
            library_error=partial(case.library_error, index, name),
            alternative=partial(case.rounded, index, name),
        )
        if verdict.reason:
            raise VerificationFailed(
                "output",
                verdict.reason,
                max_abs_error=verdict.max_abs_error,
                max_rel_error=verdict.max_rel_error,
            )
        return verdict


def _worse(one: Verdict, other: Verdict) -> Verdict:
    return Verdict(
        max_abs_error=max(one.max_abs_error, other.max_abs_error),
        max_rel_error=max(one.max_rel_error, other.max_rel_error),
    )
