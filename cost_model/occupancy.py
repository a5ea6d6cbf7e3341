"""How many blocks of a kernel live on a multiprocessor at once, and what limits them.

Source: NVIDIA, "CUDA C++ Programming Guide", chapter on compute capabilities, and the
allocation rules of NVIDIA's occupancy calculator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cost_model.device import Device
    from cost_model.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident blocks and threads of one kernel.

    Attributes:
        blocks: resident blocks per multiprocessor, at least 1 (a kernel that fits
            nowhere is priced as if one block did; legality refuses it elsewhere).
        threads: resident threads per multiprocessor, whole sub-groups.
        fraction: of the threads that a multiprocessor could hold.
        limiter: what stops the next block: "registers", "shared", "blocks", "threads",
            or "grid" when the launch has no more blocks.
        registers: per thread, after what exceeds the device's limit was spilled.
        spill_bytes: per thread, stored and loaded back, the excess included.
    """

    blocks: int
    threads: int
    fraction: float
    limiter: str
    registers: int
    spill_bytes: int


def occupancy(work: Work, device: Device) -> Occupancy:
    """Resident blocks of `work` on one multiprocessor of `device`."""
    lanes = device.subgroup_threads
    block_threads = -(-max(1, work.block_threads) // lanes) * lanes
    registers = min(work.registers_per_thread, _thread_limit(device, block_threads))
    excess = max(0, work.registers_per_thread - registers)
    limit, limiter = _limit(work, device, block_threads, registers)
    wanted = -(-max(1, work.blocks) // device.multiprocessors)
    if wanted < limit:
        limit, limiter = wanted, "grid"
    threads = min(limit * block_threads, device.max_threads_per_multiprocessor)
    return Occupancy(
        blocks=limit,
        threads=threads,
        fraction=threads / device.max_threads_per_multiprocessor,
        limiter=limiter,
        registers=registers,
        # Each register too many is stored once and loaded once, 4 bytes each.
        spill_bytes=work.spill_bytes_per_thread + 8 * excess,
    )


def _thread_limit(device: Device, block_threads: int) -> int:
    """Registers of a thread when one block must fit on a multiprocessor.

    Source: NVIDIA, "CUDA C++ Programming Guide", launch bounds; registers are given
    in eights.
    """
    share = device.registers_per_multiprocessor // block_threads
    return min(device.max_registers_per_thread, max(share // 8 * 8, 8))


def _limit(
    work: Work, device: Device, block_threads: int, registers: int
) -> tuple[int, str]:
    unit = device.register_allocation_unit
    subgroup_registers = -(-registers * device.subgroup_threads // unit) * unit
    subgroups = block_threads // device.subgroup_threads
    block_registers = max(1, subgroup_registers * subgroups)
    block_shared = work.shared_bytes_per_block + device.reserved_shared_bytes_per_block
    limits = (
        (device.max_threads_per_multiprocessor // block_threads, "threads"),
        (device.max_blocks_per_multiprocessor, "blocks"),
        (device.registers_per_multiprocessor // block_registers, "registers"),
        (device.shared_bytes_per_multiprocessor // max(1, block_shared), "shared"),
    )
    limit, limiter = min(limits, key=lambda pair: pair[0])
    return max(1, limit), limiter
