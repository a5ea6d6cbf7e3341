"""Predictions: each term alone, and published figures."""

from __future__ import annotations

import time
import timeit
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import cpu, find
from cost_model.device_file import load_device
from cost_model.estimate import Estimate, Evidence
from cost_model.roofline import lower_bound, predict
from cost_model.work import Access, LibraryOperator, Pipe, Reuse, Work
from tests.cost_model.builders import H100_TABLE, copy, gpu, read, write

if TYPE_CHECKING:
    from cost_model.device import LaunchMode

MIB = 1 << 20
FULL = Work(
    accesses=(), blocks=132 * 8, block_threads=256, bytes_in_flight_per_thread=64
)
"""One full wave on an H100, without any work in it."""


def test_h100_copies_follow_the_published_table() -> None:
    """The bandwidth of a copy is within 15 % of the published one at every size."""
    for nbytes, published in H100_TABLE:
        seconds = predict(copy(nbytes), find("sm_90")).seconds
        assert nbytes / seconds / 2**30 == pytest.approx(published, rel=0.15), nbytes


A6000 = load_device("""
    base = "rtx-3090"
    id = "rtx-a6000"
    name = "NVIDIA RTX A6000"
    multiprocessors = 84
    clock_hertz = 1.41e9
    dram_peak_bytes_per_second = 768e9
    dram_bytes_per_second = 691e9
    l2_bytes_per_second = 1.92e12
    l2_bytes = 6291456
""")


def test_a_transposed_read_is_kept_apart_from_its_reduction() -> None:
    """Transposing first is at least 3 times cheaper than a strided row reduction.

    Rows of 32 floats lie 512 bytes apart in a 1500x32x128 tensor. Apart, a tiled
    transpose moves it once each way and the reduction reads it once; fused, each lane
    asks for a sector of 32 bytes to use 4 of them.
    """
    elements = 1500 * 32 * 128
    whole, rows = 4 * elements, 1500 * 128
    reduced = write(4 * rows)
    transpose = replace(copy(2 * whole), barriers_per_block=1)
    row_reduction = Work(
        accesses=(read(whole), reduced),
        operations={Pipe.FMA32: elements},
        blocks=rows // 8,
        block_threads=256,
        shuffles_per_thread=5,
    )
    strided = replace(read(whole), requested_bytes=32 * elements, useful_bytes=whole)
    fused = replace(row_reduction, accesses=(strided, reduced))
    apart = predict(transpose, A6000).seconds + predict(row_reduction, A6000).seconds
    assert predict(fused, A6000).seconds > 3 * apart
    assert apart == pytest.approx(105e-6, rel=0.15)


def test_ideal_counts_distinct_bytes_and_nothing_else() -> None:
    """On `ideal` a byte is a picosecond, whatever else a kernel does."""
    strided = Access(unique_bytes=100, sector_bytes=800, requested_bytes=9000)
    work = Work(
        accesses=(strided, write(50)),
        operations={Pipe.FMA32: 1e12},
        barriers_per_block=9,
        operators=(LibraryOperator(),) * 3,
    )
    estimate = predict(work, find("ideal"))
    assert estimate.seconds == pytest.approx(150e-12)
    assert lower_bound(work, find("ideal")) == pytest.approx(150e-12)


def test_evidence_is_passed_on() -> None:
    """An estimate says what its counts rest on."""
    estimate = predict(FULL, gpu(), evidence=Evidence.COMPILED)
    assert estimate.evidence is Evidence.COMPILED
    assert predict(FULL, gpu()).evidence is Evidence.ANALYTIC


def test_an_empty_kernel_costs_its_launch() -> None:
    """Launch alone: by mode, and nothing else is left in the estimate."""
    device = gpu()
    for mode, seconds in (("stream", 5.0e-6), ("graph", 2.0e-6)):
        estimate = _in_mode(FULL, mode)
        assert estimate.seconds == estimate.launch_seconds == seconds
        assert estimate.bound_by == "launch"
    assert device.launch_seconds == 5.0e-6


def _in_mode(work: Work, mode: str) -> Estimate:
    known: dict[str, LaunchMode] = {"stream": "stream", "graph": "graph"}
    return predict(work, gpu(), launch_mode=known[mode])


def test_a_library_call_has_a_launch_law_of_its_own() -> None:
    """A call costs a fixed time and one more for each operator inside."""
    device = gpu(library_launch_seconds=20e-6, library_operator_seconds=3e-6)
    for calls in (1, 2, 5):
        work = replace(FULL, operators=(LibraryOperator(),) * calls)
        estimate = predict(work, device)
        assert estimate.seconds == pytest.approx(20e-6 + calls * 3e-6)
    recorded = predict(work, device, launch_mode="graph")
    assert recorded.seconds == pytest.approx(20e-6 + 5 * device.graph_launch_seconds)


