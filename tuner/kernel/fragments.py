"""Which thread holds which elements of a matrix product on tensor cores.

The instruction is ``mma.sync.aligned.m16n8k16.row.col`` with factors of 16 bits and
sums of 32. A thread's place in the sub-group is `lane`; with ``group = lane / 4`` and
``member = lane % 4`` it holds, of each operand, pairs of neighbours at

* left: row ``group + row``, terms ``2 member + term`` and the next;
* right: column ``group``, terms ``2 member + term`` and the next;
* sums: row ``group + row``, column ``2 member + column``.

Source: NVIDIA, "Parallel Thread Execution ISA" 9.0, 9.7.14.5.8, "Matrix Fragments for
mma.m16n8k16 with floating point type".
"""

from __future__ import annotations

from typing import Final, NamedTuple

ROWS: Final = 16
COLUMNS: Final = 8
TERMS: Final = 16
LANES: Final = 32
MEMBERS: Final = 4
"""Threads that share a row of a fragment."""
GROUPS: Final = LANES // MEMBERS
PAIR: Final = 2
"""16-bit elements in a register."""


class Place(NamedTuple):
    """Where a register of a thread begins, beside its group and member."""

    row: int
    term: int


LEFT: Final = (Place(0, 0), Place(8, 0), Place(0, 8), Place(8, 8))
"""Registers of the left factor."""
RIGHT: Final = (0, 8)
"""First term of each register of the right factor."""
SUMS: Final = (Place(0, 0), Place(0, 1), Place(8, 0), Place(8, 1))
"""Row and column of each partial sum."""
