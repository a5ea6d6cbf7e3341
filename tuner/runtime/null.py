"""A device without hardware: memory of the host, times from a table or a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tuner.errors import CompileFailed, KernelFailed
from tuner.ir.types import Array
from tuner.plan import Language, Measurement, Source
from tuner.runtime.backend import (
    Bytes,
    Enqueue,
    Memory,
    ResourcesExceeded,
    aligned_bytes,
    as_bytes,
)
from tuner.runtime.canary import canary
from tuner.runtime.failures import failed
from tuner.runtime.flush import ENTRY as FLUSH
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult, Program
from tuner.runtime.timing import MIN_SAMPLES, summarise

Behaviour = Callable[[Sequence[Bytes]], None]
"""What a kernel does to the bytes of its arguments."""

_BLOCK_LIMIT = 1024


def _canary(arguments: Sequence[Bytes]) -> None:
    given = arguments[0].view(np.float32)
    arguments[1].view(np.float32)[: given.size] = 2 * given + 1


def _touch(arguments: Sequence[Bytes]) -> None:
    arguments[0].view(np.float32)[:] += 1


def launch_key(source: Source) -> str:
    """Name of one launch: its text may have several entries."""
    return f"{source.digest}/{source.entry}"


class NullBackend:
    """Runs no generated text: a kernel does what the given Python function does."""

    language: Language = "opencl"
    name = "null"
    toolchain = "null 1"
    alignment_bytes = 128

    def __init__(
        self,
        behaviours: Mapping[str, Behaviour] = MappingProxyType({}),
        *,
        launch_seconds: float = 1e-5,
    ) -> None:
        """Say what each kernel does.

        Args:
            behaviours: by kernel entry, or by `launch_key`; any other source does
                not compile.
            launch_seconds: what the clock says of every launch.
        """
        own = {canary("opencl").entry: _canary, FLUSH: _touch}
        self._behaviours = {**own, **behaviours}
        self._launch_seconds = launch_seconds

    @classmethod
    def open(cls, index: int) -> NullBackend:
        """A null device; there are as many as one likes."""
        del index
        return cls()

    def allocate(self, size_bytes: int) -> Memory:
        """Page-aligned bytes."""
        return aligned_bytes(size_bytes)

    def wrap(self, array: Array) -> Memory:
        """A copy."""
        memory = aligned_bytes(array.nbytes)
        self.write(memory, array)
        return memory

    def slice(self, memory: Memory, offset_bytes: int, size_bytes: int) -> Memory:
        """A view; like a device of OpenCL, nowhere but at multiples.

        Raises:
            KernelFailed: the offset is no multiple of `alignment_bytes`.
        """
        if offset_bytes % self.alignment_bytes:
            step = self.alignment_bytes
            raise KernelFailed(self.name, f"{offset_bytes} is no multiple of {step}")
        return memory[offset_bytes : offset_bytes + max(size_bytes, 1)]

    def host(self, memory: Memory) -> Bytes | None:
        """The bytes."""
        view: Bytes = memory
        return view

    def write(self, memory: Memory, array: Array) -> None:
        """Copy."""
        memory[: array.nbytes] = as_bytes(array)

    def read(self, memory: Memory, array: Array) -> None:
        """Copy."""
        as_bytes(array)[:] = memory[: array.nbytes]

    def fill(self, memory: Memory, value: int) -> None:
        """Set every byte."""
        memory[:] = value

    def bind(
        self, source: Source, memories: Sequence[Memory], *, exactness: str = "strict"
    ) -> Enqueue:
        """Look the behaviour up; it is exact, whatever was asked."""
        del exactness
        threads = source.block[0] * source.block[1] * source.block[2]
        if threads > _BLOCK_LIMIT:
            raise ResourcesExceeded(source.entry, f"{threads} threads a block")
        behaviour = self._behaviours.get(
            launch_key(source), self._behaviours.get(source.entry)
        )
        if behaviour is None:
            raise CompileFailed(source.entry, "the null device has no such kernel")
        known, arguments = behaviour, list(memories)
        return lambda: known(arguments)

    def synchronise(self) -> None:
        """Nothing is ever pending."""

    def elapsed(self, enqueue: Enqueue, launches: int) -> float:
        """Run once; the time is a constant."""
        enqueue()
        return self._launch_seconds * launches

    def close(self) -> None:
        """Nothing is held."""


class NullRunner:
    """Answers like a runner, from recorded times with seeded noise.

    The same request always gets the same answer, whatever was asked before.
    """

    device = "null"
    device_name = "null"

    def __init__(
        self,
        seconds: Callable[[MeasureRequest], float],
        *,
        failures: Callable[[MeasureRequest], tuple[str, str] | None] | None = None,
        noise: float = 0.0,
        interference: float = 0.0,
        seed: int = 0,
        toolchain: str = "null 1",
    ) -> None:
        """Give the times.

        Args:
            seconds: the true time of a request; infinite means that it fails to run.
            failures: kind and message of requests that fail.
            noise: relative standard deviation of a sample.
            interference: relative standard deviation of the factor by which a whole
                program differs from the sum of its steps; fixed for each program.
            seed: of noise and interference.
            toolchain: what results are results of.
        """
        self._seconds = seconds
        self._failures = failures
        self._noise = noise
        self._interference = interference
        self._seed = seed
        self.toolchain = toolchain

    def measure(self, request: MeasureRequest) -> Measurement:
        """Samples around the recorded time."""
        told = self._failures(request) if self._failures is not None else None
        if told is not None:
            return failed(*told)
        true = self._seconds(request)
        if true == float("inf"):
            return failed("runtime", "recorded")
        if not request.timed:
            return Measurement(seconds=float("inf"))
        name = f"{_text(request.source)}/{true!r}"
        count = max(request.repeats, MIN_SAMPLES)
        return summarise([true * factor for factor in self._factors(name, count)])

    def measure_pair(
        self, first: MeasureRequest, second: MeasureRequest
    ) -> tuple[Measurement, Measurement]:
        """Each by itself."""
        return self.measure(first), self.measure(second)

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Samples around the recorded times of the steps together."""
        drift = self._factors("drift", request.repeats)
        measurements = {}
        for name, program in request.programs.items():
            true = self.program_seconds(program)
            if true == float("inf"):
                measurements[name] = failed("runtime", "recorded")
                continue
            own = self._factors(f"{name}/{true!r}", request.repeats)
            samples = [true * a * b for a, b in zip(drift, own, strict=True)]
            measurements[name] = summarise(samples)
        return PlanResult(measurements=measurements, verified=True)

    def program_seconds(self, program: Program) -> float:
        """The true time of a whole program."""
        steps = [
            MeasureRequest(
                graph=step.graph, source=step.source, exactness=program.exactness
            )
            for step in program.steps
        ]
        if self._failures is not None and any(map(self._failures, steps)):
            return float("inf")
        total = sum(self._seconds(step) for step in steps)
        texts = "/".join(
            f"{_text(step.source)}{len(step.graph.nodes)}" for step in steps
        )
        # Not for secrets: the factor must be the same in every process.
        source = random.Random(f"whole/{self._seed}/{texts}")  # noqa: S311
        return total * max(source.gauss(1.0, self._interference), 0.01)

    def _factors(self, name: str, count: int) -> list[float]:
        """Noise that belongs to a name."""
        # Not for secrets: the noise must be the same in every process.
        source = random.Random(f"{self._seed}/{name}")  # noqa: S311
        return [max(source.gauss(1.0, self._noise), 0.01) for _ in range(count)]

    def __enter__(self) -> NullRunner:
        """Nothing to start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def close(self) -> None:
        """Nothing is held."""


def _text(source: Source | None) -> str:
    return "library" if source is None else source.digest