def test_what_passes_through_memory_inside_a_library_is_paid() -> None:
    """Large intermediates go to main memory, small ones through the cache."""
    device = gpu()

    def passing_on(nbytes: int) -> Work:
        return replace(FULL, operators=(LibraryOperator(internal_bytes=nbytes),) * 2)

    large, small = (predict(passing_on(n), device) for n in (1 << 29, 1 << 19))
    assert large.memory_seconds == pytest.approx(
        (1 << 30) / device.dram_bytes_per_second
    )
    assert small.memory_seconds == pytest.approx((1 << 20) / device.l2_bytes_per_second)
    assert (large.dram_bytes, small.dram_bytes) == (1 << 30, 0)


def test_operators_of_a_library_call_hide_nothing_of_each_other() -> None:
    """What one computes does not overlap what the next one moves."""
    device = gpu(overlap=1.0)
    product = LibraryOperator(operations={Pipe.FMA32: 1e11})
    copy = LibraryOperator(internal_bytes=1 << 30)
    alone = [predict(replace(FULL, operators=(o,)), device) for o in (product, copy)]
    both = predict(replace(FULL, operators=(product, copy)), device)
    fixed = device.library_launch_seconds
    assert both.seconds == pytest.approx(sum(e.seconds for e in alone) - fixed)
    assert both.hidden_seconds == 0.0


def test_an_operator_on_several_threads_wakes_them_first() -> None:
    """Small operators run where they are; larger ones wake sleeping threads, once."""
    device = gpu(library_wake_seconds=25e-6, library_serial_bytes=1 << 16)
    for nbytes, seconds in ((1 << 16, 0.0), (1 << 17, 25e-6)):
        operators = (LibraryOperator(internal_bytes=nbytes),) * 3
        estimate = predict(replace(FULL, operators=operators), device)
        fixed = device.library_launch_seconds + 3 * device.library_operator_seconds
        assert estimate.launch_seconds == pytest.approx(fixed + seconds)
        alone = predict(replace(FULL, operators=operators, is_alone=True), device)
        assert alone.launch_seconds == pytest.approx(fixed)


def test_a_library_moves_bytes_at_a_rate_of_its_own() -> None:
    """In the caches its operators reach a share of the bandwidth of copies."""
    work = replace(FULL, operators=(LibraryOperator(internal_bytes=1 << 20),))
    full, half = (
        predict(work, gpu(library_memory_efficiency=share)).memory_seconds
        for share in (1.0, 0.5)
    )
    assert half == pytest.approx(2 * full)


def test_large_operands_are_bound_by_main_memory() -> None:
    """Bytes over the reached rate, reads and writes alike."""
    device = gpu()
    estimate = predict(copy(1 << 30), device)
    assert estimate.bound_by == "dram"
    assert estimate.dram_bytes == 1 << 30
    assert estimate.memory_seconds == pytest.approx(
        (1 << 30) / device.dram_bytes_per_second, rel=0.01
    )


def test_an_input_that_fits_comes_from_the_cache() -> None:
    """A small input costs the last-level cache's rate, one beyond it main memory's."""
    device = gpu(l2_bytes_per_second=10e12)
    small = predict(replace(FULL, accesses=(read(8 * MIB),)), device)
    large = predict(replace(FULL, accesses=(read(64 * MIB),)), device)
    assert (small.dram_bytes, large.dram_bytes) == (0, 64 * MIB)
    assert large.memory_seconds / small.memory_seconds > 8 * 3


def test_re_reads_of_a_large_tensor_pay_the_last_level_cache() -> None:
    """Asking twice for the same bytes costs less than twice, but not nothing."""
    device = gpu()
    once = predict(replace(FULL, accesses=(read(512 * MIB),)), device)
    again = replace(read(512 * MIB), requested_bytes=1024 * MIB)
    twice = predict(replace(FULL, accesses=(again,)), device)
    assert twice.l2_seconds - once.l2_seconds == pytest.approx(
        512 * MIB / device.l2_bytes_per_second
    )
    waited = twice.in_flight_seconds - once.in_flight_seconds
    extra = twice.memory_seconds - once.memory_seconds
    visible = (1 - device.overlap) * waited
    assert extra == pytest.approx(512 * MIB / device.l2_bytes_per_second + visible)
    assert twice.dram_bytes == once.dram_bytes


