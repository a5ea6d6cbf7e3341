"""Counted work and device limits in, seconds out: `predict`, and a bound below it.

    seconds = launch + overlapped(memory, compute) + serial latencies

Sources: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual
performance model for multicore architectures", CACM 52(4), 2009; J. D. C. Little,
"A proof for the queuing formula L = lambda W", Operations Research 9(3), 1961, for
bandwidth by bytes in flight; XLA's `gpu_performance_model_base.cc` for the overlap of
memory and compute time.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.estimate import Estimate, Evidence
from cost_model.memory import Traffic, resident_fraction, traffic
from cost_model.occupancy import Occupancy, occupancy
from cost_model.work import LibraryOperator, Pipe, Work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost_model.device import Device, Kind, LaunchMode

IDEAL_SECONDS_PER_BYTE: Final = 1e-12
"""On `ideal` a byte costs a picosecond, and nothing else costs anything."""

LIBRARY_OPERATION_SAVINGS: Final[Mapping[Kind, float]] = MappingProxyType(
    {"gpu": 4.0, "cpu": 1.0, "ideal": 1.0}
)
"""How many times fewer multiplications a library may do than an operator is defined by.

Source: A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR
2016: Winograd F(4x4, 3x3), which cuDNN has, does 4 times fewer. ONNX Runtime's kernels
for processors convolve directly or by a matrix product (`core/mlas/lib/convolve.cpp`,
`ConvolveNCHWc.cpp`), and do all of them.
"""

SCHEDULE_PIPES: Final = frozenset({Pipe.INTEGER, Pipe.CONVERT})
"""Index arithmetic and conversions depend on the schedule and on the compiler; a bound
that holds for all of them leaves both out."""


@dataclass(slots=True)
class _Terms:
    """Seconds of one part of a launch, or of all of it.

    Attributes:
        overlap: share of moving bytes that hides behind waiting for them, or the other
            way round. Not all of it: a kernel that waits still loses what more bytes
            take, or a byte saved would be worth nothing in a small kernel.
    """

    overlap: float = 1.0
    dram: float = 0.0
    cache: float = 0.0
    private: float = 0.0
    in_flight: float = 0.0
    compute: float = 0.0

    @property
    def memory(self) -> float:
        moving = self.dram + self.cache + self.private
        hidden = self.overlap * min(moving, self.in_flight)
        return moving + self.in_flight - hidden

    def visible(self, overlap: float) -> float:
        """Memory and compute time without what hides behind the other."""
        memory = self.memory
        return memory + self.compute - overlap * min(memory, self.compute)

    def add(self, other: _Terms) -> None:
        """What runs afterwards; for parts that wait for no bytes in flight."""
        self.dram += other.dram
        self.cache += other.cache
        self.private += other.private
        self.compute += other.compute


def predict(
    work: Work,
    device: Device,
    *,
    launch_mode: LaunchMode = "stream",
    evidence: Evidence = Evidence.ANALYTIC,
    held: Sequence[float] | None = None,
) -> Estimate:
    """Predicted time of one launch of `work`.

    Args:
        work: the counted work of the launch.
        device: its limits.
        launch_mode: alone in a stream, or inside a recorded graph.
        evidence: what the counts rest on; it is passed on to the estimate.
        held: share of each operand in the last-level cache at the start, see
            `memory.traffic`; None where the kernels before are not known.

    Returns:
        Seconds in all and by term; never less than `lower_bound`.
    """
    if device.kind == "ideal":
        return _ideal(work, evidence)
    launch = _launch_seconds(work, device, launch_mode)
    fit = occupancy(work, device)
    moved = traffic(work, device, fit.blocks, held)
    spilled = 0.0
    waves = max(1, work.blocks) / (fit.blocks * device.multiprocessors)
    if work.operators:
        terms, pipe, visible = _library_terms(work, device, moved)
        latency = device.dram_latency_seconds if work.accesses else 0.0
    else:
        terms, pipe = _kernel_terms(work, device, moved, fit)
        visible = terms.visible(device.overlap)
        if fit.spill_bytes:
            before = visible
            _spill(moved, work, device, fit)
            terms, pipe = _kernel_terms(work, device, moved, fit)
            visible = terms.visible(device.overlap)
            spilled = visible - before
        latency = _latency_seconds(work, device, fit)
    memory, compute = terms.memory, terms.compute
    return Estimate(
        seconds=launch + visible + latency,
        launch_seconds=launch,
        memory_seconds=memory,
        compute_seconds=compute,
        latency_seconds=latency,
        dram_bytes=moved.dram_bytes,
        cache_bytes=moved.cache_bytes,
        occupancy=fit.fraction,
        occupancy_limiter=fit.limiter,
        waves=waves,
        bound_by=_bound_by(launch, terms, latency, pipe),
        registers=fit.registers,
        spill_bytes=fit.spill_bytes,
        evidence=evidence,
        dram_seconds=terms.dram,
        l2_seconds=terms.cache,
        l1_seconds=terms.private,
        in_flight_seconds=terms.in_flight,
        hidden_seconds=memory + compute - visible,
        spill_seconds=spilled,
    )


def lower_bound(
    work: Work, device: Device, *, launch_mode: LaunchMode = "stream"
) -> float:
    """Seconds that no schedule of the same operands and operations can beat.

    Peak rates, distinct bytes once, no latency, and every byte that a cache can hold
    is served by that cache. It never exceeds `predict`, nor a true time.
    """
    nbytes = work.read_bytes + work.written_bytes
    if device.kind == "ideal":
        return IDEAL_SECONDS_PER_BYTE * nbytes
    floor = device.launch_floor_seconds
    savings = 1.0
    if work.operators:
        floor = device.library_floor_seconds
        savings = LIBRARY_OPERATION_SAVINGS[device.kind]
    elif launch_mode == "graph":
        floor = min(floor, device.graph_launch_seconds)
    near = device.l1_bytes * device.multiprocessors if device.keeps_l1 else 0
    memory = max(
        nbytes / device.l1_peak_bytes_per_second,
        (nbytes - near) / device.l2_peak_bytes_per_second,
        (nbytes - device.l2_bytes) / device.dram_peak_bytes_per_second,
    )
    peak = device.peak_operations_per_second
    compute = max(
        (
            count / peak[pipe]
            for pipe, count in work.all_operations.items()
            if pipe not in SCHEDULE_PIPES
        ),
        default=0.0,
    )
    return floor + max(memory, compute / savings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes that have to be moved, by the nearest level that may serve them."""

    private_bytes: float = 0.0
    cache_bytes: float = 0.0
    dram_bytes: float = 0.0


