"""The price of a region: cut it out, lower it, count its work, ask the model.

Equal regions (the layers of a transformer) are counted once: prices are remembered
under a key that holds structure, attributes and types, but no names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from cost_model.device import Device
from cost_model.estimate import Estimate, Evidence
from cost_model.roofline import lower_bound, predict
from cost_model.work import Access, Pipe, Work
from tuner.fusion.view import homes
from tuner.ir.expr import operations, parse
from tuner.ir.graph import Graph, Node, Region, extract, region_inputs
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import DType
from tuner.kernel.count import work as count_work
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.nest import LoopNest
from tuner.kernel.schedule import default as default_schedule
from tuner.plan import GENERATED, Family, Options, Resources, Schedule

LIBRARY_SCHEDULE = Schedule.of()
"""A library call has no knobs of ours."""

_FUSED_BEHIND_CONV: Final = 2
"""ONNX Runtime's FusedConv takes a sum and an activation (`conv_add_act_fusion.cc`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A region's counted work and predicted time."""

    work: Work
    estimate: Estimate
    schedule: Schedule
    floor_seconds: float


class Pricer:
    """Prices regions of one graph on one device; equal regions are priced once."""

    def __init__(self, graph: Graph, device: Device, options: Options) -> None:
        self._graph = graph
        self._device = device
        self._options = options
        self._node_keys: dict[str, int] = {}
        self._interned: dict[object, int] = {}
        self._memo: dict[object, Priced | None] = {}

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
            self._memo[key] = price(small, family, self._device, self._options)
        return self._memo[key]

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
) -> Priced | None:
    """Count and predict one kernel's own graph.

    Args:
        small: the kernel's graph, from `extract`.
        family: which kind of kernel runs it.
        device: limits and rates.
        options: launch mode.
        schedule: by default the one that needs no tuning.
        resources: what a real compiler said; makes the evidence `compiled`.

    Returns:
        The price, or None when no generated kernel can run the graph.
    """
    if family not in GENERATED:
        return _predict(library_work(small, device), LIBRARY_SCHEDULE, device, options)
    try:
        nest = lower(small)
    except CannotLower:
        return None
    schedule = schedule or default_schedule(nest, device)
    return predict_nest(nest, schedule, device, options, resources=resources)


def predict_nest(
    nest: LoopNest,
    schedule: Schedule,
    device: Device,
    options: Options,
    *,
    resources: Resources | None = None,
) -> Priced:
    """Count and predict a lowered kernel under one schedule."""
    work = count_work(nest, schedule, device)
    if resources is None:
        return _predict(work, schedule, device, options)
    compiled = replace(
        work,
        registers_per_thread=resources.registers,
        spill_bytes_per_thread=resources.spill_store_bytes + resources.spill_load_bytes,
    )
    return _predict(compiled, schedule, device, options, Evidence.COMPILED)


def _predict(
    work: Work,
    schedule: Schedule,
    device: Device,
    options: Options,
    evidence: Evidence = Evidence.ANALYTIC,
) -> Priced:
    mode = options.launch_mode
    return Priced(
        work=work,
        estimate=predict(work, device, launch_mode=mode, evidence=evidence),
        schedule=schedule,
        floor_seconds=lower_bound(work, device, launch_mode=mode),
    )


def library_work(small: Graph, device: Device) -> Work:
    """Work of a library call that runs a small graph, operator by operator.

    Views are free. What runs inside another operator costs no call and no traffic of
    its own: on a GPU every epilogue (legality lets only those through that the library
    fuses), on a CPU what ONNX Runtime fuses: up to two element-wise operators behind a
    convolution, and a bias behind a matrix product. Every other tensor between two
    operators passes through memory.
    """
    operations_by_pipe: dict[Pipe, float] = {}
    nodes = [node for node in small.nodes if node.op != "reshape"]
    home = homes(small)
    readers = _readers(nodes, home)
    inside = _fused(nodes, readers, device)
    internal = 0
    delivered = {home[name] for name in small.outputs}
    for node in nodes:
        for pipe, count in _node_operations(small, node).items():
            operations_by_pipe[pipe] = operations_by_pipe.get(pipe, 0.0) + count
        for out in node.outputs:
            absorbed = inside.issuperset(readers.get(out, ("",)))
            if out not in delivered and not absorbed:
                internal += 2 * small.types[out].bytes
    calls = len(nodes) - len(inside)
    accesses = [_whole(small, name) for name in _read(small)]
    accesses += [_whole(small, name, is_write=True) for name in small.outputs]
    elements = sum(small.types[name].elements for name in small.outputs)
    threads = device.subgroup_threads * 8
    return Work(
        accesses=tuple(accesses),
        operations=operations_by_pipe,
        blocks=max(1, math.ceil(elements / (threads * 8))),
        block_threads=threads,
        registers_per_thread=32,
        bytes_in_flight_per_thread=32,
        library_calls=max(1, calls),
        internal_bytes=internal,
    )


def _read(small: Graph) -> tuple[str, ...]:
    names = region_inputs(small, [node.name for node in small.nodes])
    return tuple(name for name in names if name not in small.constants)


def _whole(small: Graph, name: str, *, is_write: bool = False) -> Access:
    count = _needed_bytes(small, name)
    return Access(
        unique_bytes=count,
        sector_bytes=count,
        requested_bytes=count,
        is_write=is_write,
        tensor=name,
    )


def _needed_bytes(small: Graph, name: str) -> int:
    """All of a tensor, but of a table only as much as its gathers deliver."""
    kind = small.types[name]
    readers = small.consumers.get(name, ())
    if not readers or any(
        reader.op != "gather" or reader.inputs[1] == name for reader in readers
    ):
        return kind.bytes
    taken = sum(small.types[reader.outputs[0]].bytes for reader in readers)
    return min(kind.bytes, taken)


def _readers(
    nodes: Sequence[Node], home: Mapping[str, str]
) -> Mapping[str, tuple[str, ...]]:
    """The nodes that read each tensor, under whatever shape."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for name in dict.fromkeys(home[name] for name in node.inputs):
            found.setdefault(name, []).append(node.name)
    return {name: tuple(by) for name, by in found.items()}


