"""What a device can do: rates, capacities, launch law. The unit is in every name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost_model.work import Pipe

Kind = Literal["gpu", "cpu", "ideal"]
LaunchMode = Literal["stream", "graph"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Limits of one device.

    A rate comes twice where a kernel reaches less than the data sheet says: the plain
    name is what a good kernel reaches, `..._peak_...` what nothing can exceed.
    Predictions use the first, bounds the second.

    The two cache levels are called as on a GPU. `l1` is private to a multiprocessor:
    the L1 cache of a GPU, the L2 cache of a CPU core. `l2` is the last level that all
    multiprocessors share. A CPU core has one more before them, the `nearest`.

    Attributes:
        id: key in the catalogue, such as "h100-sxm".
        name: as people say it.
        kind: gpu, cpu, or ideal (which counts bytes and nothing else).
        architecture: what the compiler calls it: "sm_90", "avx512".
        multiprocessors: streaming multiprocessors, or cores.
        clock_hertz: highest clock under load.
        dram_bytes_per_second, dram_peak_bytes_per_second: main memory, all together.
        dram_latency_seconds: one dependent read that misses every cache.
        dram_burst_bytes: least that main memory moves for one scattered request.
        dram_bytes: capacity of main memory.
        l2_bytes_per_second, l2_peak_bytes_per_second: last-level cache, all together.
        l2_latency_seconds: one dependent read that hits the last-level cache.
        l2_bytes: capacity of the last-level cache.
        l1_bytes_per_second, l1_peak_bytes_per_second: private caches, all together.
        l1_bytes: capacity of one private cache.
        nearest_bytes: capacity of a cache between the arithmetic and l1, whose hits
            cost the load instruction and nothing else; 0 where there is none.
        keeps_l1: 1 if private caches keep data from one kernel to the next, else 0.
        caches_writes: 1 if written tensors may stay in the caches, else 0.
        multiprocessor_bytes_per_second: most that one multiprocessor draws from
            beyond its private cache.
        prefetched_bytes_per_multiprocessor: bytes that hardware keeps in flight by
            itself, however few threads ask.
        sector_bytes: unit of traffic between caches.
        scattered_share: share of the bandwidth beyond the private caches that requests
            for single sectors here and there reach; gathers on a CPU wait for them.
        subgroup_threads: threads that run in lock step (a warp, a vector).
        saturation_threads_per_multiprocessor: resident threads that hide the latency
            of dependent arithmetic.
        launch_seconds, graph_launch_seconds: of one kernel of ours, in a stream and in
            a recorded graph.
        launch_floor_seconds: no kernel of ours ever starts and ends in less.
        library_launch_seconds: fixed part of one library call.
        library_operator_seconds: per operator inside a library call.
        library_wake_seconds: what a call among kernels of ours pays beside when the
            library spreads one of its operators over threads: both pools of threads
            take the processors by turns, awake or not.
        library_serial_bytes: operators that touch no more run on one thread.
        library_floor_seconds: no library call ever takes less.
        library_efficiency: share of the peak arithmetic that the library reaches.
        library_memory_efficiency: share of the bandwidth of copies in the caches that
            the library's operators reach.
        block_launch_seconds: start of one block on its multiprocessor.
        barrier_seconds: one block-wide barrier, exposed.
        shuffle_seconds: one sub-group exchange, exposed.
        overlap: share of the smaller of memory and compute time that hides behind
            the other.
        pipe_overlap: share of the smaller pipes that hides behind the busiest: 1
            where pipes run side by side, 0 where they share the same ports.
        max_threads_per_multiprocessor, max_blocks_per_multiprocessor: resident.
        registers_per_multiprocessor: 32-bit registers.
        register_allocation_unit: registers of a sub-group are rounded up to it.
        max_registers_per_thread: what exceeds it is spilled.
        shared_bytes_per_multiprocessor, max_shared_bytes_per_block: on-chip memory.
        reserved_shared_bytes_per_block: taken by the system from each block.
        max_block_threads: threads in a block.
        max_argument_bytes: all kernel arguments together.
        operations_per_second, peak_operations_per_second: by pipe, all together.
        sources: field -> where its number is from.
    """

    id: str
    name: str
    kind: Kind
    architecture: str
    multiprocessors: int
    clock_hertz: float
    dram_bytes_per_second: float
    dram_peak_bytes_per_second: float
    dram_latency_seconds: float
    dram_burst_bytes: int
    dram_bytes: int
    l2_bytes_per_second: float
    l2_peak_bytes_per_second: float
    l2_latency_seconds: float
    l2_bytes: int
    l1_bytes_per_second: float
    l1_peak_bytes_per_second: float
    l1_bytes: int
    nearest_bytes: int
    keeps_l1: int
    caches_writes: int
    multiprocessor_bytes_per_second: float
    prefetched_bytes_per_multiprocessor: int
    sector_bytes: int
    scattered_share: float
    subgroup_threads: int
    saturation_threads_per_multiprocessor: int
    launch_seconds: float
    graph_launch_seconds: float
    launch_floor_seconds: float
    library_launch_seconds: float
    library_operator_seconds: float
    library_wake_seconds: float
    library_serial_bytes: int
    library_floor_seconds: float
    library_efficiency: float
    library_memory_efficiency: float
    block_launch_seconds: float
    barrier_seconds: float
    shuffle_seconds: float
    overlap: float
    pipe_overlap: float
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    registers_per_multiprocessor: int
    register_allocation_unit: int
    max_registers_per_thread: int
    shared_bytes_per_multiprocessor: int
    max_shared_bytes_per_block: int
    reserved_shared_bytes_per_block: int
    max_block_threads: int
    max_argument_bytes: int
    operations_per_second: Mapping[Pipe, float] = field(hash=False)
    peak_operations_per_second: Mapping[Pipe, float] = field(hash=False)
    sources: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )

    @property
    def numbers(self) -> Mapping[str, object]:
        """All that decides a prediction, JSON-ready, without names and sources."""
        found: dict[str, object] = {"kind": self.kind}
        for name in NUMBER_FIELDS:
            found[name] = getattr(self, name)
        for name in RATE_FIELDS:
            rates: Mapping[Pipe, float] = getattr(self, name)
            found[name] = {str(pipe): rates[pipe] for pipe in sorted(rates)}
        return found

    @property
    def digest(self) -> str:
        """SHA-256 of the architecture and all numbers, as hexadecimal digits."""
        body = {"architecture": self.architecture, **self.numbers}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


TEXT_FIELDS: Final = frozenset({"id", "name", "kind", "architecture"})
RATE_FIELDS: Final = ("operations_per_second", "peak_operations_per_second")
NUMBER_FIELDS: Final = tuple(
    each.name
    for each in fields(Device)
    if each.name not in TEXT_FIELDS | {*RATE_FIELDS, "sources"}
)


def base_of(id_: str) -> str:
    """The catalogue's device that a device's id means, calibrated or not.

    It names the machine, where the numbers that price a kernel do not matter: what was
    measured on it, and the rules that hold there.
    """
    return id_.partition("@")[0]
