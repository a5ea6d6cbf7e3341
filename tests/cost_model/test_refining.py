"""Numbers that are searched for: each is found again from works in which it decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cost_model.calibration import CopySample, calibrate
from cost_model.catalog import cpu
from cost_model.refining import WorkSample, bound_excess, refine, scaled
from cost_model.roofline import lower_bound, predict
from cost_model.work import Access, Pipe, Work
from tests.cost_model.builders import copy, read, write

if TYPE_CHECKING:
    from cost_model.device import Device

MIB = 1 << 20


def scattered(elements: int) -> Work:
    """A transposed read: each element asks for a cache line of its own."""
    nbytes = 4 * elements
    gathered = Access(
        unique_bytes=nbytes,
        sector_bytes=nbytes,
        requested_bytes=16 * nbytes,
        useful_bytes=nbytes,
    )
    return Work(accesses=(gathered, write(nbytes)), blocks=64, block_threads=256)


def arithmetic(pipe: Pipe, operations: float) -> Work:
    """Nothing but operations of one pipe."""
    return Work(
        accesses=(), operations={pipe: operations}, blocks=64, block_threads=256
    )


def exchanges(blocks: int) -> Work:
    """Rows that are reduced by barriers."""
    return Work(
        accesses=(read(64 * blocks),),
        blocks=blocks,
        block_threads=64,
        barriers_per_block=10,
    )


GROUPS = {
    "scattered_share": [scattered(n) for n in (MIB // 4, MIB, 4 * MIB)],
    "operations_per_second.special": [
        arithmetic(Pipe.SPECIAL, n) for n in (1e7, 1e8, 1e9)
    ],
    "barrier_seconds": [exchanges(n) for n in (256, 1024, 4096)],
}


def timed(works: list[Work], device: Device) -> list[WorkSample]:
    """What the works would take on a device."""
    return [WorkSample(work=w, seconds=predict(w, device).seconds) for w in works]


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("factor", [0.4, 1.0, 1.9])
def test_a_number_is_found_again(name: str, factor: float) -> None:
    """A device that differs in one number is found from works where it decides."""
    truth = scaled(cpu(), name, factor)
    found, residuals = refine(cpu(), {name: timed(GROUPS[name], truth)})
    assert residuals[name].median < 0.05
    assert found.digest == cpu().digest or factor != 1.0


def test_one_disturbed_sample_does_not_decide() -> None:
    """The median sample wins over one that took ten times too long."""
    truth = scaled(cpu(), "operations_per_second.special", 0.5)
    samples = timed([arithmetic(Pipe.SPECIAL, 1e8 * k) for k in range(1, 8)], truth)
    samples[0] = replace(samples[0], seconds=10 * samples[0].seconds)
    found, _ = refine(cpu(), {"operations_per_second.special": samples})
    wanted = truth.operations_per_second[Pipe.SPECIAL]
    assert found.operations_per_second[Pipe.SPECIAL] == pytest.approx(wanted, rel=0.1)


def test_a_number_that_does_not_matter_stays() -> None:
    """Samples without barriers leave the cost of a barrier alone."""
    truth = scaled(cpu(), "operations_per_second.special", 0.5)
    samples = timed([arithmetic(Pipe.SPECIAL, 1e8)], truth)
    found, _ = refine(cpu(), {"barrier_seconds": samples})
    assert found.barrier_seconds == cpu().barrier_seconds


def test_refined_devices_keep_the_bound() -> None:
    """Whatever was measured, the calibrated bound lies below it."""
    copies = [
        CopySample(
            moved_bytes=work.read_bytes + work.written_bytes,
            seconds=predict(work, cpu()).seconds,
            blocks=work.blocks,
            block_threads=work.block_threads,
        )
        for work in (copy(1 << shift) for shift in range(14, 28))
    ]
    fast = [WorkSample(work=arithmetic(Pipe.FMA32, 1e9), seconds=1e-4)]
    works = {"operations_per_second.fma32": fast}
    found = calibrate(cpu(), copies=copies, works=works).device
    assert bound_excess(found, fast) <= 0.8 + 1e-9
    assert lower_bound(fast[0].work, found) <= predict(fast[0].work, found).seconds


def test_unknown_numbers_are_refused() -> None:
    """A name that no device has is a mistake of the caller."""
    with pytest.raises(KeyError):
        scaled(cpu(), "bogomips", 2.0)
