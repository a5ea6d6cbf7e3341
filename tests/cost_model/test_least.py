"""What a device needs at least for some work, in however many kernels."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from cost_model.catalog import find
from cost_model.device import Device
from cost_model.roofline import (
    Moved,
    least_joint_seconds,
    least_launch_seconds,
    least_moved,
    least_moving_seconds,
    predict,
)
from cost_model.work import Access, Pipe, Work
from tests.cost_model.builders import MIB, read, write

TARGETS = ("sm_80", "sm_90", "cpu", "ideal")


def _kernel(rng: random.Random) -> Work:
    """A kernel with operands of all sizes."""
    sizes = [int(2 ** rng.uniform(2, 28)) for _ in range(rng.randint(1, 6))]
    accesses = [rng.choice((read, write))(size) for size in sizes]
    return Work(
        accesses=tuple(accesses),
        operations={Pipe.FMA32: 10 ** rng.uniform(0, 11), Pipe.SPECIAL: 1e6},
        blocks=rng.randint(1, 1 << 16),
        block_threads=rng.choice((32, 128, 1024)),
    )


def _moved(accesses: list[Access], device: Device) -> Moved:
    found = [least_moved(a.unique_bytes, device, is_write=a.is_write) for a in accesses]
    return Moved(
        private_bytes=math.fsum(one.private_bytes for one in found),
        cache_bytes=math.fsum(one.cache_bytes for one in found),
        dram_bytes=math.fsum(one.dram_bytes for one in found),
    )


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_together_take_no_less(target: str) -> None:
    """Whatever is shared out over kernels: their sum is never below the least."""
    device, rng = find(target), random.Random(7)
    for _ in range(300):
        kernels = [_kernel(rng) for _ in range(rng.randint(1, 9))]
        operations: dict[Pipe, float] = {}
        for work in kernels:
            for pipe, count in work.operations.items():
                operations[pipe] = operations.get(pipe, 0.0) + count
        accesses = [access for work in kernels for access in work.accesses]
        spent = math.fsum(predict(work, device).seconds for work in kernels)
        fewest = rng.randint(1, len(kernels))
        least = least_joint_seconds(
            device, _moved(accesses, device), operations, kernels=fewest
        )
        assert least <= spent * (1 + 1e-12)


@pytest.mark.parametrize("slower", ["l1_bytes_per_second", "l2_bytes_per_second"])
def test_a_cache_that_is_slower_than_the_next_level_is_no_gain(slower: str) -> None:
    """A calibrated device may say so; what kernels pass by costs no more then."""
    device = replace(find("cpu"), **{slower: 1e9})
    work = Work(accesses=tuple(read(MIB) for _ in range(8)))
    moved = _moved(list(work.accesses), device)
    least = least_joint_seconds(device, moved, {}, kernels=1)
    assert least <= predict(work, device).seconds


def test_caches_hold_so_much_in_each_kernel() -> None:
    """What is too much for one kernel takes longer, or more kernels."""
    device = find("cpu")
    room = device.l1_bytes * device.multiprocessors

    def seconds(nbytes: int) -> float:
        moved = Moved(private_bytes=float(nbytes))
        return least_joint_seconds(device, moved, {}, kernels=1)

    launch = least_launch_seconds(device)
    assert seconds(room) == pytest.approx(launch + room / device.l1_bytes_per_second)
    rest = MIB / device.l2_bytes_per_second
    small = (
        launch
        + room / device.l1_bytes_per_second
        + min(rest, launch + MIB / device.l1_bytes_per_second)
    )
    assert seconds(room + MIB) == pytest.approx(small)
    assert seconds(4 * room) == pytest.approx(
        4 * launch + 4 * room / device.l1_bytes_per_second
    )


def test_what_a_device_does_not_keep_is_written_to_main_memory() -> None:
    """Reads may come from a cache, writes of the same tensor may not."""
    gpu, cpu = find("sm_90"), find("cpu")
    assert least_moved(MIB, gpu).dram_bytes == 0
    assert least_moved(MIB, gpu, is_write=True).dram_bytes == MIB
    assert least_moved(MIB, cpu, is_write=True) == least_moved(MIB, cpu)
    assert least_moving_seconds(MIB, gpu) < least_moving_seconds(
        MIB, gpu, is_write=True
    )