def least_launch_seconds(
    device: Device, *, launch_mode: LaunchMode = "stream", by_library: bool = False
) -> float:
    """What `predict` says at least of a launch that moves no bytes.

    Args:
        device: its limits.
        launch_mode: alone in a stream, or inside a recorded graph.
        by_library: of a library call of one operator, not of a generated kernel.
    """
    if device.kind == "ideal":
        return 0.0
    operators = (LibraryOperator(),) if by_library else ()
    empty = Work(accesses=(), operators=operators)
    launch = _launch_seconds(empty, device, launch_mode)
    if by_library:
        return launch
    start = device.block_launch_seconds
    if device.kind == "cpu":
        start *= 1.0 - device.overlap
    return launch + device.dram_latency_seconds + start


def least_moved(nbytes: int, device: Device, *, is_write: bool = False) -> Moved:
    """Where one operand of so many distinct bytes comes from, or goes to, at best.

    Each byte once, at the nearest cache that may hold the operand; what all operands of
    a kernel together are too much for, other sectors and re-reads only add to it.
    """
    if is_write and not device.caches_writes:
        return Moved(dram_bytes=float(nbytes))
    held = resident_fraction(nbytes, device.l2_bytes) * nbytes
    near = 0.0
    if device.keeps_l1:
        room = device.l1_bytes * device.multiprocessors
        near = min(held, resident_fraction(nbytes, room) * nbytes)
    return Moved(private_bytes=near, cache_bytes=held - near, dram_bytes=nbytes - held)


