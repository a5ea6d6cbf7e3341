"""How many registers a compiler will give a thread: a fitted formula of few facts.

What a compiler takes when it has enough was fitted by least absolute deviations to
1,193 kernels (the plans of the model zoo, the corpus of the accuracy run, random
graphs, and rings of values that are alive at once) that NVRTC 13 compiled for sm_80.
What it cannot do without follows from the data flow; `benchmarks/registers.py` judges
both on kernels of three architectures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

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

_NEEDED_BASE: Final = 2
"""The position and the counter of a loop; pointers are read again from constant memory.

Fitted to the first half of the kernels of `benchmarks/registers.py` on sm_80, by the
best harmonic mean of recall and precision; the second half judges it."""


class Computed(NamedTuple):
    """A value of a straight piece of text.

    Attributes:
        needs: values that it is computed from, itself not among them.
        size: 32-bit registers that it takes.
    """

    needs: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What decides the registers of one thread.

    Attributes:
        tensors: pointer arguments that it reads or writes through.
        live: most 32-bit values alive at once in the order of the text.
        least: the same in the order that needs fewest; asked where `live` is too many.
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
    least: int | None = None
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
        live = self.live if self.least is None else min(self.live, self.least)
        return float(_NEEDED_BASE + live + self.kept)


def registers(pressure: Pressure, limit: int) -> int:
    """Estimate for one thread; above `limit` by as much as will be spilled.

    Args:
        pressure: facts about the text.
        limit: registers that the launch leaves to a thread.
    """
    if pressure.needed > limit:
        return math.ceil(pressure.needed)
    return round(min(max(pressure.usual, float(_UNIT)), float(limit)))


def least_live(values: Mapping[int, Computed]) -> int:
    """Most registers alive at once, in an order that a compiler short of them finds.

    What is read, or computed from nothing that is here, waits until it is needed.
    Among what can be computed, that is taken which leaves fewest registers occupied
    (list scheduling for register pressure: J. Goodman, W. Hsu, "Code scheduling and
    register allocation in large basic blocks", ICS 1988).

    Args:
        values: in the order of the text; what they need and is not among them is
            alive throughout, and counted by the caller. What nothing here reads is
            stored or added up at once.
    """
    return _Scheduling(values).run()


class _Scheduling:
    """One run of `least_live`."""

    def __init__(self, values: Mapping[int, Computed]) -> None:
        self.values = values
        self.needs = {
            name: tuple(n for n in dict.fromkeys(value.needs) if n in values)
            for name, value in values.items()
        }
        self.readers: dict[int, list[int]] = {name: [] for name in values}
        for name, needs in self.needs.items():
            for need in needs:
                self.readers[need].append(name)
        self.unread = {name: len(found) for name, found in self.readers.items()}
        self.place = {name: place for place, name in enumerate(values)}
        self.waits = {
            name: sum(bool(self.needs[need]) for need in needs)
            for name, needs in self.needs.items()
        }
        self.there: set[int] = set()
        self.alive = self.peak = 0

    def run(self) -> int:
        """Compute everything, cheapest first."""
        ready = {
            name
            for name, needs in self.needs.items()
            if not self.waits[name] and (needs or not self.readers[name])
        }
        while ready:
            name = min(ready, key=self._growth)
            ready.discard(name)
            self._compute(name)
            for reader in self.readers[name]:
                self.waits[reader] -= 1
                if not self.waits[reader]:
                    ready.add(reader)
        return self.peak

    def _growth(self, name: int) -> tuple[int, int]:
        """Registers that are occupied more once a value is there, and its place."""
        grown = self.values[name].size
        for need in self.needs[name]:
            size = self.values[need].size
            grown += size * (need not in self.there)
            grown -= size * (self.unread[need] == 1)
        return grown, self.place[name]

    def _compute(self, name: int) -> None:
        for need in (*self.needs[name], name):
            if need not in self.there:
                self.there.add(need)
                self.alive += self.values[need].size
        self.peak = max(self.peak, self.alive)
        for need in self.needs[name]:
            self.unread[need] -= 1
            if not self.unread[need]:
                self.alive -= self.values[need].size
        if not self.unread[name]:
            self.alive -= self.values[name].size


def thread_limit(per_multiprocessor: int, block_threads: int, most: int) -> int:
    """Registers of a thread when one block must fit on a multiprocessor."""
    share = per_multiprocessor // max(1, block_threads)
    return min(most, max(share // _UNIT * _UNIT, _UNIT))
