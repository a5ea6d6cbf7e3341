"""What one kernel launch does, counted: the model's only input beside a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Pipe(StrEnum):
    """An execution pipe with a throughput of its own."""

    FMA32 = "fma32"
    """Single-precision add, multiply, fused multiply-add, compare, select."""
    FMA64 = "fma64"
    FMA16 = "fma16"
    SPECIAL = "special"
    """Reciprocal, square root, exponential, logarithm: one hardware step each."""
    INTEGER = "integer"
    CONVERT = "convert"
    """Conversions between dtypes of different width or kind."""
    TENSOR = "tensor"
    """Matrix units, for operands of 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Requests for sectors that the same multiprocessor has asked for before.

    Attributes:
        distance_bytes: distinct bytes, of all operands, that a block touches between
            two requests for one sector.
        requested_bytes: sector bytes of such requests, of all blocks together.

    Source: R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM
    Systems Journal 9(2), 1970: a request hits where no more than the cache holds was
    touched since the last one for the same data.
    """

    distance_bytes: int
    requested_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Traffic of one tensor operand of a kernel.

    Attributes:
        unique_bytes: distinct bytes that the kernel needs of the tensor.
        sector_bytes: distinct bytes of the memory sectors that hold them (at least
            `unique_bytes`): what DRAM moves when every sector is fetched once.
        requested_bytes: sector bytes that all threads together ask of the cache
            hierarchy, re-reads included (at least `sector_bytes`).
        is_write: whether the kernel writes the tensor.
        useful_bytes: the part of `requested_bytes` that threads really use, re-reads
            included; less than it when accesses do not coalesce. 0: all of them.
        reuse: those of the requests beyond the first for each sector whose distance is
            known; the others are made by other blocks, or nothing is known of them.
        tensor: what the caller calls the operand; it decides nothing here.
    """

    unique_bytes: int
    sector_bytes: int
    requested_bytes: int
    is_write: bool = False
    useful_bytes: int = 0
    reuse: tuple[Reuse, ...] = ()
    tensor: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryOperator:
    """One of the operators that a library call runs, one after the other.

    Attributes:
        operations: its arithmetic by pipe, what it fuses included.
        operand_bytes: distinct bytes of the call's own operands that it touches; with
            the same of the other operators they share out the call's accesses.
        internal_bytes: bytes of intermediate tensors of the call that it reads from
            memory or writes to it, and of what it moves a second time.
    """

    operations: Mapping[Pipe, float] = field(
        default_factory=lambda: MappingProxyType({})
    )
    operand_bytes: int = 0
    internal_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Counted work of one launch.

    Attributes:
        accesses: one entry per tensor operand, reads and writes.
        operations: operations of the whole launch by pipe (an FMA counts as one).
        blocks: thread blocks (work-groups) of the grid.
        block_threads: threads (work-items) per block.
        registers_per_thread: 32-bit registers, estimated or from a compiler.
        shared_bytes_per_block: on-chip memory per block.
        barriers_per_block: block-wide barriers that one block executes in sequence.
        shuffles_per_thread: sub-group exchange steps that one thread executes.
        bytes_in_flight_per_thread: bytes of independent loads that one thread has
            outstanding at once.
        spill_bytes_per_thread: local-memory bytes stored and loaded back per thread.
        operators: what a library call runs, in order; empty for a kernel of ours.
            Library calls pay the library's launch law instead of ours, and count their
            arithmetic by operator.
        compute_share: share of the arithmetic rate that the kernel's own structure
            lets it reach: padded tiles, reads of on-chip memory between products.
            Index arithmetic and conversions are counted as they are.
        hops: how often a core reads or writes on elsewhere than at the next line, among
            more places than its hardware fetches ahead of; of all blocks together.
        is_alone: of a library call, that no kernel of ours runs between it and its next
            run, so that its threads stay awake.
    """

    accesses: tuple[Access, ...]
    operations: Mapping[Pipe, float] = field(
        default_factory=lambda: MappingProxyType({})
    )
    blocks: int = 1
    block_threads: int = 1
    registers_per_thread: int = 16
    shared_bytes_per_block: int = 0
    barriers_per_block: int = 0
    shuffles_per_thread: int = 0
    bytes_in_flight_per_thread: int = 4
    spill_bytes_per_thread: int = 0
    operators: tuple[LibraryOperator, ...] = ()
    compute_share: float = 1.0
    hops: float = 0.0
    is_alone: bool = False

    @property
    def all_operations(self) -> Mapping[Pipe, float]:
        """Arithmetic by pipe; of a library call that of all its operators."""
        if not self.operators:
            return self.operations
        total: dict[Pipe, float] = {}
        for operator in self.operators:
            for pipe, count in operator.operations.items():
                total[pipe] = total.get(pipe, 0.0) + count
        return total

    @property
    def read_bytes(self) -> int:
        """Distinct bytes read."""
        return sum(a.unique_bytes for a in self.accesses if not a.is_write)

    @property
    def written_bytes(self) -> int:
        """Distinct bytes written."""
        return sum(a.unique_bytes for a in self.accesses if a.is_write)