def test_re_reads_within_a_block_hit_its_own_cache() -> None:
    """A row that fits on chip is read again for next to nothing."""
    row = 16 << 10
    whole = read(FULL.blocks * row)
    twice = replace(whole, requested_bytes=2 * FULL.blocks * row)
    again = Reuse(distance_bytes=row, requested_bytes=FULL.blocks * row)
    known = replace(twice, reuse=(again,))
    once = predict(replace(FULL, accesses=(whole,)), gpu())
    near = predict(replace(FULL, accesses=(known,)), gpu())
    far = predict(replace(FULL, accesses=(twice,)), gpu())
    assert near.cache_bytes == once.cache_bytes < far.cache_bytes
    wide = replace(known, reuse=(replace(again, distance_bytes=1 << 20),))
    assert predict(replace(FULL, accesses=(wide,)), gpu()).seconds == far.seconds


def test_a_small_tensor_is_broadcast_from_the_nearest_cache() -> None:
    """A bias that all rows read costs neither main memory nor the last level."""
    bias = replace(read(4096), requested_bytes=4096 * 100_000)
    estimate = predict(replace(FULL, accesses=(bias,)), gpu())
    assert estimate.dram_bytes == 0
    assert estimate.cache_bytes == 4096
    assert estimate.memory_seconds < 100e-6


@pytest.mark.parametrize("is_write", [False, True])
def test_requests_that_do_not_coalesce_move_bursts(is_write: bool) -> None:
    """Reads and writes alike pay for what they touch and do not use."""
    nbytes = 1 << 30
    whole = replace(read(nbytes), is_write=is_write)
    strided = replace(whole, requested_bytes=8 * nbytes, useful_bytes=nbytes)
    good = predict(replace(FULL, accesses=(whole,)), gpu())
    bad = predict(replace(FULL, accesses=(strided,)), gpu())
    assert bad.memory_seconds > 8 * good.memory_seconds
    assert bad.dram_bytes > 8 * good.dram_bytes


def test_sectors_touched_in_part_move_whole() -> None:
    """Every second element of a tensor costs as much as all of them."""
    whole = read(1 << 30)
    sparse = replace(whole, unique_bytes=1 << 29)
    device = gpu()
    assert (
        predict(replace(FULL, accesses=(sparse,)), device).memory_seconds
        == predict(replace(FULL, accesses=(whole,)), device).memory_seconds
    )


def test_gathers_on_a_cpu_wait_for_each_line() -> None:
    """A transposed read that fits in the cache is still many times slower."""
    nbytes = 4 * MIB
    strided = replace(read(nbytes), requested_bytes=16 * nbytes, useful_bytes=nbytes)
    work = Work(accesses=(read(nbytes), write(nbytes)), blocks=4096, block_threads=256)
    apart = predict(work, cpu()).seconds
    fused = predict(replace(work, accesses=(strided, write(nbytes))), cpu()).seconds
    assert 10 < fused / apart < 30


def test_few_bytes_in_flight_cannot_draw_the_bandwidth() -> None:
    """Little's law: halving what each thread has outstanding doubles the time."""
    device = gpu()
    work = replace(
        copy(1 << 30), registers_per_thread=255, bytes_in_flight_per_thread=2
    )
    few = predict(work, device)
    more = predict(replace(work, bytes_in_flight_per_thread=4), device)
    assert few.bound_by == "bytes in flight"
    assert few.memory_seconds == pytest.approx(2 * more.memory_seconds, rel=0.01)


def test_few_blocks_cannot_draw_the_bandwidth() -> None:
    """One block draws what one multiprocessor's port lets through."""
    device = gpu()
    work = replace(copy(1 << 28), blocks=1, bytes_in_flight_per_thread=4096)
    estimate = predict(work, device)
    port = (1 << 28) / device.multiprocessor_bytes_per_second
    assert estimate.dram_seconds + estimate.l2_seconds == pytest.approx(port)
    visible = (1 - device.overlap) * estimate.in_flight_seconds
    assert estimate.memory_seconds == pytest.approx(port + visible)


def test_a_byte_saved_is_worth_something_where_a_kernel_waits() -> None:
    """A small kernel waits for its first bytes; moving fewer is still cheaper."""
    device = gpu()
    work = replace(copy(1 << 15), blocks=8, block_threads=128)
    more = replace(work, accesses=(*work.accesses, read(1 << 14)))
    wide = replace(more, bytes_in_flight_per_thread=8)
    few = predict(replace(work, bytes_in_flight_per_thread=4), device)
    many = predict(wide, device)
    assert few.in_flight_seconds > few.dram_seconds + few.l2_seconds
    assert many.in_flight_seconds == pytest.approx(few.in_flight_seconds)
    assert many.seconds > few.seconds