def least_moving_seconds(
    nbytes: int, device: Device, *, is_write: bool = False
) -> float:
    """What one operand of so many distinct bytes adds to a kernel at least."""
    if device.kind == "ideal":
        return IDEAL_SECONDS_PER_BYTE * nbytes
    return _moved_seconds(least_moved(nbytes, device, is_write=is_write), device)


def least_joint_seconds(
    device: Device,
    moved: Moved,
    operations: Mapping[Pipe, float],
    *,
    kernels: int,
    launch_mode: LaunchMode = "stream",
) -> float:
    """What `predict` says at least of generated kernels that share out some work.

    Let there be `n` kernels, at least `kernels`. Each costs a launch, and what it moves
    and computes less what of one hides behind the other. That is never negative, grows
    with both, is convex and scales with them, so the sum over kernels is no less than
    the same of all that is moved and computed. What is moved is no nearer than `moved`
    says; and of it all kernels together serve no more from a level of caches than `n`
    times what that level holds. So the least over all `n` of

        n launch + visible(moving(n), computing)

    is a bound. The first term grows with `n` as much as the second can fall; the sum is
    convex, so the first `n` at which it stops falling is the best.

    Args:
        device: its limits.
        moved: what has to be moved, each byte at the nearest level that may serve it.
        operations: what has to be computed.
        kernels: no fewer can do the work.
        launch_mode: alone in a stream, or inside a recorded graph.
    """
    if device.kind == "ideal":
        return IDEAL_SECONDS_PER_BYTE * (
            moved.private_bytes + moved.cache_bytes + moved.dram_bytes
        )
    launch = least_launch_seconds(device, launch_mode=launch_mode)
    computing, _ = _busiest(
        operations, device.operations_per_second, device.pipe_overlap
    )

    def total(count: int) -> float:
        moving = _moved_seconds(_within_caches(moved, device, count), device)
        hidden = device.overlap * min(moving, computing)
        return count * launch + moving + computing - hidden

    while total(kernels + 1) < total(kernels):
        kernels += 1
    return total(kernels)


def _within_caches(moved: Moved, device: Device, kernels: int) -> Moved:
    """What so many kernels find in caches: in each kernel no more than they hold."""
    near = min(
        moved.private_bytes, kernels * float(device.l1_bytes * device.multiprocessors)
    )
    cache = moved.private_bytes - near + moved.cache_bytes
    held = min(cache, max(0.0, kernels * float(device.l2_bytes) - near))
    return Moved(
        private_bytes=near, cache_bytes=held, dram_bytes=moved.dram_bytes + cache - held
    )


def _moved_seconds(moved: Moved, device: Device) -> float:
    """At the rate of each level; what is nearer is never slower."""
    dram = device.dram_bytes_per_second
    cache = max(dram, device.l2_bytes_per_second)
    near = max(cache, device.l1_bytes_per_second)
    return (
        moved.private_bytes / near
        + moved.cache_bytes / cache
        + (moved.dram_bytes / dram)
    )


def _ideal(work: Work, evidence: Evidence) -> Estimate:
    nbytes = work.read_bytes + work.written_bytes
    seconds = IDEAL_SECONDS_PER_BYTE * nbytes
    return Estimate(
        seconds=seconds,
        launch_seconds=0.0,
        memory_seconds=seconds,
        compute_seconds=0.0,
        latency_seconds=0.0,
        dram_bytes=float(nbytes),
        cache_bytes=0.0,
        occupancy=1.0,
        occupancy_limiter="none",
        waves=1.0,
        bound_by="dram",
        registers=work.registers_per_thread,
        spill_bytes=0,
        evidence=evidence,
        dram_seconds=seconds,
    )


def _launch_seconds(work: Work, device: Device, launch_mode: LaunchMode) -> float:
    if work.operators:
        each = device.library_operator_seconds
        if launch_mode == "graph":
            # A recorded library call is replayed launch by launch, like ours.
            each = min(each, device.graph_launch_seconds)
        # Threads that were woken once spin until the call ends; where nothing else
        # computes, until the next.
        wakes = not work.is_alone and any(
            one.operand_bytes + one.internal_bytes > device.library_serial_bytes
            for one in work.operators
        )
        woken = wakes * device.library_wake_seconds
        return device.library_launch_seconds + len(work.operators) * each + woken
    if launch_mode == "graph":
        return device.graph_launch_seconds
    return device.launch_seconds


