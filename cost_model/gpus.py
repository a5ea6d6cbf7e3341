"""NVIDIA GPUs: one row of a data sheet each, and what published measurements add.

Sources that several rows share, by their short names:

* data sheet: NVIDIA's product data sheet or architecture whitepaper of that GPU
  (Volta V100, Turing, Ampere GA100 and GA102, Ada AD102, Hopper H100, Blackwell).
* CUDA guide: NVIDIA, "CUDA C++ Programming Guide", tables "Technical specifications
  per compute capability" and "Throughput of native arithmetic instructions".
* Jia 2018, Jia 2019: Z. Jia et al., "Dissecting the NVIDIA Volta GPU architecture via
  microbenchmarking" (arXiv:1804.06826) and the same for Turing T4 (arXiv:1903.07486).
* Luo 2024: W. Luo et al., "Benchmarking and dissecting the Nvidia Hopper GPU
  architecture via microbenchmarking" (arXiv:2402.13499): latencies in cycles.
* Zhang 2020: L. Zhang et al., "A study of single and multi-device synchronization
  methods in Nvidia GPUs" (arXiv:2004.05371).
* XLA: `gpu_performance_model_base.cc` of the XLA project.
* H100 table: published copy bandwidth of an H100 by size (8 KiB 1.4, 1 MiB 179, 4 MiB
  639, 16 MiB 1584, 64 MiB 2343, 1 GiB 3126 GiB/s), which follows
  5.3 us + bytes / 3.25e12.
* assumption: no public figure is known to us; calibration replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.device import Device
from cost_model.work import Pipe

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# Compute capabilities: resident threads, resident blocks, shared KiB per
# multiprocessor and per block, shared bytes reserved per block, L1 KiB, then lanes.
# Lanes are results per clock and multiprocessor; tensor lanes are multiply-adds of
# 16-bit operands. Integer and conversion lanes of sm_120: Blackwell whitepaper.
_LIMIT_NAMES: Final = (
    "max_threads_per_multiprocessor",
    "max_blocks_per_multiprocessor",
    "shared_kib",
    "block_shared_kib",
    "reserved_shared_bytes_per_block",
    "l1_kib",
)
_LIMITS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "sm_70": (2048, 32, 96, 96, 0, 128),
        "sm_75": (1024, 16, 64, 64, 0, 96),
        "sm_80": (2048, 32, 164, 163, 1024, 192),
        "sm_86": (1536, 16, 100, 99, 1024, 128),
        "sm_89": (1536, 24, 100, 99, 1024, 128),
        "sm_90": (2048, 32, 228, 227, 1024, 256),
        "sm_100": (2048, 32, 228, 227, 1024, 256),
        "sm_120": (1536, 24, 100, 99, 1024, 128),
    }
)
_PIPES: Final = (
    Pipe.FMA32,
    Pipe.FMA64,
    Pipe.FMA16,
    Pipe.SPECIAL,
    Pipe.INTEGER,
    Pipe.CONVERT,
    Pipe.TENSOR,
)
_LANES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "sm_70": (64, 32, 128, 16, 64, 16, 512),
        "sm_75": (64, 2, 128, 16, 64, 16, 512),
        "sm_80": (64, 32, 256, 16, 64, 16, 1024),
        "sm_86": (128, 2, 128, 16, 64, 16, 512),
        "sm_89": (128, 2, 128, 16, 64, 16, 512),
        "sm_90": (128, 64, 256, 16, 64, 64, 2048),
        "sm_100": (128, 64, 256, 16, 64, 64, 4096),
        "sm_120": (128, 2, 128, 16, 128, 16, 512),
    }
)
# Cycles of a dependent read that hits main memory, and one that hits the L2 cache.
_LATENCY: Final[Mapping[str, tuple[float, float, str]]] = MappingProxyType(
    {
        "sm_70": (400, 193, "Jia 2018"),
        "sm_75": (400, 188, "Jia 2019 for the cache, Volta's for memory"),
        "sm_80": (466, 262, "Luo 2024, A100"),
        "sm_86": (466, 262, "Luo 2024, A100"),
        "sm_89": (542, 273, "Luo 2024, RTX 4090"),
        "sm_90": (479, 263, "Luo 2024, H100"),
        "sm_100": (479, 263, "Luo 2024, H100, for lack of a figure"),
        "sm_120": (542, 273, "Luo 2024, RTX 4090, for lack of a figure"),
    }
)

_NVIDIA_SOURCES: Final[Mapping[str, str]] = MappingProxyType({
    "multiprocessors": "data sheet",
    "clock_hertz": "data sheet: boost clock",
    "dram_bytes_per_second": "assumption: 0.90 of the peak, as STREAM-like copies do",
    "dram_peak_bytes_per_second": "data sheet",
    "dram_burst_bytes": "XLA: 64 bytes a DRAM access; CUDA guide: L2 fetch granularity",
    "dram_bytes": "data sheet",
    "l2_peak_bytes_per_second": "port limit: 64 bytes a clock and multiprocessor",
    "l2_bytes": "data sheet",
    "l1_bytes_per_second": "assumption: 0.85 of the peak",
    "l1_peak_bytes_per_second":
        "whitepapers: 128 bytes a clock and multiprocessor",
    "l1_bytes": "CUDA guide: unified L1 and shared memory",
    "nearest_bytes": "CUDA guide: L1 is the first cache",
    "keeps_l1": "CUDA guide: L1 is not coherent and is invalidated at kernel start",
    "caches_writes": "H100 table: copies that fit in L2 run at the rate of DRAM",
    "multiprocessor_bytes_per_second": "port limit: 64 bytes a clock",
    "prefetched_bytes_per_multiprocessor": "no hardware prefetcher is documented",
    "sector_bytes": "CUDA guide: memory transactions of 32 bytes",
    "scattered_share": "sectors travel alone; what is left unused is counted",
    "subgroup_threads": "CUDA guide: warp size",
    "saturation_threads_per_multiprocessor":
        "Jia 2018: 4 cycles a dependent operation, times the FMA lanes",
    "launch_seconds": "H100 table: 5.3 us with the first read; assumed for all GPUs",
    "graph_launch_seconds":
        "assumption: 0.5 us between nodes (NVIDIA blog, CUDA graphs) and 1.5 us of"
        " ramp-up and drain",
    "launch_floor_seconds": "XLA: 1 us a kernel",
    "library_launch_seconds": "assumption: a launch and 1 us of dispatch",
    "library_operator_seconds": "assumption: one launch for each operator beyond",
    "library_wake_seconds": "there are no threads to wake",
    "library_serial_bytes": "there are no threads to wake",
    "library_floor_seconds": "XLA: 1 us a kernel",
    "library_efficiency": "assumption: 0.7 of the peak on shapes of real models",
    "library_memory_efficiency": "assumption: as copies",
    "block_launch_seconds": "not modelled: starts hide behind running blocks",
    "barrier_seconds": "Zhang 2020: about 40 cycles a block synchronisation",
    "shuffle_seconds": "Zhang 2020: 22 cycles a warp shuffle",
    "overlap": "XLA: 0.95 of the smaller term is hidden",
    "pipe_overlap": "CUDA guide: pipes are issued to independently",
    "max_threads_per_multiprocessor": "CUDA guide",
    "max_blocks_per_multiprocessor": "CUDA guide",
    "registers_per_multiprocessor": "CUDA guide: 64 Ki",
    "register_allocation_unit": "CUDA occupancy calculator: 256 a warp",
    "max_registers_per_thread": "CUDA guide",
    "shared_bytes_per_multiprocessor": "CUDA guide",
    "max_shared_bytes_per_block": "CUDA guide",
    "reserved_shared_bytes_per_block": "CUDA guide: 1 KiB from 8.0 on",
    "max_block_threads": "CUDA guide",
    "max_argument_bytes": "CUDA guide: 4 KB, the limit that every driver keeps",
    "operations_per_second": "assumption: 0.85 of the peak",
    "peak_operations_per_second": "CUDA guide: lanes of the architecture times clock",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One row of a data sheet, and what published measurements add to it."""

    id: str
    name: str
    architecture: str
    multiprocessors: int
    clock_megahertz: float
    dram_gigabytes_per_second: float
    dram_gib: int
    l2_mib: int
    l2_gigabytes_per_second: float
    l2_source: str
    sheet: str
    dram_share: float = 0.90
    tensor_share: float = 1.0
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def nvidia(gpu: Gpu) -> Device:
    """The whole device that a row describes."""
    clock = gpu.clock_megahertz * 1e6
    limits = dict(zip(_LIMIT_NAMES, _LIMITS[gpu.architecture], strict=True))
    lanes = dict(zip(_PIPES, _LANES[gpu.architecture], strict=True))
    dram_cycles, l2_cycles, latency_source = _LATENCY[gpu.architecture]
    ports = gpu.multiprocessors * clock
    peak = {pipe: count * ports for pipe, count in lanes.items()}
    peak[Pipe.TENSOR] *= gpu.tensor_share
    dram_peak = gpu.dram_gigabytes_per_second * 1e9
    sheet = {
        name: f"{gpu.sheet}"
        for name, text in _NVIDIA_SOURCES.items()
        if text == "data sheet"
    }
    sources = {
        **_NVIDIA_SOURCES,
        **sheet,
        "clock_hertz": f"{gpu.sheet}: boost clock",
        "l2_bytes_per_second": gpu.l2_source,
        "dram_latency_seconds": latency_source,
        "l2_latency_seconds": latency_source,
        **gpu.sources,
    }
    return Device(
        id=gpu.id,
        name=gpu.name,
        kind="gpu",
        architecture=gpu.architecture,
        multiprocessors=gpu.multiprocessors,
        clock_hertz=clock,
        dram_bytes_per_second=gpu.dram_share * dram_peak,
        dram_peak_bytes_per_second=dram_peak,
        dram_latency_seconds=dram_cycles / clock,
        dram_burst_bytes=64,
        dram_bytes=gpu.dram_gib * GIB,
        l2_bytes_per_second=gpu.l2_gigabytes_per_second * 1e9,
        l2_peak_bytes_per_second=64 * ports,
        l2_latency_seconds=l2_cycles / clock,
        l2_bytes=gpu.l2_mib * MIB,
        l1_bytes_per_second=0.85 * 128 * ports,
        l1_peak_bytes_per_second=128 * ports,
        l1_bytes=limits["l1_kib"] * KIB,
        nearest_bytes=0,
        keeps_l1=0,
        caches_writes=0,
        multiprocessor_bytes_per_second=64 * clock,
        prefetched_bytes_per_multiprocessor=0,
        sector_bytes=32,
        scattered_share=1.0,
        subgroup_threads=32,
        saturation_threads_per_multiprocessor=4 * lanes[Pipe.FMA32],
        launch_seconds=5.0e-6,
        graph_launch_seconds=2.0e-6,
        launch_floor_seconds=1.0e-6,
        library_launch_seconds=1.0e-6,
        library_operator_seconds=5.0e-6,
        library_wake_seconds=0.0,
        library_serial_bytes=0,
        library_floor_seconds=1.0e-6,
        library_efficiency=0.7,
        library_memory_efficiency=1.0,
        block_launch_seconds=0.0,
        barrier_seconds=40 / clock,
        shuffle_seconds=22 / clock,
        overlap=0.95,
        pipe_overlap=1.0,
        max_threads_per_multiprocessor=limits["max_threads_per_multiprocessor"],
        max_blocks_per_multiprocessor=limits["max_blocks_per_multiprocessor"],
        registers_per_multiprocessor=64 * KIB,
        register_allocation_unit=256,
        max_registers_per_thread=255,
        shared_bytes_per_multiprocessor=limits["shared_kib"] * KIB,
        max_shared_bytes_per_block=limits["block_shared_kib"] * KIB,
        reserved_shared_bytes_per_block=limits["reserved_shared_bytes_per_block"],
        max_block_threads=1024,
        max_argument_bytes=4096,
        operations_per_second=MappingProxyType(
            {pipe: 0.85 * rate for pipe, rate in peak.items()}
        ),
        peak_operations_per_second=MappingProxyType(peak),
        sources=MappingProxyType(sources),
    )


