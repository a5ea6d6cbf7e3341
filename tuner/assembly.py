"""From a partition to a plan: code, schedules, estimates, memory, totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cost_model.device import Device
from cost_model.estimate import Evidence
from cost_model.sequence import whole_seconds
from cost_model.work import Work
from tuner.errors import InternalError
from tuner.fusion.legality import Limits
from tuner.fusion.memory import plan_memory
from tuner.fusion.partition import Solution
from tuner.fusion.traffic import traffic
from tuner.fusion.view import homes
from tuner.ir.fingerprint import local_form
from tuner.ir.graph import Graph, Region, extract
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.split import is_scratch
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
from tuner.pricing import Priced, is_all, price, price_call

Compile = Callable[[Sequence[Source]], Sequence[Resources | None]]
"""Asks a target's real compiler for the resources of CUDA sources."""

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


def bound_to(source: Source, names: Mapping[str, str], kernel: str) -> Source:
    """The same source with its arguments named as the plan names them.

    Args:
        source: with arguments named as in the kernel's own graph.
        names: tensor of the plan's graph by the kernel's own name.
        kernel: which kernel of the plan it is: its scratch memory is no other's.

    Raises:
        InternalError: an argument is neither in `names` nor scratch memory.
    """
    arguments = tuple(
        replace(a, tensor=_plan_name(a.tensor, names, kernel)) for a in source.arguments
    )
    before = tuple(bound_to(each, names, kernel) for each in source.before)
    return replace(source, arguments=arguments, before=before)


def _plan_name(tensor: str, names: Mapping[str, str], kernel: str) -> str:
    if is_scratch(tensor):
        return f"{kernel}{tensor}"
    if tensor not in names:
        raise InternalError(kernel, f"no tensor of the plan is {tensor} of its text")
    return names[tensor]


