"""What the order of kernels changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_model.catalog import cpu, find
from cost_model.estimate import Estimate
from cost_model.roofline import predict
from cost_model.sequence import residency, whole_seconds
from cost_model.work import Access, Work

MIB = 1 << 20
H100 = find("h100-sxm")


def kernel(reads: dict[str, int], writes: dict[str, int]) -> Work:
    """A kernel that streams named tensors of so many bytes."""
    accesses = [operand(name, size) for name, size in reads.items()]
    accesses += [
        replace(operand(name, size), is_write=True) for name, size in writes.items()
    ]
    return Work(
        accesses=tuple(accesses),
        blocks=4096,
        block_threads=256,
        bytes_in_flight_per_thread=64,
    )


def operand(name: str, size: int) -> Access:
    """A tensor read once."""
    return Access(
        unique_bytes=size, sector_bytes=size, requested_bytes=size, tensor=name
    )


def test_a_consumer_next_to_its_producer_finds_its_input() -> None:
    """Between them nothing evicts it; with a large kernel in between it is gone."""
    make = kernel({"x": 8 * MIB}, {"t": 16 * MIB})
    use = kernel({"t": 16 * MIB}, {"y": 8 * MIB})
    wash = kernel({"big": 200 * MIB}, {"other": 200 * MIB})
    beside = residency([make, use, wash], H100)
    apart = residency([make, wash, use], H100)
    assert beside[1][0] == 1.0
    assert apart[2][0] == 0.0
    assert whole_seconds([make, use, wash], H100) < whole_seconds(
        [make, wash, use], H100
    )


def test_part_of_a_tensor_may_be_left() -> None:
    """A cache of 50 MiB keeps what of 40 MiB another 20 MiB did not evict."""
    works = [kernel({"a": 40 * MIB}, {}), kernel({"b": 20 * MIB}, {})]
    (held,), _ = residency(works, H100)
    assert held == pytest.approx(30 / 40)


def test_a_tensor_beyond_the_cache_is_never_found() -> None:
    """Walked from its start, it evicts its own parts just before they are needed."""
    works = [kernel({"a": 80 * MIB}, {}), kernel({"a": 80 * MIB}, {})]
    assert residency(works, H100) == ((0.0,), (0.0,))


def test_the_next_run_finds_what_this_one_left() -> None:
    """One small kernel, run again and again, works from the cache."""
    (held,) = residency([kernel({"a": 4 * MIB}, {"b": 4 * MIB})], H100)
    assert held == (1.0, 1.0)


def test_operands_without_names_are_strangers() -> None:
    """Two kernels share nothing that they do not name."""
    work = kernel({"": 8 * MIB}, {})
    wash = kernel({"": 100 * MIB}, {})
    assert residency([work, wash, work], H100)[2] == (0.0,)


def test_ideal_counts_bytes_whatever_the_order() -> None:
    """On `ideal` there is no cache."""
    works = [kernel({"a": MIB}, {"b": MIB}), kernel({"b": MIB}, {"c": MIB})]
    total = sum(predict(work, find("ideal")).seconds for work in works)
    assert whole_seconds(works, find("ideal")) == pytest.approx(total)


def spilling(registers: int) -> Estimate:
    """A large kernel of 256 threads a block with so many registers."""
    work = replace(
        kernel({"a": 400 * MIB}, {"b": 400 * MIB}), registers_per_thread=registers
    )
    return predict(work, find("sm_80"))


def test_spills_have_seconds_of_their_own() -> None:
    """None without spills, more the more is spilled, and part of the whole."""
    none, some, many = (spilling(count) for count in (64, 300, 400))
    assert none.spill_seconds == 0.0
    assert 0.0 < some.spill_seconds < many.spill_seconds < many.seconds


@pytest.mark.parametrize("device", [H100, cpu()], ids=["gpu", "cpu"])
def test_terms_add_up(device: object) -> None:
    """Launch, memory, compute and latency, less what is hidden, are the time."""
    work = kernel({"a": 30 * MIB}, {"b": 30 * MIB})
    told = predict(work, device)  # type: ignore[arg-type]
    parts = told.launch_seconds + told.memory_seconds + told.compute_seconds
    parts += told.latency_seconds - told.hidden_seconds
    assert told.seconds == pytest.approx(parts)
    levels = told.dram_seconds + told.l2_seconds + told.l1_seconds
    hidden = device.overlap * min(levels, told.in_flight_seconds)  # type: ignore[attr-defined]
    assert told.memory_seconds == pytest.approx(
        levels + told.in_flight_seconds - hidden
    )
