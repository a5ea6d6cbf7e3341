"""Which level of the memory hierarchy serves each byte of a kernel.

Four rules, each from the size of an operand alone, so that prices of kernels add up:

* First touch: the sectors of a tensor come from main memory, except for the share
  that the last-level cache may still hold (`resident_fraction`).
* Requests for a sector that a block has asked for before hit the nearest cache that
  holds what the block touches in between (their reuse distance); from the one next to
  the arithmetic they cost the instruction and nothing else. Requests by other blocks
  hit the private cache where it holds the whole tensor, else the last-level cache.
* Requests that do not coalesce ask for a sector again and again, for a few bytes each.
  They hit the last-level cache as far as it can hold the tensor; a miss moves a whole
  DRAM burst. Beyond the private cache their sectors travel one by one.
* Writes follow the same rules, with partial sectors merged in the cache while they
  stay there.

One more rule holds for all operands together: what the caches serve at first touch
never exceeds their capacity, so a bound on main memory traffic stays a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost_model.device import Device
    from cost_model.work import Access, Work

FULL_SHARE = 0.25
"""An operand of a quarter of a cache is assumed to be still in it."""

NO_SHARE = 0.75
"""An operand of three quarters of a cache is assumed to be gone: the other operands of
a kernel pass through the same cache. On an H100 (50 MiB) a copy of 32 MiB to 32 MiB
shows no help of the cache (2343 GiB/s for 64 MiB in all)."""


@dataclass(slots=True)
class Traffic:
    """Bytes of one launch by the level that serves them.

    `dram_read_bytes` and `cache_read_bytes` are the parts that a thread waits for;
    `scattered_...` those that are asked for one sector at a time, here and there.
    """

    dram_bytes: float = 0.0
    cache_bytes: float = 0.0
    private_bytes: float = 0.0
    dram_read_bytes: float = 0.0
    cache_read_bytes: float = 0.0
    scattered_dram_bytes: float = 0.0
    scattered_cache_bytes: float = 0.0


def resident_fraction(nbytes: float, capacity_bytes: float) -> float:
    """Share of a tensor of `nbytes` that a cache still holds when a kernel starts."""
    if nbytes <= FULL_SHARE * capacity_bytes:
        return 1.0
    left = NO_SHARE * capacity_bytes - nbytes
    return max(0.0, left / ((NO_SHARE - FULL_SHARE) * capacity_bytes))


def traffic(
    work: Work,
    device: Device,
    resident_blocks: int,
    held: Sequence[float] | None = None,
) -> Traffic:
    """Bytes of `work` by level, spills and library intermediates left out.

    Args:
        work: counted operands.
        device: its caches.
        resident_blocks: on one multiprocessor.
        held: share of each operand that the last-level cache holds at the start, where
            the kernels before are known; by default what its size alone lets expect.
    """
    total = Traffic()
    for index, access in enumerate(work.accesses):
        _first_touch(total, access, device, None if held is None else held[index])
    _cap(total, device)
    for access in work.accesses:
        sector = max(access.sector_bytes, access.unique_bytes)
        if access.requested_bytes > sector:
            _again(total, access, device, resident_blocks)
    return total


def _first_touch(
    total: Traffic, access: Access, device: Device, share: float | None
) -> None:
    sector = max(access.sector_bytes, access.unique_bytes)
    if access.is_write and not device.caches_writes:
        total.dram_bytes += sector
        return
    if share is None:
        share = resident_fraction(sector, device.l2_bytes)
    held = share * sector
    near = 0.0
    if device.keeps_l1:
        room = device.l1_bytes * device.multiprocessors
        near = min(held, resident_fraction(sector, room) * sector)
    total.private_bytes += near
    total.cache_bytes += held - near
    total.dram_bytes += sector - held
    loose = _scattered(access, access.requested_bytes - sector)
    if loose > 0:
        loose /= access.requested_bytes - sector
        total.scattered_cache_bytes += loose * (held - near)
        total.scattered_dram_bytes += loose * (sector - held)
    # All threads wait for one sector at once: that is the latency of the first read,
    # which every launch pays.
    if not access.is_write and sector > device.sector_bytes:
        total.dram_read_bytes += sector - held
        total.cache_read_bytes += held - near


def _cap(total: Traffic, device: Device) -> None:
    """No cache holds more than its capacity, however many operands fit one by one."""
    if total.private_bytes > device.l1_bytes * device.multiprocessors:
        excess = total.private_bytes - device.l1_bytes * device.multiprocessors
        total.private_bytes -= excess
        total.cache_bytes += excess
    excess = total.private_bytes + total.cache_bytes - device.l2_bytes
    if excess > 0:
        moved = min(excess, total.cache_bytes)
        total.cache_bytes -= moved
        total.dram_bytes += moved
        total.private_bytes -= excess - moved
        total.dram_bytes += excess - moved


def _again(
    total: Traffic, access: Access, device: Device, resident_blocks: int
) -> None:
    """Add the requests beyond the first touch of each sector."""
    sector = max(access.sector_bytes, access.unique_bytes)
    again = access.requested_bytes - sector
    useful = access.useful_bytes or access.requested_bytes
    scattered = _scattered(access, again)
    near, nearest = _reused(access, again, device, resident_blocks)
    if sector <= device.l1_bytes:
        near = again - nearest
    total.private_bytes += near
    # Requests that coalesce and others are alike at all distances.
    loose = scattered / again
    far = again - near - nearest
    scattered = loose * far
    missed = scattered * max(0.0, 1.0 - device.l2_bytes / max(sector, 1))
    burst = missed * max(1.0, device.dram_burst_bytes / device.sector_bytes)
    total.cache_bytes += far - missed
    total.scattered_cache_bytes += scattered - missed
    total.dram_bytes += burst
    if not access.is_write:
        # A thread waits for the bytes that it asked for; the rest of a sector and of a
        # burst comes along.
        waiting = useful / access.requested_bytes
        total.cache_read_bytes += far - scattered + waiting * (scattered - missed)
        total.dram_read_bytes += waiting * missed


def _scattered(access: Access, again: float) -> float:
    """Requests for a sector, beyond the first, that use a part of it alone.

    A kernel that asks but once for what it uses of each sector goes through them in
    order: with a stride, but as fast as without.
    """
    useful = access.useful_bytes or access.requested_bytes
    return min(again, max(0, access.requested_bytes - useful))


def _reused(
    access: Access, again: float, device: Device, resident_blocks: int
) -> tuple[float, float]:
    """Requests that hit the private cache, and those that hit one before it.

    The blocks of a multiprocessor share its caches, and touch the same in between.
    """
    near = nearest = 0.0
    for each in access.reuse:
        distance = each.distance_bytes * resident_blocks
        hits = min(float(each.requested_bytes), again - near - nearest)
        if distance <= device.nearest_bytes:
            nearest += hits
        elif distance <= device.l1_bytes:
            near += hits
    return near, nearest