def test_one_sector_is_waited_for_with_the_first_read() -> None:
    """A scalar that all threads read at once makes no kernel wait twice."""
    device = gpu()
    work = replace(copy(1 << 15), blocks=8, block_threads=128)
    more = replace(work, accesses=(*work.accesses, read(4)))
    alone, scaled = predict(work, device), predict(more, device)
    assert scaled.in_flight_seconds == alone.in_flight_seconds
    assert scaled.latency_seconds == alone.latency_seconds


def test_the_busiest_pipe_decides_on_a_gpu() -> None:
    """Pipes run side by side: the sum costs what the greatest costs."""
    device = gpu()
    one = replace(FULL, operations={Pipe.SPECIAL: 1e9})
    both = replace(FULL, operations={Pipe.SPECIAL: 1e9, Pipe.FMA32: 7e9})
    estimate = predict(both, device)
    assert estimate.bound_by == "special"
    assert estimate.compute_seconds == predict(one, device).compute_seconds
    rate = device.operations_per_second[Pipe.SPECIAL]
    assert estimate.compute_seconds == pytest.approx(1e9 / rate)


def test_pipes_of_a_cpu_share_their_ports() -> None:
    """On a CPU the work of all pipes adds up."""
    device = cpu()
    work = Work(accesses=(), blocks=2, block_threads=256)
    parts = [{Pipe.SPECIAL: 1e9}, {Pipe.FMA32: 7e9}]
    apart = [predict(replace(work, operations=p), device) for p in parts]
    both = predict(replace(work, operations=parts[0] | parts[1]), device)
    total = sum(estimate.compute_seconds for estimate in apart)
    assert both.compute_seconds == pytest.approx(total)


def test_memory_and_compute_overlap() -> None:
    """Nearly all of the smaller term hides behind the larger."""
    device = gpu()
    estimate = predict(replace(copy(1 << 30), operations={Pipe.FMA32: 1e9}), device)
    visible = estimate.seconds - estimate.launch_seconds - estimate.latency_seconds
    assert visible == pytest.approx(
        estimate.memory_seconds + 0.05 * estimate.compute_seconds
    )


def test_a_block_too_many_costs_a_whole_wave() -> None:
    """133 equal blocks on 132 multiprocessors take as long as 264."""
    device = gpu()
    each = 1e6
    seconds = [
        predict(
            replace(
                FULL,
                blocks=blocks,
                block_threads=1024,
                shared_bytes_per_block=120 << 10,
                operations={Pipe.FMA32: each * blocks},
            ),
            device,
        ).compute_seconds
        for blocks in (132, 133, 264)
    ]
    assert seconds[1] == pytest.approx(2 * seconds[0])
    assert seconds[2] == pytest.approx(2 * seconds[0])


def test_too_few_threads_leave_gaps_in_the_pipes() -> None:
    """A warp alone cannot issue a dependent operation every cycle."""
    device = gpu()
    work = replace(FULL, blocks=132, operations={Pipe.FMA32: 1e9})
    full = predict(replace(work, block_threads=512), device)
    few = predict(replace(work, block_threads=32), device)
    assert few.compute_seconds == pytest.approx(16 * full.compute_seconds)


def test_a_sub_group_that_is_not_full_wastes_lanes() -> None:
    """33 threads take the time of 64."""
    work = replace(FULL, block_threads=2 * 528, operations={Pipe.FMA32: 1e9})
    full = predict(replace(work, block_threads=1024), gpu())
    ragged = predict(replace(work, block_threads=1024 - 31), gpu())
    assert ragged.compute_seconds == pytest.approx(full.compute_seconds * 1024 / 993)


def test_barriers_of_a_lone_block_are_exposed() -> None:
    """Serial exchanges add up; other resident blocks hide them."""
    device = gpu()
    alone = replace(
        FULL,
        blocks=132 * 64,
        block_threads=1024,
        shared_bytes_per_block=200 << 10,
        barriers_per_block=100,
    )
    hidden = replace(alone, block_threads=128, shared_bytes_per_block=0)
    estimate = predict(alone, device)
    assert estimate.latency_seconds == pytest.approx(64 * 100 * device.barrier_seconds)
    assert estimate.bound_by == "latency"
    assert predict(hidden, device).latency_seconds < estimate.latency_seconds / 10