_MadeKey = tuple[str, Schedule | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A distinct kernel under one schedule: price, texts, compiler's word."""

    priced: Priced
    sources: tuple[Source, ...]
    resources: Resources | None = None


class Assembler:
    """Makes planned kernels of one graph; equal kernels are rendered once."""

    def __init__(
        self,
        graph: Graph,
        device: Device,
        options: Options,
        *,
        compile_sources: Compile | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        self.options = options
        self._compile = compile_sources
        self._made: dict[_MadeKey, _Made] = {}
        self._forms: dict[tuple[Region, Family], KernelForm] = {}

    def form(self, choice: Choice) -> KernelForm:
        """The kernel's own graph."""
        key = (choice.region, choice.family)
        if key not in self._forms:
            self._forms[key] = kernel_form(self.graph, choice.region, choice.family)
        return self._forms[key]

    def kernels(
        self, choices: Sequence[Choice], tuned: Mapping[str, Tuned]
    ) -> tuple[PlannedKernel, ...]:
        """Kernels in launch order, each distinct one rendered and compiled once."""
        forms = [self.form(choice) for choice in choices]
        wanted = {}
        for form, choice in zip(forms, choices, strict=True):
            best = tuned.get(form.fingerprint)
            key = (form.fingerprint, best.schedule if best else None)
            wanted[key] = (form, choice.family)
        new = {key: found for key, found in wanted.items() if key not in self._made}
        for key, (form, family) in new.items():
            self._made[key] = self._make(form, family, key[1])
        self._compile_new(new)
        return tuple(
            self._kernel(i, choice, form, tuned.get(form.fingerprint))
            for i, (choice, form) in enumerate(zip(choices, forms, strict=True))
        )

    def whole_seconds(
        self, choices: Sequence[Choice], tuned: Mapping[str, Tuned]
    ) -> float:
        """Predicted time of kernels in launch order, with what is left in the cache."""
        home = homes(self.graph)
        works = []
        for index, choice in enumerate(choices):
            form = self.form(choice)
            best = tuned.get(form.fingerprint)
            made = self._made[form.fingerprint, best.schedule if best else None]
            works += [
                _renamed(work, form.names, home, f"k{index}")
                for work in made.priced.launches
            ]
        return whole_seconds(works, self.device, launch_mode=self.options.launch_mode)

    def _kernel(
        self, index: int, choice: Choice, form: KernelForm, tuned: Tuned | None
    ) -> PlannedKernel:
        made = self._made[form.fingerprint, tuned.schedule if tuned else None]
        moved = traffic(self.graph, choice.region)
        estimate = made.priced.estimate
        return PlannedKernel(
            name=f"k{index}",
            family=choice.family,
            region=choice.region,
            inputs=extract(self.graph, choice.region).inputs,
            fingerprint=form.fingerprint,
            schedule=made.priced.schedule,
            sources=tuple(
                bound_to(source, form.names, f"k{index}") for source in made.sources
            ),
            estimate=estimate,
            traffic_bytes=moved.total_bytes,
            evidence=Evidence.MEASURED if tuned else estimate.evidence,
            resources=made.resources,
            measurement=tuned.measurement if tuned else None,
        )

    def _make(
        self, form: KernelForm, family: Family, schedule: Schedule | None
    ) -> _Made:
        device, options = self.device, self.options
        if family in GENERATED:
            priced = price(form.graph, family, device, options, schedule=schedule)
        else:
            alone = is_all(form.graph, self.graph)
            priced = price_call(form.graph, device, options, alone=alone)
        if priced is None:
            raise InternalError(form.fingerprint, "a chosen kernel cannot be lowered")
        sources = kernel_sources(form, priced.schedule) if family in GENERATED else ()
        return _Made(priced=priced, sources=sources)

    def _compile_new(self, new: Mapping[_MadeKey, tuple[KernelForm, Family]]) -> None:
        """Put the compiler's registers and spills into new kernels' estimates."""
        if self._compile is None:
            return
        asked = [key for key in new if self._made[key].sources]
        found = self._compile([_cuda(self._made[key].sources) for key in asked])
        for key, resources in zip(asked, found, strict=True):
            if resources is None:
                continue
            form, family = new[key]
            priced = price(
                form.graph,
                family,
                self.device,
                self.options,
                schedule=self._made[key].priced.schedule,
                resources=resources,
            )
            assert priced is not None
            self._made[key] = replace(
                self._made[key], priced=priced, resources=resources
            )


def _renamed(
    work: Work, names: Mapping[str, str], home: Mapping[str, str], kernel: str
) -> Work:
    """The same work with operands named as the plan names their memory."""
    accesses = []
    for access in work.accesses:
        tensor = _plan_name(access.tensor, names, kernel)
        accesses.append(replace(access, tensor=home.get(tensor, tensor)))
    return replace(work, accesses=tuple(accesses))


def _cuda(sources: Sequence[Source]) -> Source:
    return next(source for source in sources if source.language == "cuda")


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
    kernels = assembler.kernels(choices, tuned)
    graph = assembler.graph
    return Plan(
        graph=graph,
        prepare=prepare,
        target=assembler.device.id,
        options=assembler.options,
        kernels=kernels,
        partition=solution.partition,
        baselines=solution.baselines,
        memory=plan_memory(
            graph, [kernel.region for kernel in kernels], [*map(_scratch, kernels)]
        ),
        traffic_bytes=sum(kernel.traffic_bytes for kernel in kernels),
        evidence=weakest(kernels),
        whole_seconds=assembler.whole_seconds(choices, tuned),
    )


def _scratch(kernel: PlannedKernel) -> Mapping[str, int]:
    """Bytes of what a kernel's launches hand to each other; alike in all languages."""
    return {
        name: kind.bytes
        for source in kernel.sources
        for name, kind in source.scratch.items()
    }


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
    if device.kind == "ideal":
        return Limits.none()
    if options.legality == "reference":
        return Limits.of_launches(device)
    return Limits.of(device)
