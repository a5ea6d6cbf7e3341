"""The price of a region: cut it out, lower it, count its work, ask the model.

Equal regions (the layers of a transformer) are counted once: prices are remembered
under a key that holds structure, attributes and types, but no names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Final, cast

import numpy as np

from cost_model.device import Device, LaunchMode
from cost_model.estimate import Estimate, Evidence, in_turn
from cost_model.roofline import (
    Moved,
    least_joint_seconds,
    least_launch_seconds,
    least_moved,
    least_moving_seconds,
    lower_bound,
    predict,
)
from cost_model.work import Pipe, Work
from tuner.errors import InternalError
from tuner.fusion.columns import Least
from tuner.fusion.linear import Numbers
from tuner.fusion.view import ALIAS
from tuner.ir.graph import Graph, Node, Region, extract
from tuner.ir.types import TensorType
from tuner.kernel.count import Known
from tuner.kernel.count import work as count_work
from tuner.kernel.errors import CannotLower
from tuner.kernel.least import (
    Axes,
    computing_operations,
    moving_operations,
    varying_axes,
)
from tuner.kernel.lower import lower
from tuner.kernel.nest import LoopNest
from tuner.kernel.schedule import default as default_schedule
from tuner.kernel.split import PARTS, is_split, launches, uncut
from tuner.kernel.split_space import split_default, split_fault
from tuner.library_work import library_work
from tuner.plan import GENERATED, Family, Options, Resources, Schedule

LIBRARY_SCHEDULE = Schedule.of()
"""A library call has no knobs of ours."""
PIPES: Final = tuple(Pipe)
NOTHING_MOVED: Final = Moved(private_bytes=0.0, cache_bytes=0.0, dram_bytes=0.0)
ALIKE: Final = 1.01
"""Prices that differ by no more are those of equally fast schedules."""
FLOORED: Final = frozenset({Family.POINTWISE, Family.REDUCTION})
"""Families whose kernels read all of what they read, but for nodes that narrow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A region's counted work and predicted time.

    Attributes:
        launches: work of the launches that the schedule asks for, in order.
        operations: of them all; where one launch was compared with two, of those that
            do fewer, pipe by pipe.
        floor_seconds: a time that none of the compared schedules can beat.
    """

    launches: tuple[Work, ...]
    estimate: Estimate
    schedule: Schedule
    operations: Mapping[Pipe, float]
    floor_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What no price of `Pricer` is below, from what kernels move and compute at least.

    Attributes:
        device: what the kernels run on.
        launch: seconds of a kernel that does nothing.
        library: seconds of a library call that does nothing.
        mode: how kernels are launched.
        pricer: knows what nodes compute; without it that counts as nothing.
    """

    device: Device
    launch: float
    library: float = 0.0
    mode: LaunchMode = "stream"
    pricer: Pricer | None = None

    def launch_seconds(self, family: Family) -> float | None:
        """What any kernel of a family costs; None if it has to be priced."""
        return self.launch if family in FLOORED else None

    def any_launch_seconds(self) -> float:
        """What a kernel costs at least, whoever runs it."""
        return min(self.launch, self.library)

    def moving_seconds(self, nbytes: int) -> float:
        """What it adds to read or write a tensor of so many bytes."""
        return least_moving_seconds(nbytes, self.device)

    def storing_seconds(self, nbytes: int) -> float:
        """What it adds to write one: to main memory, where caches do not keep it."""
        return least_moving_seconds(nbytes, self.device, is_write=True)

    def joint_seconds(self, work: Least, *, kernels: int) -> float:
        """What generated kernels take at least that do some work together.

        Args:
            work: what has to be moved and computed.
            kernels: no fewer can do it.
        """
        device = self.device
        moved = [least_moved(t.bytes, device) for t in work.read]
        moved += [least_moved(t.bytes, device, is_write=True) for t in work.written]
        operations: dict[Pipe, float] = {}
        for found in self._operations(work):
            for pipe, count in found.items():
                operations[pipe] = operations.get(pipe, 0.0) + count
        return least_joint_seconds(
            device,
            Moved(
                private_bytes=math.fsum(one.private_bytes for one in moved),
                cache_bytes=math.fsum(one.cache_bytes for one in moved),
                dram_bytes=math.fsum(one.dram_bytes for one in moved),
            ),
            operations,
            kernels=kernels,
            launch_mode=self.mode,
        )

    def reading(self, tensor: TensorType) -> Numbers:
        """What a kernel has to do to read all of a tensor; such work adds up."""
        moved = least_moved(tensor.bytes, self.device)
        return self._work(moved, moving_operations(tensor, self.device))

    def writing(self, tensor: TensorType) -> Numbers:
        """What a kernel has to do to write a tensor."""
        moved = least_moved(tensor.bytes, self.device, is_write=True)
        return self._work(moved, moving_operations(tensor, self.device))

    def computing(self, region: Region, family: Family) -> Numbers:
        """What a kernel has to do to compute all of a node, alone in a region here."""
        found = self.pricer.least_operations(region, family) if self.pricer else {}
        return self._work(NOTHING_MOVED, found)

    def _work(self, moved: Moved, operations: Mapping[Pipe, float]) -> Numbers:
        """Bytes by level and operations by pipe, side by side."""
        lowered = self.pricer.lowered_pipes if self.pricer else frozenset(PIPES)
        counts = [0.0 if p in lowered else operations.get(p, 0.0) for p in PIPES]
        nbytes = (moved.private_bytes, moved.cache_bytes, moved.dram_bytes)
        return np.asarray([*nbytes, *counts], dtype=np.float64)

    def kernel_seconds(self, work: Numbers) -> float:
        """What a generated kernel costs at least that has so much to do."""
        private, cache, dram, *counts = work.tolist()
        return least_joint_seconds(
            self.device,
            Moved(private_bytes=private, cache_bytes=cache, dram_bytes=dram),
            {pipe: n for pipe, n in zip(PIPES, counts, strict=True) if n},
            kernels=1,
            launch_mode=self.mode,
        )

    def _operations(self, work: Least) -> Iterator[Mapping[Pipe, float]]:
        if self.pricer is None:
            return
        lowered = self.pricer.lowered_pipes
        found = chain(
            (moving_operations(t, self.device) for t in (*work.read, *work.written)),
            (self.pricer.least_operations(*node) for node in work.nodes),
        )
        for each in found:
            yield {pipe: n for pipe, n in each.items() if pipe not in lowered}


