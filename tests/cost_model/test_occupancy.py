"""Occupancy: what stops the next block from moving in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_model.catalog import cpu, find
from cost_model.occupancy import occupancy
from cost_model.work import Work

MANY = Work(accesses=(), blocks=1 << 20, block_threads=256, registers_per_thread=32)


@pytest.mark.parametrize(
    ("changes", "blocks", "limiter"),
    [
        ({}, 8, "threads"),
        ({"block_threads": 32}, 32, "blocks"),
        ({"registers_per_thread": 64}, 4, "registers"),
        ({"registers_per_thread": 255}, 1, "registers"),
        ({"shared_bytes_per_block": 48 << 10}, 4, "shared"),
        ({"shared_bytes_per_block": 113 << 10}, 2, "shared"),
        ({"shared_bytes_per_block": 114 << 10}, 1, "shared"),
        ({"blocks": 132}, 1, "grid"),
        ({"blocks": 133}, 2, "grid"),
    ],
)
def test_each_resource_limits_in_its_turn(
    changes: dict[str, int], blocks: int, limiter: str
) -> None:
    """Resident blocks on an H100 are those of NVIDIA's occupancy calculator."""
    work = Work(
        **{
            "accesses": (),
            "blocks": MANY.blocks,
            "block_threads": MANY.block_threads,
            "registers_per_thread": MANY.registers_per_thread,
            **changes,
        }  # type: ignore[arg-type]
    )
    found = occupancy(work, find("sm_90"))
    assert (found.blocks, found.limiter) == (blocks, limiter)


def test_registers_are_given_out_by_the_sub_group() -> None:
    """33 registers take the room of 40: 1280 for each warp, not 1056."""
    found = occupancy(replace(MANY, registers_per_thread=33), find("sm_90"))
    assert found.blocks == 65536 // (8 * 1280)


def test_resident_threads_are_whole_sub_groups() -> None:
    """A block of 33 threads takes the room of 64."""
    found = occupancy(replace(MANY, block_threads=33), find("a100"))
    assert found.threads == 32 * 64
    assert found.fraction == 1.0


def test_a_kernel_that_does_not_fit_is_priced_as_one_block() -> None:
    """Refusing it is not the model's business."""
    found = occupancy(replace(MANY, shared_bytes_per_block=1 << 20), find("sm_90"))
    assert (found.blocks, found.limiter) == (1, "shared")


def test_a_core_runs_one_work_group_at_a_time() -> None:
    """On a CPU neither registers nor threads limit."""
    found = occupancy(replace(MANY, registers_per_thread=200), cpu())
    assert (found.blocks, found.limiter) == (1, "blocks")


def test_a_register_too_many_is_stored_and_loaded() -> None:
    """Beyond 255 each register costs 8 bytes of local memory traffic."""
    work = replace(MANY, registers_per_thread=257, spill_bytes_per_thread=4)
    found = occupancy(work, find("sm_90"))
    assert (found.registers, found.spill_bytes) == (255, 20)