def _fused(
    nodes: Sequence[Node],
    readers: Mapping[str, tuple[str, ...]],
    device: Device,
) -> frozenset[str]:
    """Element-wise nodes that the library computes inside the node before them."""
    if device.kind == "gpu":
        return _fused_on_gpu(nodes)
    makers = {out: node for node in nodes for out in node.outputs}
    chains: dict[str, tuple[Node, ...]] = {}
    for node in nodes:
        if OPS[node.op].pattern is not Pattern.ELEMENTWISE:
            chains[node.name] = (node,)
            continue
        for name in node.inputs:
            before = makers.get(name)  # ONNX Runtime does not look through a reshape
            chain = chains.get(before.name, ()) if before is not None else ()
            if chain and len(readers[name]) == 1 and _joins(chain, node):
                chains[node.name] = (*chain, node)
                break
    return frozenset(name for name, chain in chains.items() if len(chain) > 1)


def _fused_on_gpu(nodes: Sequence[Node]) -> frozenset[str]:
    """Legality lets only such epilogues through as the library runs in one call."""
    if not any(OPS[node.op].pattern is Pattern.CONTRACTION for node in nodes):
        return frozenset()
    return frozenset(
        node.name for node in nodes if OPS[node.op].pattern is Pattern.ELEMENTWISE
    )


def _joins(chain: tuple[Node, ...], node: Node) -> bool:
    """Whether ONNX Runtime runs a node inside the operators of a chain."""
    if OPS[chain[0].op].pattern is not Pattern.CONTRACTION:
        return False
    if chain[0].op == "conv":
        return len(chain) <= _FUSED_BEHIND_CONV
    return len(chain) == 1 and node.op == "add"


def _node_operations(small: Graph, node: Node) -> Mapping[Pipe, float]:
    out = small.types[node.outputs[0]]
    pattern = OPS[node.op].pattern
    if pattern is Pattern.CONTRACTION:
        pipe = _contraction_pipe(small.types[node.inputs[0]].dtype)
        return {pipe: float(out.elements * _inner_extent(small, node))}
    if pattern is Pattern.WINDOW:
        kernel = cast("tuple[int, ...]", node.attributes["kernel"])
        return {Pipe.FMA32: float(out.elements * math.prod(kernel))}
    if pattern is Pattern.REDUCTION:
        return {Pipe.FMA32: float(small.types[node.inputs[0]].elements)}
    if pattern is Pattern.ELEMENTWISE:
        cost = operations(parse(OPS[node.op].expression))
        return {pipe: count * out.elements for pipe, count in cost.items()}
    return {Pipe.INTEGER: float(out.elements)}


def _contraction_pipe(dtype: DType) -> Pipe:
    if dtype in (DType.F16, DType.BF16):
        return Pipe.TENSOR
    return Pipe.FMA64 if dtype is DType.F64 else Pipe.FMA32


def _inner_extent(small: Graph, node: Node) -> int:
    """Multiply-adds per output element of a contraction."""
    if node.op == "matmul":
        return small.types[node.inputs[0]].static_shape[-1]
    return math.prod(small.types[node.inputs[1]].static_shape[1:])