def floor_of(device: Device, options: Options, pricer: Pricer | None = None) -> Floor:
    """The floor of the prices on a device."""
    mode = options.launch_mode
    return Floor(
        device=device,
        launch=least_launch_seconds(device, launch_mode=mode),
        library=least_launch_seconds(device, launch_mode=mode, by_library=True),
        mode=mode,
        pricer=pricer,
    )


class Pricer:
    """Prices regions of one graph on one device; equal regions are priced once."""

    def __init__(self, graph: Graph, device: Device, options: Options) -> None:
        self._graph = graph
        self._device = device
        self._options = options
        self._node_keys: dict[str, int] = {}
        self._interned: dict[object, int] = {}
        self._memo: dict[object, Priced | None] = {}
        self._known = Known()

    def seconds(self, region: Region, family: Family) -> float:
        """Predicted seconds; infinity when no kernel of ours can run the region."""
        found = self.priced(region, family)
        return math.inf if found is None else found.estimate.seconds

    def floor_seconds(self, region: Region, family: Family) -> float:
        """A time that no schedule of the region can beat."""
        found = self.priced(region, family)
        return math.inf if found is None else found.floor_seconds

    def priced(self, region: Region, family: Family) -> Priced | None:
        """Work and estimate with the default schedule; None if it cannot be lowered."""
        key = (family, self.structure(region))
        if key not in self._memo:
            small = extract(self._graph, region)
            if family in GENERATED:
                found = price(
                    small, family, self._device, self._options, known=self._known
                )
            else:
                alone = is_all(small, self._graph)
                found = price_call(small, self._device, self._options, alone=alone)
            self._memo[key] = found
        return self._memo[key]

    def least_operations(self, region: Region, family: Family) -> Mapping[Pipe, float]:
        """Operations of one node that no kernel with all of it does without."""
        found = self.priced(region, family)
        if found is None:
            return {}
        (node,) = (n for n in map(self._named, region.nodes) if n.op != ALIAS)
        return computing_operations(self._graph, node, found.operations, self._axes)

    @cached_property
    def _axes(self) -> Mapping[str, Axes]:
        return varying_axes(self._graph)

    @cached_property
    def lowered_pipes(self) -> frozenset[Pipe]:
        """Pipes on which rules state fewer operations than expressions show.

        They are taken from what a whole kernel does, down to nothing: what a node does
        alone says nothing of what it adds to a kernel.
        """
        found = (each for node in self._graph.nodes for each in _stated_of(node))
        return frozenset(pipe for pipe, more in found if more < 0)

    def _named(self, name: str) -> Node:
        return self._graph.by_name[name]

    def is_single(self, region: Region) -> bool:
        """Whether a region is one node, with the reshapes that it reads through."""
        ops = [self._graph.by_name[name].op for name in region.nodes]
        return len(ops) - ops.count(ALIAS) <= 1

    def structure(self, region: Region) -> object:
        """A key that two regions share exactly when their kernels are the same."""
        numbers: dict[str, int] = {}
        parts: list[object] = []
        for name in region.nodes:
            node = self._graph.by_name[name]
            reads = tuple(self._reference(t, numbers) for t in node.inputs)
            parts.append((self._node_key(node), reads))
            for out in node.outputs:
                numbers[out] = len(numbers)
        written = tuple(numbers[t] for t in region.outputs)
        return (tuple(parts), written)

    def _reference(self, tensor: str, numbers: dict[str, int]) -> object:
        """A tensor as this region sees it: by first use, or by its one value."""
        constant = self._graph.constants.get(tensor)
        if constant is not None and constant.size == 1:
            return (constant.tobytes(), constant.shape)
        if tensor not in numbers:
            numbers[tensor] = len(numbers)
        return numbers[tensor]

    def _node_key(self, node: Node) -> int:
        known = self._node_keys.get(node.name)
        if known is None:
            kinds = [self._graph.types[t] for t in (*node.inputs, *node.outputs)]
            key = (
                node.op,
                tuple(sorted(node.attributes.items())),
                tuple((k.dtype, k.shape) for k in kinds),
            )
            known = self._interned.setdefault(key, len(self._interned))
            self._node_keys[node.name] = known
        return known


