"""A generic server CPU under OpenCL, to start from before it is calibrated.

"Measured" stands for medians on a quiet, virtual 2-core Xeon of the 4th generation
(AVX-512, 2 MiB of L2 a core) under Intel's OpenCL runtime and ONNX Runtime 1.32.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.device import Device
from cost_model.work import Pipe

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_LANES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "avx512": (32, 16, 32, 8, 32, 16, 64),
        "avx2": (16, 8, 16, 4, 16, 8, 16),
        "sse": (8, 4, 8, 2, 8, 4, 8),
        "neon": (8, 4, 16, 2, 8, 4, 16),
    }
)
"""Results per clock and core, in the order of `_PIPES`.

Two vector ports of 512, 256 or 128 bits; a special step is a division, a square root or
the table part of an exponential (measured with 512 bits, four chains side by side: 1.4
exponentials a clock and core, 0.9 hyperbolic tangents, 1.4 roots, 1.6 reciprocals; in
softmaxes 2.8 exponentials). Operands of 16 bits run as 32-bit ones, but for neon and
the bf16 dot product of avx512.
"""

_PIPES: Final = (
    Pipe.FMA32,
    Pipe.FMA64,
    Pipe.FMA16,
    Pipe.SPECIAL,
    Pipe.INTEGER,
    Pipe.CONVERT,
    Pipe.TENSOR,
)
_VECTOR_THREADS: Final = MappingProxyType(
    {"avx512": 16, "avx2": 8, "sse": 4, "neon": 4}
)
_CLOCK_HERTZ: Final = 3.5e9
_COMPILED_SHARES: Final[Mapping[Pipe, float]] = MappingProxyType(
    {Pipe.FMA32: 0.65, Pipe.SPECIAL: 0.5}
)
_COMPILED_SHARE: Final = 0.38
_MEMORY_STREAMS: Final = 12
"""The memory channels of a socket are full long before all of its cores copy."""

_SOURCES: Final[Mapping[str, str]] = MappingProxyType({
    "multiprocessors": "argument: threads of the machine",
    "clock_hertz": "Intel Xeon data sheets: turbo clock under vector load",
    "dram_bytes_per_second": "measured: copies of 64 MiB, 43 GB/s by 2 cores",
    "dram_peak_bytes_per_second": "assumption: twice the measured copies",
    "dram_latency_seconds": "assumption: 100 ns, as server CPUs publish",
    "dram_burst_bytes": "cache line",
    "dram_bytes": "assumption: 8 GiB a core",
    "l2_bytes_per_second": "measured: copies of 8 to 32 MiB, 57 to 66 GB/s by 2 cores",
    "l2_peak_bytes_per_second": "assumption: twice the measured copies",
    "l2_latency_seconds": "assumption: 30 ns, as server CPUs publish",
    "l2_bytes":
        "measured: copies slow down beyond 64 MiB, whatever the shared host reports",
    "l1_bytes_per_second":
        "fitted: 14 kernels in L2 and the last cache under all their schedules",
    "l1_peak_bytes_per_second": "one 64-byte vector a clock",
    "l1_bytes": "Intel Xeon, 4th generation: 2 MiB of L2 cache a core",
    "nearest_bytes": "Intel Xeon, 4th generation: 48 KiB of L1 data cache a core",
    "keeps_l1": "caches of a CPU are coherent",
    "caches_writes": "caches of a CPU are write-back",
    "multiprocessor_bytes_per_second": "measured: copies by one core, 26 to 33 GB/s",
    "prefetched_bytes_per_multiprocessor": "Intel Xeon: 48 lines in flight a core",
    "sector_bytes": "cache line",
    "scattered_share":
        "measured: transposed reads move 17 to 24 GB/s in lines, 40 in the L2 cache",
    "subgroup_threads": "lanes of 32 bits in a vector",
    "saturation_threads_per_multiprocessor": "lanes of 32 bits in a vector",
    "launch_seconds": "measured: 5 to 7 us a launch of 16 to 64 work-groups",
    "graph_launch_seconds": "OpenCL command buffers gain nothing over plain enqueues",
    "launch_floor_seconds": "measured: 2.4 us for one work-group, less the noise",
    "library_launch_seconds":
        "assumption: 10 us to wait for the queue, 2 us for a session run",
    "library_operator_seconds":
        "measured: 0.3 us an operator alone, 2 us in a chain",
    "library_wake_seconds":
        "measured: products of 256 and 384 take 100 us more by turns with a copy",
    "library_serial_bytes": "measured: chains of additions step up beyond 64 KB",
    "library_floor_seconds": "measured: 1.8 us for one operator, less the noise",
    "library_efficiency": "measured: matrix products at 130 to 170 of 224 GFMA/s",
    "library_memory_efficiency":
        "measured: element-wise operators move 30 to 60 GB/s in the last-level cache",
    "block_launch_seconds":
        "fitted: maps in work-groups of 16 items, 10 ns each, of 64 items 3 ns",
    "barrier_seconds":
        "fitted: softmax of short rows by 16 and by 64 lanes, for each vector of them",
    "shuffle_seconds": "fitted: the same, a step of an exchange inside a vector",
    "overlap": "assumption: less than the 0.95 of GPUs, as loads retire in order",
    "pipe_overlap": "vector operations of all kinds share two ports",
    "max_threads_per_multiprocessor": "Intel's OpenCL runtime: 8192 a work-group",
    "max_blocks_per_multiprocessor": "a core runs one work-group at a time",
    "registers_per_multiprocessor": "no limit: live values lie on the stack, cached",
    "register_allocation_unit": "no limit",
    "max_registers_per_thread": "no limit: live values lie on the stack, cached",
    "shared_bytes_per_multiprocessor": "Intel's OpenCL runtime: 256 KiB",
    "max_shared_bytes_per_block": "Intel's OpenCL runtime: 256 KiB",
    "reserved_shared_bytes_per_block": "none",
    "max_block_threads": "Intel's OpenCL runtime: 8192 a work-group",
    "max_argument_bytes": "Intel's OpenCL runtime: 3840",
    "operations_per_second":
        "measured: 146 G multiplications or additions/s in chains side by side, 0.65 of"
        " the peak; special steps 28 G/s; whole numbers 0.38 of the peak",
    "peak_operations_per_second": "vector lanes, two ports, times clock",
})  # fmt: skip


def cpu(name: str = "CPU", instruction_set: str = "avx512", threads: int = 2) -> Device:
    """A generic server CPU with some number of cores.

    Args:
        name: as people say it.
        instruction_set: widest vectors: avx512, avx2, sse or neon.
        threads: cores that kernels run on.

    Raises:
        ValueError: the instruction set is none of these, or there is no thread.
    """
    if instruction_set not in _LANES or threads < 1:
        raise ValueError(
            f"no CPU with {instruction_set!r} and {threads} threads;"
            f" instruction sets: {', '.join(_LANES)}"
        )
    vector = _VECTOR_THREADS[instruction_set]
    lanes = zip(_PIPES, _LANES[instruction_set], strict=True)
    peak = {pipe: count * threads * _CLOCK_HERTZ for pipe, count in lanes}
    streams = min(threads, _MEMORY_STREAMS)
    return Device(
        id="cpu",
        name=name,
        kind="cpu",
        architecture=instruction_set,
        multiprocessors=threads,
        clock_hertz=_CLOCK_HERTZ,
        dram_bytes_per_second=20e9 * streams,
        dram_peak_bytes_per_second=40e9 * streams,
        dram_latency_seconds=100e-9,
        dram_burst_bytes=64,
        dram_bytes=8 * GIB * threads,
        l2_bytes_per_second=33e9 * threads,
        l2_peak_bytes_per_second=60e9 * threads,
        l2_latency_seconds=30e-9,
        l2_bytes=64 * MIB,
        l1_bytes_per_second=125e9 * threads,
        l1_peak_bytes_per_second=64 * _CLOCK_HERTZ * threads,
        l1_bytes=2 * MIB,
        nearest_bytes=48 * KIB,
        keeps_l1=1,
        caches_writes=1,
        multiprocessor_bytes_per_second=33e9,
        prefetched_bytes_per_multiprocessor=48 * 64,
        sector_bytes=64,
        scattered_share=0.3,
        subgroup_threads=vector,
        saturation_threads_per_multiprocessor=vector,
        launch_seconds=6.5e-6,
        graph_launch_seconds=6.5e-6,
        launch_floor_seconds=1.5e-6,
        library_launch_seconds=12e-6,
        library_operator_seconds=2e-6,
        library_wake_seconds=100e-6,
        library_serial_bytes=128 * KIB,
        library_floor_seconds=1.5e-6,
        library_efficiency=0.65,
        library_memory_efficiency=0.75,
        block_launch_seconds=6e-9,
        barrier_seconds=1.5e-9,
        shuffle_seconds=0.7e-9,
        overlap=0.7,
        pipe_overlap=0.0,
        max_threads_per_multiprocessor=8192,
        max_blocks_per_multiprocessor=1,
        registers_per_multiprocessor=8192 * KIB,
        register_allocation_unit=1,
        max_registers_per_thread=KIB,
        shared_bytes_per_multiprocessor=256 * KIB,
        max_shared_bytes_per_block=256 * KIB,
        reserved_shared_bytes_per_block=0,
        max_block_threads=8192,
        max_argument_bytes=3840,
        operations_per_second=MappingProxyType(
            {
                pipe: _COMPILED_SHARES.get(pipe, _COMPILED_SHARE) * rate
                for pipe, rate in peak.items()
            }
        ),
        peak_operations_per_second=MappingProxyType(peak),
        sources=_SOURCES,
    )
