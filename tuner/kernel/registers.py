"""How many registers a compiler will give a thread: a fitted formula of few facts.

Fitted by least absolute deviations to 1,193 kernels (the plans of the model zoo, the
corpus of the accuracy run, random graphs, and rings of values that are alive at once)
that NVRTC 13 compiled for sm_80; `benchmarks/registers.py` judges it on kernels of
three architectures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

FEW_POINTERS: Final = 16
"""Pointers to more tensors are read again from constant memory."""
FEW_LOADS: Final = 16
"""More loads than this are not moved in front of their first use."""
FEW_DIVISIONS: Final = 12
_UNIT: Final = 8
"""Registers are given in eights."""

_BASE: Final = 3.6
_POINTER: Final = 1.4
_LIVE: Final = 0.42
"""A compiler orders values better than the text does."""
_KEPT: Final = 0.9
_STEP: Final = 1.15
_NEIGHBOUR: Final = 1.25
_LOAD: Final = 0.8
_DIVISION: Final = 0.55
_ROW_LOOP: Final = 10.9
_COLUMN_LOOP: Final = 10.2
_PERSISTENT: Final = -10.8
"""A row that is kept is not walked by a loop that a compiler unrolls by four."""
_REPEAT: Final = 6.7
_TRIGONOMETRY: Final = 6.4
"""The slow path of sine and cosine reduces its argument in integers."""
_ERROR_FUNCTION: Final = 4.2
_WIDE: Final = 6.0
"""Positions of 64 bits: an assumption, as no kernel of the fit has them."""

_NEEDED_BASE: Final = 16.0
_NEEDED_LIVE: Final = 0.85
"""Beyond the limit a compiler gives up what it had read ahead, but not live values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What decides the registers of one thread.

    Attributes:
        tensors: pointer arguments that it reads or writes through.
        live: most 32-bit values alive at once in the order of the text.
        kept: values that it keeps from pass to pass.
        steps: steps of its inner loop that a compiler unrolls.
        vector: neighbours that it takes at once.
        loads: loads in one step.
        divisions: divisions and remainders of index arithmetic.
        is_row, is_column: whether it walks a reduction along rows, or columns.
        is_persistent: whether values are kept between passes.
        repeats: whether it takes several rows in turn.
        has_trigonometry, has_error_function: whether the text calls sine, cosine or
            tangent; error function or hyperbolic tangent.
        is_wide: whether positions need 64 bits.
    """

    tensors: int
    live: int
    kept: int
    steps: int
    vector: int
    loads: int
    divisions: int
    is_row: bool
    is_column: bool
    is_persistent: bool
    repeats: bool
    has_trigonometry: bool
    has_error_function: bool
    is_wide: bool

    @property
    def usual(self) -> float:
        """What a compiler takes when it has enough."""
        found = _BASE + _POINTER * min(self.tensors, FEW_POINTERS)
        found += _LIVE * self.live + _KEPT * self.kept
        found += _STEP * self.steps + _NEIGHBOUR * self.vector
        found += _LOAD * min(self.loads, FEW_LOADS)
        found += _DIVISION * min(self.divisions, FEW_DIVISIONS)
        found += _ROW_LOOP * self.is_row + _COLUMN_LOOP * self.is_column
        found += _PERSISTENT * self.is_persistent + _REPEAT * self.repeats
        found += _TRIGONOMETRY * self.has_trigonometry
        return found + _ERROR_FUNCTION * self.has_error_function + _WIDE * self.is_wide

    @property
    def needed(self) -> float:
        """What it cannot do without; beyond the limit it spills."""
        return _NEEDED_BASE + _NEEDED_LIVE * self.live + self.kept


def registers(pressure: Pressure, limit: int) -> int:
    """Estimate for one thread; above `limit` by as much as will be spilled.

    Args:
        pressure: facts about the text.
        limit: registers that the launch leaves to a thread.
    """
    if pressure.needed > limit:
        return math.ceil(pressure.needed)
    return round(min(max(pressure.usual, float(_UNIT)), float(limit)))


def thread_limit(per_multiprocessor: int, block_threads: int, most: int) -> int:
    """Registers of a thread when one block must fit on a multiprocessor."""
    share = per_multiprocessor // max(1, block_threads)
    return min(most, max(share // _UNIT * _UNIT, _UNIT))
