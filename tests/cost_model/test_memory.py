"""Which level serves each byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_model.catalog import cpu, find
from cost_model.memory import resident_fraction, traffic
from cost_model.work import Reuse, Work
from tests.cost_model.builders import read, write

MIB = 1 << 20


def of(*accesses: object, **changes: object) -> Work:
    """A work of these operands."""
    return replace(Work(accesses=accesses), **changes)  # type: ignore[arg-type]


@given(
    small=st.integers(0, 1 << 40), more=st.integers(0, 1 << 40),
    capacity=st.integers(1, 1 << 36),
)  # fmt: skip
def test_larger_tensors_are_kept_less(small: int, more: int, capacity: int) -> None:
    """The share that stays lies between 0 and 1 and falls with size."""
    share = resident_fraction(small, capacity)
    assert 0.0 <= resident_fraction(small + more, capacity) <= share <= 1.0


def test_the_share_that_stays_falls_steadily() -> None:
    """All of a quarter of the cache stays, half of a half, none of three quarters."""
    found = [resident_fraction(part, 100) for part in (25, 50, 75, 100)]
    assert found == [1.0, 0.5, 0.0, 0.0]


def test_writes_of_a_gpu_go_to_main_memory() -> None:
    """Where writes do not stay in a cache they are main memory traffic at any size."""
    moved = traffic(of(write(MIB)), find("sm_90"), 1)
    assert (moved.dram_bytes, moved.cache_bytes) == (MIB, 0)


def test_small_tensors_of_a_cpu_stay_in_its_cores() -> None:
    """Reads and writes of half a MiB come from the private caches of two cores."""
    moved = traffic(of(read(MIB // 2), write(MIB // 2)), cpu(), 1)
    assert (moved.private_bytes, moved.cache_bytes, moved.dram_bytes) == (MIB, 0, 0)


def test_middling_tensors_of_a_cpu_stay_in_the_shared_cache() -> None:
    """A tensor beyond the private caches costs the last level's rate."""
    moved = traffic(of(read(8 * MIB)), cpu(), 1)
    assert (moved.cache_bytes, moved.dram_bytes) == (8 * MIB, 0)


@pytest.mark.parametrize("name", ["cpu", "sm_80", "sm_90"])
def test_no_cache_holds_more_than_it_can(name: str) -> None:
    """Many operands that fit one by one do not all fit together."""
    device = find(name)
    each = device.l2_bytes // 4
    moved = traffic(of(*(read(each) for _ in range(10))), device, 1)
    assert moved.dram_bytes == pytest.approx(10 * each - device.l2_bytes)
    assert moved.private_bytes + moved.cache_bytes <= device.l2_bytes


def test_scattered_requests_hit_what_the_cache_holds() -> None:
    """A tensor of twice the cache misses half of its repeated requests."""
    device = find("sm_90")
    nbytes = 2 * device.l2_bytes
    strided = replace(read(nbytes), requested_bytes=8 * nbytes, useful_bytes=nbytes)
    moved = traffic(of(strided), device, 1)
    assert moved.scattered_cache_bytes == pytest.approx(7 * nbytes / 2)
    assert moved.dram_bytes == pytest.approx(nbytes + 7 * nbytes / 2 * 2)


def test_threads_wait_for_the_bytes_that_they_asked_for() -> None:
    """The unused part of a sector is moved, but not waited for."""
    device = find("sm_90")
    nbytes = 256 * MIB
    strided = replace(read(nbytes), requested_bytes=8 * nbytes, useful_bytes=nbytes)
    moved = traffic(of(strided), device, 1)
    assert moved.dram_read_bytes < nbytes * 2
    assert traffic(of(replace(strided, is_write=True)), device, 1).dram_read_bytes == 0


def test_re_reads_by_other_blocks_do_not_hit_this_ones_cache() -> None:
    """What is read again by another block comes from the last level."""
    device = find("sm_90")
    row = replace(read(64 * MIB), requested_bytes=128 * MIB)
    shared = traffic(of(row), device, 1)
    known = Reuse(distance_bytes=MIB // 8, requested_bytes=64 * MIB)
    own = traffic(of(replace(row, reuse=(known,))), device, 1)
    assert shared.cache_bytes == 64 * MIB
    assert own.private_bytes == 64 * MIB
    assert own.cache_bytes == 0


@pytest.mark.parametrize(
    ("distance", "level"),
    [(48 << 10, "nearest"), ((48 << 10) + 1, "private"), (2 * MIB, "private"),
     (2 * MIB + 1, "last")],
)  # fmt: skip
def test_the_distance_decides_which_cache_serves_a_re_read(
    distance: int, level: str
) -> None:
    """Of a core with 48 KiB and 2 MiB: nothing, the private cache, or the last one."""
    again = Reuse(distance_bytes=distance, requested_bytes=15 * MIB)
    turned = replace(
        read(16 * MIB), requested_bytes=31 * MIB, useful_bytes=16 * MIB, reuse=(again,)
    )
    moved = traffic(of(turned), cpu(), 1)
    first = traffic(of(read(16 * MIB)), cpu(), 1)
    assert moved.private_bytes == (15 * MIB if level == "private" else 0)
    far = 15 * MIB if level == "last" else 0
    assert moved.cache_bytes + moved.dram_bytes == (
        first.cache_bytes + first.dram_bytes + far
    )


def test_blocks_side_by_side_share_a_cache() -> None:
    """A distance of a sixteenth of the cache is too far for seventeen blocks."""
    device = find("sm_90")
    again = Reuse(distance_bytes=device.l1_bytes // 16, requested_bytes=64 * MIB)
    row = replace(read(64 * MIB), requested_bytes=128 * MIB, reuse=(again,))
    assert traffic(of(row), device, 16).private_bytes == 64 * MIB
    assert traffic(of(row), device, 17).private_bytes == 0


def test_no_more_is_read_again_than_was_asked_for() -> None:
    """Reuse that is counted twice, by overlapping operands, hits once."""
    again = Reuse(distance_bytes=1024, requested_bytes=64 * MIB)
    row = replace(read(64 * MIB), requested_bytes=128 * MIB, reuse=(again, again))
    assert traffic(of(row), find("sm_90"), 1).private_bytes == 64 * MIB
