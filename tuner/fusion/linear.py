"""Values of a 0/1 minimisation: rows that a point must keep, and the best point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Places = NDArray[np.int32]
Marks = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`sum(coefficient * x[column]) >= least`."""

    columns: tuple[int, ...]
    coefficients: tuple[float, ...]
    least: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best point found, and what no point can beat.

    Attributes:
        chosen: columns that are 1; empty when no point was found.
        bound: no feasible point costs less.
        feasible: False if it was proved that there is no point at all.
    """

    chosen: tuple[int, ...]
    bound: float
    feasible: bool = True


NOTHING: Final = Optimum(chosen=(), bound=0.0, feasible=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows as one sparse matrix; the entries of row `i` lie behind `starts[i]`."""

    starts: Places
    columns: Places
    coefficients: Numbers
    least: Numbers

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Rows:
        """Rows that were made one by one."""
        counts = [len(row.columns) for row in rows]
        total = sum(counts)
        columns = (c for row in rows for c in row.columns)
        values = (v for row in rows for v in row.coefficients)
        return cls(
            starts=np.cumsum([0, *counts], dtype=np.int32),
            columns=np.fromiter(columns, dtype=np.int32, count=total),
            coefficients=np.fromiter(values, dtype=np.float64, count=total),
            least=np.asarray([row.least for row in rows], dtype=np.float64),
        )

    def plus(self, more: Rows) -> Rows:
        """These rows and others."""
        return Rows(
            starts=np.concatenate([self.starts, more.starts[1:] + self.starts[-1]]),
            columns=np.concatenate([self.columns, more.columns]),
            coefficients=np.concatenate([self.coefficients, more.coefficients]),
            least=np.concatenate([self.least, more.least]),
        )

    def within(self, kept: Marks) -> tuple[Rows, Marks] | None:
        """The rows without the columns that are 0 now, and which rows they are.

        Rows that any point keeps are left out. None if no point keeps some row.
        """
        entries = kept[self.columns]
        count = len(self.least)
        home = np.repeat(np.arange(count, dtype=np.int32), np.diff(self.starts))[
            entries
        ]
        values = self.coefficients[entries]
        most = np.bincount(home[values > 0], minlength=count)
        taking = np.bincount(home[values < 0], minlength=count)
        if np.any((most == 0) & (self.least > 0)):
            return None
        live = (taking > 0) | (self.least > 0)
        inside = live[home]
        places = np.cumsum(kept, dtype=np.int32) - 1
        counts = np.bincount(home[inside], minlength=count)[live]
        rows = Rows(
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            columns=places[self.columns[entries][inside]].astype(np.int32),
            coefficients=values[inside],
            least=self.least[live],
        )
        return rows, live