def price(
    small: Graph,
    family: Family,
    device: Device,
    options: Options,
    *,
    schedule: Schedule | None = None,
    resources: Resources | None = None,
    known: Known | None = None,
) -> Priced | None:
    """Count and predict one kernel's own graph.

    Args:
        small: the kernel's graph, from `extract`.
        family: which kind of kernel runs it.
        device: limits and rates.
        options: launch mode.
        schedule: by default the one that needs no tuning, of one launch or two.
        resources: what a real compiler said of the kernel with this schedule; makes
            the evidence `compiled`.
        known: what was counted before, on the same device.

    Returns:
        The price, or None when no generated kernel can run the graph.

    Raises:
        InternalError: resources of no known schedule.
    """
    if resources is not None and schedule is None:
        raise InternalError("price", "resources are those of a kernel with a schedule")
    if family not in GENERATED:
        return price_call(small, device, options)
    stated = _stated(small)
    try:
        nest = lower(small)
    except CannotLower:
        return None
    if schedule is not None:
        return predict_nest(
            nest,
            schedule,
            device,
            options,
            resources=resources,
            extra=stated,
            known=known,
        )
    plain = default_schedule(nest, device)
    cut = split_default(nest, device) if may_split(device, options) else ()
    whole, *split = (
        predict_nest(nest, each, device, options, extra=stated, known=known)
        for each in (uncut(plain) if cut else plain, *cut)
    )
    best = _preferred(whole, split)
    return replace(
        best,
        operations={
            pipe: min(count, best.operations.get(pipe, 0.0))
            for pipe, count in whole.operations.items()
        },
        floor_seconds=min(whole.floor_seconds, best.floor_seconds),
    )


def is_all(small: Graph, graph: Graph) -> bool:
    """Whether a kernel's own graph is all that a graph does."""
    counts = (len(small.nodes), len(small.outputs))
    return counts == (len(graph.nodes), len(graph.outputs))


def price_call(
    small: Graph, device: Device, options: Options, *, alone: bool = False
) -> Priced:
    """Count and predict a library call.

    Args:
        small: what it computes, from `extract`.
        device: limits and rates.
        options: launch mode.
        alone: whether the call is all that its plan does.
    """
    work = library_work(small, device, alone=alone)
    work = replace(work, operations=_with(work.operations, _stated(small)))
    return _predict([work], LIBRARY_SCHEDULE, device, options)


def _preferred(whole: Priced, split: Sequence[Priced]) -> Priced:
    """The fastest; of about equally fast numbers of parts the greatest.

    Each part is added up by itself, so sums of more parts err less. None that takes
    longer than one launch is among them.
    """
    best = min([whole, *split], key=lambda each: each.estimate.seconds)
    near = min(ALIKE * best.estimate.seconds, whole.estimate.seconds)
    alike = [each for each in split if each.estimate.seconds <= near]
    if not is_split(best.schedule):
        return best
    return max(alike, key=lambda each: each.schedule[PARTS])