def test_sub_groups_of_a_processor_reach_a_barrier_one_after_the_other() -> None:
    """Teams that share a block share no time in it; on a GPU they do."""
    for device, factor in ((cpu(), 4), (gpu(), 1)):
        rows = Work(
            accesses=(),
            blocks=1,
            block_threads=device.subgroup_threads,
            barriers_per_block=100,
        )
        wide = replace(rows, block_threads=4 * device.subgroup_threads)
        without = predict(replace(rows, barriers_per_block=0), device).seconds
        alone = predict(rows, device).seconds - without
        four = predict(wide, device).seconds - without
        assert alone == pytest.approx(100 * device.barrier_seconds)
        assert four == pytest.approx(factor * alone)


def test_work_groups_start_while_a_processor_waits_for_memory() -> None:
    """Their starts are instructions: all but a share hides behind traffic."""
    device = cpu()
    moved = Work(accesses=(read(64 * MIB), write(64 * MIB)), blocks=2, block_threads=16)
    many = replace(moved, blocks=20_000)
    starts = 9_999 * device.block_launch_seconds
    added = predict(many, device).seconds - predict(moved, device).seconds
    assert added == pytest.approx((1 - device.overlap) * starts, rel=1e-3)


def test_shuffles_cost_their_latency() -> None:
    """Sub-group exchanges of the first wave are never hidden."""
    device = gpu()
    estimate = predict(replace(FULL, shuffles_per_thread=10), device)
    assert estimate.latency_seconds == pytest.approx(10 * device.shuffle_seconds)


def test_the_first_read_is_waited_for() -> None:
    """A kernel that reads anything waits once for main memory."""
    device = gpu()
    estimate = predict(replace(FULL, accesses=(read(4),)), device)
    assert estimate.latency_seconds == device.dram_latency_seconds


def test_each_work_group_of_a_cpu_costs_its_start() -> None:
    """Ten thousand tiny work-groups cost more than the work in them."""
    device = cpu()
    work = Work(accesses=(), blocks=20_000, block_threads=1)
    estimate = predict(work, device)
    assert estimate.compute_seconds == pytest.approx(
        20_000 / device.multiprocessors * device.block_launch_seconds
    )


def test_spills_are_local_memory_traffic() -> None:
    """Spilled bytes of all threads pass through a cache, as large as they are."""
    device = gpu()
    work = replace(copy(64 * MIB), spill_bytes_per_thread=64)
    spilled, kept = predict(work, device), predict(copy(64 * MIB), device)
    threads = work.blocks * work.block_threads
    assert spilled.spill_bytes == 64
    assert spilled.memory_seconds - kept.memory_seconds == pytest.approx(
        64 * threads / device.l1_bytes_per_second
    )
    heavy = predict(replace(work, spill_bytes_per_thread=1024), device)
    assert heavy.cache_bytes - kept.cache_bytes == 1024 * threads


def test_registers_beyond_the_limit_are_spilled() -> None:
    """A kernel that needs 300 registers pays for 45 of them in local memory."""
    estimate = predict(replace(copy(64 * MIB), registers_per_thread=300), gpu())
    assert (estimate.registers, estimate.spill_bytes) == (255, 45 * 8)


def test_the_estimate_tells_occupancy_and_waves() -> None:
    """Occupancy, what limits it and the number of waves can be read."""
    work = replace(copy(1 << 30), registers_per_thread=128)
    estimate = predict(work, gpu())
    assert estimate.occupancy == 0.25
    assert estimate.occupancy_limiter == "registers"
    assert estimate.waves == pytest.approx(work.blocks / (2 * 132))


def test_a_horizontal_kernel_saves_launches_and_shares_waves() -> None:
    """Two half-empty kernels side by side cost less than one after the other."""
    device = gpu()
    one = replace(FULL, blocks=66, operations={Pipe.FMA32: 1e8})
    side_by_side = replace(one, blocks=132, operations={Pipe.FMA32: 2e8})
    assert predict(side_by_side, device).seconds == pytest.approx(
        predict(one, device).seconds
    )


def test_pricing_is_quick() -> None:
    """A plan asks tens of thousands of prices: each takes 60 us at most."""
    work = replace(copy(64 * MIB), operations={Pipe.FMA32: 1e6, Pipe.SPECIAL: 1e5})
    device = find("sm_90")
    taken = min(
        timeit.repeat(
            lambda: predict(work, device),
            timer=time.process_time,
            number=200,
            repeat=5,
        )
    )
    assert taken / 200 < 60e-6
