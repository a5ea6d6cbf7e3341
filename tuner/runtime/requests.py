"""What the runner is asked, as values that travel to its child process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol

from tuner.ir.graph import Graph
from tuner.ir.types import Array, TensorType
from tuner.plan import Measurement, MemoryPlan, Source

Exactness = Literal["strict", "relaxed"]
Cache = Literal["cold", "warm"]
"""Whether a timed launch finds its inputs in the caches or not."""
Tell = Callable[[str], None]
"""Says what is done next; the empty text: nothing in particular."""


def silent(text: str) -> None:
    """Tell nobody."""
    del text


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """One kernel to verify and time.

    Attributes:
        graph: what the kernel computes, as `tuner.ir.graph.extract` cuts it out.
        source: the generated kernel; None runs the graph in the library.
        weights: inputs that are known at load time in the plan, so that the library
            may pack them; their random values are the same in every run.
        values: stored arrays of inputs whose values are known.
        ranges: least and greatest value of inputs, where the user said so.
        seeds: one verified run for each; they differ.
        repeats: samples, at least 7.
        budget_seconds: about how long the timed samples may take in all; never
            fewer than 7 samples.
        abandon_above_seconds: give up after 3 samples that are all slower.
        deadline_seconds: after this the child is killed, counted from the request.
        attempts: how often a batch of samples that others disturbed is taken.
        flush_bytes: so much other memory is touched before every launch, so that the
            caches hold nothing of the kernel's; 0 leaves them as the launch before
            left them.
        company: the generated kernel that is launched behind every timed launch, as in
            a plan of many kernels, and the graph that it computes; what it takes on its
            own is taken off.
        verify: whether outputs are compared before timing.
        timed: whether it is timed at all; if not, it is verified once per process.
    """

    graph: Graph
    source: Source | None = None
    weights: tuple[str, ...] = ()
    values: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    ranges: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    exactness: Exactness = "strict"
    seeds: tuple[int, int] = (0, 1)
    repeats: int = 15
    budget_seconds: float = 0.5
    abandon_above_seconds: float = math.inf
    deadline_seconds: float = 60.0
    attempts: int = 1
    flush_bytes: int = 0
    company: tuple[Graph, Source] | None = None
    verify: bool = True
    timed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel of a program.

    Attributes:
        name: for messages.
        graph: what it computes, as a graph of its own.
        source: the generated kernel, or None for a library call.
        tensors: name in `graph` -> tensor of the program, where they differ.
    """

    name: str
    graph: Graph
    source: Source | None = None
    tensors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def tensor(self, name: str) -> str:
        """The program's tensor under a name of the step's graph."""
        return self.tensors.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A plan as the executor runs it: steps in launch order over named tensors.

    Attributes:
        prepare: computed once at load; its inputs are weights as they were given,
            its outputs are weights or constants of the steps.
        inputs, outputs: tensors given and delivered at every run.
        weights: tensors given at load, those of `prepare` too.
        constants: stored arrays of the tensors whose values the graph knows.
        types: of every tensor that is named here or in a step.
        memory: where the tensors between steps live; `aliases` also names the
            reshapes of any tensor.
    """

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    constants: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    types: Mapping[str, TensorType]
    memory: MemoryPlan
    prepare: Graph | None = None
    exactness: Exactness = "strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Whole programs to verify against the user's model, and to time by turns.

    Attributes:
        programs: by a name of the caller's, such as "plan" and "unfused"; all have
            the same inputs and outputs in the same order.
        weights: stored arrays by the programs' names.
        feeds: stored arrays of the programs' inputs; the first is also timed.
        reference: the user's model in ONNX, dimensions bound; None skips it.
        reference_names: program tensor -> name in that model, for inputs, weights
            and outputs, where they differ.
        reference_weights: stored arrays of the model's inputs that are weights, by
            the model's names.
        budget_seconds: for the timed samples of all programs together.
        attempts: how often samples that others disturbed are taken.
        flush_bytes: touched before every run; see `MeasureRequest`.
        by_step: whether every step is timed on its own, too.
        rounds: how often the programs, and after them the reference model in its own
            process, are timed; 0 leaves the reference model untimed. A single program
            is thereby timed alone, as the reference model is.
    """

    programs: Mapping[str, Program]
    weights: Mapping[str, Array]
    feeds: tuple[Mapping[str, Array], ...]
    reference: bytes | None = None
    reference_names: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({})
    )
    reference_weights: Mapping[str, Array] = field(
        default_factory=lambda: MappingProxyType({})
    )
    repeats: int = 15
    budget_seconds: float = 5.0
    deadline_seconds: float = 300.0
    attempts: int = 1
    flush_bytes: int = 0
    by_step: bool = False
    rounds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Time once more what the request before loaded: programs or a reference model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """Measurements by program name; "reference" is the user's model, run alone.

    Attributes:
        verified: whether outputs were compared with the reference model: every
            program without a failure agreed with it, and there is one.
        step_seconds: where asked for, least time of each step run alone, by program
            and step.
    """

    measurements: Mapping[str, Measurement]
    verified: bool
    step_seconds: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: MappingProxyType({})
    )


class Measures(Protocol):
    """What times kernels and plans: `Runner`, or `NullRunner` without hardware."""

    @property
    def device_name(self) -> str:
        """What the device calls itself."""
        ...

    @property
    def toolchain(self) -> str:
        """Compiler, driver and library versions behind the measurements."""
        ...

    def measure(self, request: MeasureRequest) -> Measurement:
        """Verify and time one kernel."""
        ...

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Verify and time whole programs, interleaved."""
        ...
