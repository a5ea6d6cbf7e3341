"""From a partition to a plan: code, schedules, estimates, memory, totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cost_model.device import Device
from cost_model.estimate import Evidence
from tuner.errors import InternalError
from tuner.fusion.legality import Limits
from tuner.fusion.memory import plan_memory
from tuner.fusion.partition import Solution
from tuner.fusion.traffic import traffic
from tuner.ir.fingerprint import local_form
from tuner.ir.graph import Graph, Region, extract
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.plan import (
    GENERATED,
    Choice,
    Family,
    Measurement,
    Options,
    Plan,
    PlannedKernel,
    Resources,
    Schedule,
    Source,
)
from tuner.pricing import Priced, price

Compile = Callable[[Source], Resources | None]
"""Asks a target's real compiler for the resources of a CUDA source."""

_RANK: Final = (Evidence.ANALYTIC, Evidence.COMPILED, Evidence.MEASURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The best known schedule of a kernel, and what it measured."""

    schedule: Schedule
    measurement: Measurement


@dataclass(frozen=True, kw_only=True)
class KernelForm:
    """A kernel's own graph in local names: equal kernels have equal forms.

    Attributes:
        graph: the kernel's graph; names are local.
        fingerprint: identity of the kernel.
        names: local tensor -> tensor of the plan's graph.
    """

    graph: Graph
    fingerprint: str
    names: Mapping[str, str]


def kernel_form(graph: Graph, region: Region, family: Family) -> KernelForm:
    """Cut a kernel out and give it local names and an identity."""
    small = extract(graph, region)
    if family not in GENERATED:
        small = _with_weights(graph, small)
    local = local_form(small)
    return KernelForm(
        graph=local.graph,
        fingerprint=f"{family}:{local.fingerprint}",
        names=local.names,
    )


def _with_weights(graph: Graph, small: Graph) -> Graph:
    """Tell weights from values: a library packs what it knows at load time."""
    fixed = {*graph.weights, *graph.constants}
    return replace(
        small,
        inputs=tuple(name for name in small.inputs if name not in fixed),
        weights=tuple(name for name in small.inputs if name in fixed),
    )


def kernel_sources(form: KernelForm, schedule: Schedule) -> tuple[Source, ...]:
    """The kernel in every language, with arguments named as in its own graph."""
    nest = lower(form.graph)
    return tuple(render(nest, schedule, dialect) for dialect in (OPENCL, CUDA))


def bound_to(source: Source, names: Mapping[str, str]) -> Source:
    """The same source with its arguments named as the plan's graph names them."""
    arguments = tuple(replace(a, tensor=names[a.tensor]) for a in source.arguments)
    return replace(source, arguments=arguments)


class Assembler:
    """Makes planned kernels of one graph; equal kernels are rendered once."""

    def __init__(
        self,
        graph: Graph,
        device: Device,
        options: Options,
        *,
        compile_source: Compile | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        self.options = options
        self._compile = compile_source
        self._made: dict[
            object, tuple[Priced, tuple[Source, ...], Resources | None]
        ] = {}
        self._forms: dict[tuple[Region, Family], KernelForm] = {}

    def form(self, choice: Choice) -> KernelForm:
        """The kernel's own graph."""
        key = (choice.region, choice.family)
        if key not in self._forms:
            self._forms[key] = kernel_form(self.graph, choice.region, choice.family)
        return self._forms[key]

    def kernel(self, index: int, choice: Choice, tuned: Tuned | None) -> PlannedKernel:
        """One kernel of the plan."""
        form = self.form(choice)
        schedule = tuned.schedule if tuned else None
        priced, sources, resources = self._make(form, choice.family, schedule)
        moved = traffic(self.graph, choice.region)
        estimate = priced.estimate
        return PlannedKernel(
            name=f"k{index}",
            family=choice.family,
            region=choice.region,
            inputs=extract(self.graph, choice.region).inputs,
            fingerprint=form.fingerprint,
            schedule=priced.schedule,
            sources=tuple(bound_to(source, form.names) for source in sources),
            estimate=estimate,
            traffic_bytes=sum(moved.reads.values()) + sum(moved.writes.values()),
            evidence=Evidence.MEASURED if tuned else estimate.evidence,
            resources=resources,
            measurement=tuned.measurement if tuned else None,
        )

    def _make(
        self, form: KernelForm, family: Family, schedule: Schedule | None
    ) -> tuple[Priced, tuple[Source, ...], Resources | None]:
        key = (form.fingerprint, schedule)
        if key not in self._made:
            self._made[key] = self._make_new(form, family, schedule)
        return self._made[key]

    def _make_new(
        self, form: KernelForm, family: Family, schedule: Schedule | None
    ) -> tuple[Priced, tuple[Source, ...], Resources | None]:
        device, options = self.device, self.options
        priced = price(form.graph, family, device, options, schedule=schedule)
        if priced is None:
            raise InternalError(form.fingerprint, "a chosen kernel cannot be lowered")
        if family not in GENERATED:
            return priced, (), None
        sources = kernel_sources(form, priced.schedule)
        resources = self._resources(sources)
        if resources is not None:
            again = price(
                form.graph,
                family,
                device,
                options,
                schedule=priced.schedule,
                resources=resources,
            )
            priced = again or priced
        return priced, sources, resources

    def _resources(self, sources: Sequence[Source]) -> Resources | None:
        if self._compile is None:
            return None
        cuda = next(source for source in sources if source.language == "cuda")
        return self._compile(cuda)


def assemble(
    assembler: Assembler, prepare: Graph, solution: Solution, tuned: Mapping[str, Tuned]
) -> Plan:
    """Join all parts of a plan.

    Args:
        assembler: makes the kernels.
        prepare: what runs once at load.
        solution: which kernels.
        tuned: best known schedule by kernel fingerprint.
    """
    choices = solution.partition.choices
    kernels = tuple(
        assembler.kernel(i, choice, tuned.get(assembler.form(choice).fingerprint))
        for i, choice in enumerate(choices)
    )
    graph = assembler.graph
    return Plan(
        graph=graph,
        prepare=prepare,
        target=assembler.device.id,
        options=assembler.options,
        kernels=kernels,
        partition=solution.partition,
        baselines=solution.baselines,
        memory=plan_memory(graph, [kernel.region for kernel in kernels]),
        traffic_bytes=sum(kernel.traffic_bytes for kernel in kernels),
        evidence=weakest(kernels),
    )


def weakest(kernels: Sequence[PlannedKernel]) -> Evidence:
    """Evidence of a whole plan: that of its weakest kernel.

    No compiler of ours sees a library call, so beside compiled kernels an analytic
    one does not count.
    """
    found = {kernel.evidence for kernel in kernels if kernel.family in GENERATED}
    if Evidence.COMPILED not in found:
        found |= {kernel.evidence for kernel in kernels}
    return next((e for e in _RANK if e in found), Evidence.ANALYTIC)


def limits_for(device: Device, options: Options) -> Limits:
    """Hard limits of a device: legality, not cost."""
    if device.kind == "ideal" or options.legality == "reference":
        return Limits.none()
    return Limits.of(device)
