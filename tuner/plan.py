"""Values that the stages of the planner hand to each other, and the plan itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from cost_model.estimate import Estimate, Evidence
from tuner.ir.custom import RuleSet
from tuner.ir.graph import Graph, Region
from tuner.ir.types import TensorType

CODEGEN_REVISION: Final = 19
"""Grows whenever a generated text changes for an unchanged graph and schedule."""

PRICE_REVISION: Final = 13
"""Grows whenever the cost model counts or prices an unchanged kernel differently: a
stored plan is the best one by the prices of its day."""


class Family(StrEnum):
    """Which kind of kernel runs a region."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    WINDOW = "window"
    LIBRARY = "library"
    OPAQUE = "opaque"


GENERATED: Final = frozenset(
    {Family.POINTWISE, Family.REDUCTION, Family.CONTRACTION, Family.WINDOW}
)
"""Families whose source we write; the others run in a library."""

Language = Literal["opencl", "cuda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How a kernel walks through its work: one whole number per knob."""

    knobs: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, **knobs: int) -> Schedule:
        """A schedule from named knobs; the order does not matter."""
        return cls(knobs=tuple(sorted(knobs.items())))

    def __getitem__(self, knob: str) -> int:
        return dict(self.knobs)[knob]

    @property
    def as_dict(self) -> dict[str, int]:
        """The knobs as JSON has them."""
        return dict(self.knobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One pointer argument of a kernel.

    Attributes:
        scratch: type of memory that launches of one kernel hand to each other; None
            for a tensor of the graph.
    """

    tensor: str
    is_output: bool
    scratch: TensorType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A generated kernel in one language, and how to launch it.

    Attributes:
        entry: name of the kernel function.
        arguments: pointers, in order; tensors are named as in the kernel's graph.
        grid: blocks (work-groups) along x, y, z.
        block: threads (work-items) along x, y, z.
        before: launches that have to run first, in order, from the same text.
    """

    language: Language
    text: str
    entry: str
    arguments: tuple[Argument, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    before: tuple[Source, ...] = ()

    @property
    def launches(self) -> tuple[Source, ...]:
        """Every launch by itself, in order."""
        return (*self.before, replace(self, before=()))

    @property
    def touched(self) -> tuple[Argument, ...]:
        """Arguments of all launches, each once."""
        found = {a.tensor: a for one in self.launches for a in one.arguments}
        return tuple(found.values())

    @property
    def scratch(self) -> Mapping[str, TensorType]:
        """Types of what its launches hand to each other, by name."""
        return {a.tensor: a.scratch for a in self.touched if a.scratch is not None}

    @property
    def digest(self) -> str:
        """SHA-256 of the text, as hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a real compiler says a kernel uses."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    architecture: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Timed runs of one verified kernel or plan.

    Attributes:
        seconds: median of the samples.
        samples: every timed run, in seconds, in order.
        low_seconds, high_seconds: 95 % confidence interval of the median.
        failure: empty, or one of compile, runtime, timeout, correctness, resources,
            noise; a failed measurement has no samples and infinite seconds.
        message: what the failure said.
        contended: whether other processes disturbed the samples.
        max_abs_error, max_rel_error: against the reference.
    """

    seconds: float
    samples: tuple[float, ...] = ()
    low_seconds: float = 0.0
    high_seconds: float = 0.0
    failure: str = ""
    message: str = ""
    contended: bool = False
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A user's wish about two nodes, by canonical node id."""

    fuse: bool
    nodes: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may ask of a plan; all of it is part of the plan key."""

    objective: Literal["latency"] = "latency"
    launch_mode: Literal["stream", "graph"] = "stream"
    mode: Literal["inference", "training"] = "inference"
    exactness: Literal["strict", "relaxed"] = "strict"
    legality: Literal["reference", "full"] = "full"
    memory_cap_bytes: int | None = None
    pins: tuple[Pin, ...] = ()
    shapes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    rules: RuleSet = field(default_factory=RuleSet)
    ranges: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: MappingProxyType({})
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSpace:
    """What the bound of a partition speaks about.

    Attributes:
        families: kernel families that took part.
        legality: rule set that the candidates kept.
        max_nodes: greatest number of primitives in a generated kernel.
        candidates: how many candidates were priced.
        complete: whether no cap and no time limit left a candidate unseen; if false,
            the bound was lowered so that it still holds.
        rules: how the candidates were chosen, in words, where not every legal kernel
            is one.
    """

    families: tuple[str, ...]
    legality: str
    max_nodes: int
    candidates: int
    complete: bool
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What another strategy would have cost, with the same kernels and prices."""

    objective_seconds: float
    kernels: int
    traffic_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One kernel of a partition, before code is generated for it."""

    region: Region
    family: Family
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A legal set of kernels in launch order, with a proof of how good it is."""

    choices: tuple[Choice, ...]
    objective_seconds: float
    bound_seconds: float
    candidate_space: CandidateSpace

    @property
    def gap(self) -> float:
        """Greatest relative distance from the optimum; 0 is proved optimal."""
        if self.objective_seconds <= 0:
            return 0.0
        missing = self.objective_seconds - self.bound_seconds
        return max(0.0, missing / self.objective_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Where a tensor lives in the arena, from its first to its last kernel."""

    tensor: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Offsets of all intermediate tensors in one arena.

    Attributes:
        aliases: tensor -> the tensor whose memory it shares (views in other shapes).
        arena_bytes: size of the arena.
        peak_bytes: most bytes alive at once, graph inputs, weights and outputs too.
    """

    buffers: tuple[Buffer, ...]
    aliases: Mapping[str, str]
    arena_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKernel:
    """One kernel of a plan, in launch order.

    Attributes:
        name: k0, k1, ... in launch order.
        fingerprint: identity of the kernel's own graph, whatever its place.
        inputs: tensors that it reads (its constants of one element are literals).
        executable: whether a back end of ours can run it today.
        resources: from the target's real compiler, when it was asked.
    """

    name: str
    family: Family
    region: Region
    inputs: tuple[str, ...]
    fingerprint: str
    schedule: Schedule
    sources: tuple[Source, ...]
    estimate: Estimate
    traffic_bytes: int
    evidence: Evidence
    executable: bool = True
    resources: Resources | None = None
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """How far measuring went, and what it proves about a partition.

    Attributes:
        measured_optimal: whether every kernel was measured, and no partition of the
            candidate space can be faster, whatever its unmeasured kernels would cost;
            each measured kernel counts with its best measured schedule.
        measured_gap: greatest relative distance of the sum of measured kernels from
            the best one; None while a kernel of the partition is not measured.
        confidence: of the intervals behind the measured times.
        rounds: how often the partition was solved with measured costs.
        trials: kernel runs.
    """

    measured_optimal: bool
    measured_gap: float | None
    confidence: float
    rounds: int
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole plan over canonical ids; `tuner.document` gives its JSON.

    Attributes:
        whole_seconds: prediction for the kernels in their order, each with what the
            ones before left in the cache; the objective prices each alone.
        whole: measurements of whole programs, by name.
    """

    graph: Graph
    prepare: Graph
    target: str
    options: Options
    kernels: tuple[PlannedKernel, ...]
    partition: Partition
    baselines: Mapping[str, Baseline]
    memory: MemoryPlan
    traffic_bytes: int
    evidence: Evidence
    whole_seconds: float = 0.0
    whole: Mapping[str, Measurement] = field(
        default_factory=lambda: MappingProxyType({})
    )
    refinement: Refinement | None = None