def may_split(device: Device, options: Options) -> bool:
    """Whether a reduction may be two launches.

    Where traffic is all that counts, partial results only add to it. Under a cap of
    memory a partition is chosen by the tensors between its kernels, and scratch memory
    of a kernel is none of them.
    """
    return device.kind != "ideal" and options.memory_cap_bytes is None


def launches_in_words(
    small: Graph, schedule: Schedule, device: Device, options: Options
) -> str:
    """How often a reduction is launched, and why, in one line.

    Args:
        small: the kernel's graph.
        schedule: that it has.
        device: limits and rates.
        options: launch mode, and whether memory is capped.
    """
    nest = lower(small)
    if is_split(schedule):
        others: Sequence[Schedule] = [default_schedule(nest, device)]
        count = schedule[PARTS]
        word = f"two, rows in {count} parts: one"
    elif not may_split(device, options):
        return "one: scratch memory would be traffic, or go past the cap of memory"
    else:
        fault, others = split_fault(nest, device), split_default(nest, device)
        if fault or not others:
            return f"one: {fault or 'no number of parts is legal'}"
        word = "one: two"
    ours, *theirs = (
        predict_nest(nest, each, device, options).estimate.seconds
        for each in (schedule, *others)
    )
    return f"{word} would cost {1e6 * (min(theirs) - ours):+.2f} µs"


def predict_nest(
    nest: LoopNest,
    schedule: Schedule,
    device: Device,
    options: Options,
    *,
    resources: Resources | None = None,
    extra: Mapping[Pipe, float] = MappingProxyType({}),
    known: Known | None = None,
) -> Priced:
    """Count and predict a lowered kernel under one schedule.

    Args:
        nest: the kernel.
        schedule: how it walks; a split one may be none but of this kernel's space.
        device: limits and rates.
        options: launch mode.
        resources: what a real compiler said; makes the evidence `compiled`.
        extra: operations that rules state beyond those that the code shows.
        known: what was counted before, on the same device.
    """
    works = [
        count_work(one, its, device, known) for one, its in launches(nest, schedule)
    ]
    if extra:
        first = works[0]
        works[0] = replace(first, operations=_with(first.operations, extra))
    if resources is None:
        return _predict(works, schedule, device, options)
    spilled = resources.spill_store_bytes + resources.spill_load_bytes
    compiled = [
        replace(
            work,
            registers_per_thread=resources.registers,
            spill_bytes_per_thread=spilled,
        )
        for work in works
    ]
    return _predict(compiled, schedule, device, options, Evidence.COMPILED)


def _stated(small: Graph) -> Mapping[Pipe, float]:
    """Operations that rules state beyond those that expressions show; may be fewer."""
    found: dict[Pipe, float] = {}
    for node in small.nodes:
        elements = small.types[node.outputs[0]].elements
        for pipe, more in _stated_of(node):
            found[pipe] = found.get(pipe, 0.0) + more * elements
    return found


def _stated_of(node: Node) -> Iterator[tuple[Pipe, float]]:
    """The same for each element of one node."""
    cost = cast("tuple[str | float, ...]", node.attributes.get("cost", ()))
    for pipe, more in zip(cost[::2], cost[1::2], strict=True):
        yield Pipe(str(pipe)), float(more)


def _with(
    counted: Mapping[Pipe, float], extra: Mapping[Pipe, float]
) -> Mapping[Pipe, float]:
    pipes = dict.fromkeys((*counted, *extra))
    return {p: max(0.0, counted.get(p, 0.0) + extra.get(p, 0.0)) for p in pipes}


def _predict(
    works: Sequence[Work],
    schedule: Schedule,
    device: Device,
    options: Options,
    evidence: Evidence = Evidence.ANALYTIC,
) -> Priced:
    mode = options.launch_mode
    told = [predict(w, device, launch_mode=mode, evidence=evidence) for w in works]
    return Priced(
        launches=tuple(works),
        estimate=in_turn(told),
        schedule=schedule,
        operations=MappingProxyType(_together(works)),
        floor_seconds=sum(lower_bound(w, device, launch_mode=mode) for w in works),
    )


def _together(works: Sequence[Work]) -> dict[Pipe, float]:
    """Operations of launches, added up."""
    found: dict[Pipe, float] = {}
    for work in works:
        for pipe, count in work.operations.items():
            found[pipe] = found.get(pipe, 0.0) + count
    return found
