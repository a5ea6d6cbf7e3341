"""Costs of columns, some of them known only from below until they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuner.fusion.linear import Marks, Numbers

Settle = Callable[[Sequence[int]], Sequence[float] | None]
"""What columns cost, none less than it was said to cost at least; infinite if they
cannot be chosen. None if time is over."""


class Costs:
    """Costs of columns, some of them known only from below.

    Attributes:
        values: per column; infinite if it cannot be chosen.
        vague: columns that may cost more than that.
        is_over: whether time ended before a column could be asked.
    """

    def __init__(
        self, costs: Sequence[float] | Numbers, vague: Sequence[int], settle: Settle
    ) -> None:
        self.values = np.array(costs, dtype=np.float64)
        self.vague = np.zeros(len(self.values), dtype=np.bool_)
        self.vague[list(vague)] = True
        self._settle = settle
        self.is_over = False

    def extend(self, count: int) -> None:
        """More columns, which cost nothing."""
        self.values = np.concatenate([self.values, np.zeros(count)])
        self.vague = np.concatenate([self.vague, np.zeros(count, dtype=np.bool_)])

    @property
    def possible(self) -> Marks:
        """Columns that can be chosen."""
        return np.isfinite(self.values)

    def settle(self, among: Marks) -> Numbers | None:
        """Ask the vague ones among these; by how much each column became dearer.

        None if there was nothing to ask, or no time.
        """
        asked = np.flatnonzero(self.vague & among)
        found = self._settle(asked.tolist()) if len(asked) else None
        self.is_over = self.is_over or (len(asked) > 0 and found is None)
        if found is None:
            return None
        more = np.zeros(len(self.values))
        more[asked] = np.maximum(0.0, np.asarray(found) - self.values[asked])
        self.values[asked] += more[asked]
        self.vague[asked] = False
        return more