_ADA_SCALED: Final = "scaled from the RTX 4090 by multiprocessors and clock"
_XLA_L2: Final = "XLA: 2.5 times the bandwidth of DRAM"
_GEFORCE: Final = MappingProxyType({
    "peak_operations_per_second":
        "CUDA guide: lanes of the architecture times clock; tensor at half rate, as"
        " GeForce accumulates in 32 bits",
})  # fmt: skip

GPUS: Final = (
    Gpu(
        id="v100", name="NVIDIA V100 SXM2", architecture="sm_70", multiprocessors=80,
        clock_megahertz=1530, dram_gigabytes_per_second=900, dram_gib=32, l2_mib=6,
        l2_gigabytes_per_second=2155, l2_source="Jia 2018: 2155 GB/s",
        sheet="Volta V100 whitepaper (WP-08608-001)",
    ),
    Gpu(
        id="t4", name="NVIDIA T4", architecture="sm_75", multiprocessors=40,
        clock_megahertz=1590, dram_gigabytes_per_second=320, dram_gib=16, l2_mib=4,
        l2_gigabytes_per_second=1270, l2_source="Jia 2019: 1270 GB/s",
        sheet="Tesla T4 data sheet", dram_share=0.75,
        sources=MappingProxyType({
            "dram_bytes_per_second": "Jia 2019: 0.69 to 0.75 of the peak",
        }),
    ),
    Gpu(
        id="a10", name="NVIDIA A10", architecture="sm_86", multiprocessors=72,
        clock_megahertz=1695, dram_gigabytes_per_second=600, dram_gib=24, l2_mib=6,
        l2_gigabytes_per_second=1500, l2_source=_XLA_L2, sheet="A10 data sheet",
    ),
    Gpu(
        id="rtx-3090", name="NVIDIA GeForce RTX 3090", architecture="sm_86",
        multiprocessors=82, clock_megahertz=1695, dram_gigabytes_per_second=936,
        dram_gib=24, l2_mib=6, l2_gigabytes_per_second=2340, l2_source=_XLA_L2,
        sheet="Ampere GA102 whitepaper", tensor_share=0.5, sources=_GEFORCE,
    ),
    Gpu(
        id="a100-40", name="NVIDIA A100 40GB", architecture="sm_80",
        multiprocessors=108, clock_megahertz=1410, dram_gigabytes_per_second=1555,
        dram_gib=40, l2_mib=40, l2_gigabytes_per_second=3890, l2_source=_XLA_L2,
        sheet="Ampere A100 whitepaper",
    ),
    Gpu(
        id="a100-80", name="NVIDIA A100 SXM 80GB", architecture="sm_80",
        multiprocessors=108, clock_megahertz=1410, dram_gigabytes_per_second=2039,
        dram_gib=80, l2_mib=40, l2_gigabytes_per_second=5100, l2_source=_XLA_L2,
        sheet="A100 80GB data sheet",
    ),
    Gpu(
        id="l4", name="NVIDIA L4", architecture="sm_89", multiprocessors=58,
        clock_megahertz=2040, dram_gigabytes_per_second=300, dram_gib=24, l2_mib=48,
        l2_gigabytes_per_second=1830, l2_source=_ADA_SCALED, sheet="L4 data sheet",
    ),
    Gpu(
        id="l40s", name="NVIDIA L40S", architecture="sm_89", multiprocessors=142,
        clock_megahertz=2520, dram_gigabytes_per_second=864, dram_gib=48, l2_mib=96,
        l2_gigabytes_per_second=5550, l2_source=_ADA_SCALED, sheet="L40S data sheet",
    ),
    Gpu(
        id="rtx-4090", name="NVIDIA GeForce RTX 4090", architecture="sm_89",
        multiprocessors=128, clock_megahertz=2520, dram_gigabytes_per_second=1008,
        dram_gib=24, l2_mib=72, l2_gigabytes_per_second=5000,
        l2_source="Chips and Cheese, Ada microbenchmarks: about 5 TB/s",
        sheet="Ada AD102 whitepaper", tensor_share=0.5, sources=_GEFORCE,
    ),
    Gpu(
        id="rtx-5090", name="NVIDIA GeForce RTX 5090", architecture="sm_120",
        multiprocessors=170, clock_megahertz=2407, dram_gigabytes_per_second=1792,
        dram_gib=32, l2_mib=96, l2_gigabytes_per_second=6340, l2_source=_ADA_SCALED,
        sheet="RTX Blackwell whitepaper", tensor_share=0.5, sources=_GEFORCE,
    ),
    Gpu(
        id="h100-pcie", name="NVIDIA H100 PCIe", architecture="sm_90",
        multiprocessors=114, clock_megahertz=1755, dram_gigabytes_per_second=2039,
        dram_gib=80, l2_mib=50, l2_gigabytes_per_second=5500,
        l2_source="Chips and Cheese, H100 PCIe microbenchmarks: 5.5 TB/s",
        sheet="Hopper H100 whitepaper",
    ),
    Gpu(
        id="h100-sxm", name="NVIDIA H100 SXM", architecture="sm_90",
        multiprocessors=132, clock_megahertz=1980, dram_gigabytes_per_second=3350,
        dram_gib=80, l2_mib=50, l2_gigabytes_per_second=5500,
        l2_source="that of the H100 PCIe, not scaled",
        sheet="H100 data sheet", dram_share=0.97,
        sources=MappingProxyType({
            "dram_bytes_per_second": "H100 table: 3.25e12 bytes a second",
        }),
    ),
    Gpu(
        id="h200", name="NVIDIA H200 SXM", architecture="sm_90", multiprocessors=132,
        clock_megahertz=1980, dram_gigabytes_per_second=4800, dram_gib=141, l2_mib=50,
        l2_gigabytes_per_second=5500, l2_source="that of the H100 PCIe, not scaled",
        sheet="H200 data sheet",
    ),
    Gpu(
        id="b200", name="NVIDIA B200 SXM", architecture="sm_100", multiprocessors=148,
        clock_megahertz=1965, dram_gigabytes_per_second=8000, dram_gib=180, l2_mib=126,
        l2_gigabytes_per_second=8000,
        l2_source="assumption: the H100's share of its port limit",
        sheet="DGX B200 data sheet; Blackwell architecture brief",
    ),
)  # fmt: skip