def _spill(moved: Traffic, work: Work, device: Device, fit: Occupancy) -> None:
    """Spilled registers go through the private cache while they fit in it."""
    if not fit.spill_bytes:
        return
    nbytes = float(fit.spill_bytes * work.blocks * work.block_threads)
    # Stored and loaded back: the bytes that must stay resident are half the traffic.
    if fit.threads * fit.spill_bytes / 2 <= device.l1_bytes:
        moved.private_bytes += nbytes
    else:
        moved.cache_bytes += nbytes


def _library_terms(
    work: Work, device: Device, moved: Traffic
) -> tuple[_Terms, str, float]:
    """A library call runs one operator after the other, each on the whole device.

    No waves, no occupancy, one efficiency; and what one operator computes does not
    hide what the next one reads.
    """
    total, visible, seconds_by_pipe = _Terms(), 0.0, dict[str, float]()
    operands = sum(one.operand_bytes for one in work.operators)
    internal = sum(one.internal_bytes for one in work.operators)
    # Written and read back, shared among the operators between the first and last.
    each = internal / (2 * max(1, len(work.operators) - 1))
    kept = resident_fraction(each, device.l2_bytes)
    moved.cache_bytes, cache = 0.0, moved.cache_bytes
    moved.dram_bytes, dram = 0.0, moved.dram_bytes
    efficiency = device.library_memory_efficiency
    for one in work.operators:
        share = one.operand_bytes / operands if operands else 1 / len(work.operators)
        through_cache = share * cache + kept * one.internal_bytes
        through_dram = share * dram + (1.0 - kept) * one.internal_bytes
        moved.cache_bytes += through_cache
        moved.dram_bytes += through_dram
        seconds, pipe = _busiest(
            one.operations, device.peak_operations_per_second, device.pipe_overlap
        )
        seconds_by_pipe[pipe] = seconds_by_pipe.get(pipe, 0.0) + seconds
        private = share * moved.private_bytes
        terms = _Terms(
            dram=through_dram / device.dram_bytes_per_second,
            cache=through_cache / (efficiency * device.l2_bytes_per_second),
            private=private / (efficiency * device.l1_bytes_per_second),
            compute=seconds / device.library_efficiency,
        )
        visible += terms.visible(device.overlap)
        total.add(terms)
    return total, max(seconds_by_pipe, key=lambda p: seconds_by_pipe[p]), visible


def _kernel_terms(
    work: Work, device: Device, moved: Traffic, fit: Occupancy
) -> tuple[_Terms, str]:
    """Whole waves at full strength, then a last one with what is left to run."""
    operations = work.operations
    if work.compute_share != 1.0:
        operations = {
            pipe: count if pipe in SCHEDULE_PIPES else count / work.compute_share
            for pipe, count in operations.items()
        }
    seconds, pipe = _busiest(
        operations, device.operations_per_second, device.pipe_overlap
    )
    blocks = max(1, work.blocks)
    capacity = fit.blocks * device.multiprocessors
    rest = blocks % capacity
    whole = blocks - rest
    terms = _Terms(overlap=device.overlap)
    for part, running in ((whole, capacity), (rest, rest)):
        if part:
            _add_part(terms, work, device, moved, (part / blocks, running, seconds))
    if device.kind == "cpu":
        terms.compute += _serial_seconds(work, device, fit)
    return terms, pipe


def _add_part(
    terms: _Terms,
    work: Work,
    device: Device,
    moved: Traffic,
    part: tuple[float, int, float],
) -> None:
    """Add a share of the launch of which `running` blocks are alive at once."""
    share, running, compute_seconds = part
    count = device.multiprocessors
    active = min(running, count)
    drawn = active * device.multiprocessor_bytes_per_second
    cache_rate = min(device.l2_bytes_per_second, drawn)
    dram_rate = min(device.dram_bytes_per_second, drawn)
    stalls = 1.0 / device.scattered_share - 1.0
    dram = moved.dram_bytes + stalls * moved.scattered_dram_bytes
    cache = moved.cache_bytes + stalls * moved.scattered_cache_bytes
    terms.dram += share * dram / dram_rate
    terms.cache += share * cache / cache_rate
    private_rate = device.l1_bytes_per_second * active / count
    terms.private += share * moved.private_bytes / private_rate
    asked = running * _reading_threads(work, device)
    asked *= max(1, work.bytes_in_flight_per_thread)
    in_flight = max(asked, active * device.prefetched_bytes_per_multiprocessor)
    waited = moved.dram_read_bytes * device.dram_latency_seconds
    waited += moved.cache_read_bytes * device.l2_latency_seconds
    terms.in_flight += share * waited / in_flight
    # The multiprocessor with most blocks ends last; few threads on it leave gaps, and
    # a sub-group that is not full wastes its lanes.
    most = -(-running // count)
    lanes = device.subgroup_threads
    padded = -(-work.block_threads // lanes) * lanes
    fed = min(1.0, most * padded / device.saturation_threads_per_multiprocessor)
    uneven = most * count / running
    wasted = padded / work.block_threads
    terms.compute += share * compute_seconds * uneven * wasted / fed


def _reading_threads(work: Work, device: Device) -> int:
    """Threads of a block that ask at once; on a processor those of one vector."""
    if device.kind == "cpu":
        return min(work.block_threads, device.subgroup_threads)
    return work.block_threads


def _hop_seconds(work: Work, device: Device) -> float:
    """Waiting of one core for lines that nothing fetched ahead.

    By Little's law: as many are on their way as hardware keeps in flight.
    """
    if not work.hops:
        return 0.0
    lines = max(1.0, device.prefetched_bytes_per_multiprocessor / device.sector_bytes)
    return work.hops * device.l2_latency_seconds / lines


def _busiest(
    operations: Mapping[Pipe, float], rates: Mapping[Pipe, float], pipe_overlap: float
) -> tuple[float, str]:
    """Seconds of all pipes together, and the busiest of them."""
    total = 0.0
    most = 0.0
    name = ""
    for pipe, count in operations.items():
        seconds = count / rates[pipe]
        total += seconds
        if seconds > most:
            most, name = seconds, pipe.value
    return most + (1.0 - pipe_overlap) * (total - most), name


def _latency_seconds(work: Work, device: Device, fit: Occupancy) -> float:
    """What nothing hides: the first read, and on a GPU block starts and exchanges.

    On a processor lines that nothing fetched ahead: what depends on them waits, too.
    """
    first = device.dram_latency_seconds if work.accesses else 0.0
    if device.kind == "cpu":
        active = min(max(1, work.blocks), device.multiprocessors)
        return first + _hop_seconds(work, device) / active
    return first + _serial_seconds(work, device, fit)


def _serial_seconds(work: Work, device: Device, fit: Occupancy) -> float:
    """Starts of blocks, and exchanges inside them, one after the other.

    While a block waits at a barrier the other resident blocks run, so in a long launch
    only one wave in `fit.blocks` is exposed; the first always is. On a processor all of
    these are instructions of the core, which takes the sub-groups of a block one after
    the other, each to the next barrier.
    """
    blocks = max(1, work.blocks)
    inside = work.barriers_per_block * device.barrier_seconds
    inside += work.shuffles_per_thread * device.shuffle_seconds
    if device.kind == "cpu":
        inside *= -(-work.block_threads // device.subgroup_threads)
    exposed = max(1.0, blocks / (fit.blocks**2 * device.multiprocessors))
    starts = -(-blocks // device.multiprocessors)
    return inside * exposed + starts * device.block_launch_seconds


def _bound_by(launch: float, terms: _Terms, latency: float, pipe: str) -> str:
    if terms.in_flight > terms.dram + terms.cache + terms.private:
        memory = (terms.in_flight, "bytes in flight")
    else:
        memory = max((terms.dram, "dram"), (terms.cache, "l2"), (terms.private, "l1"))
    compute = (terms.compute, pipe)
    return max((launch, "launch"), memory, compute, (latency, "latency"))[1]
