"""The rows and costs of one piece: everything that is read is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.candidates import Candidate
from tuner.fusion.effort import Effort
from tuner.fusion.linear import Optimum, Row
from tuner.fusion.milp import Minimiser
from tuner.fusion.order import runnable_order
from tuner.fusion.rings import Rings
from tuner.fusion.view import View, bits

SCALE: Final = 1e6
"""Costs are scaled so that the kernels of a piece cost about this much together."""
ROUNDING: Final = 1e-9
TIE: Final = 1e-7
"""Share of that by which all kernels together are made dearer, so that of equally
cheap partitions the one with fewer kernels is taken."""
LEAST_TIE: Final = 2.0**-10
"""Share of a tie that every kernel has; the rest goes by bytes."""


class RefutedError(Exception):
    """A kernel costs less than it was said to cost at least."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A kernel, the seconds that it costs at least, and whether it costs just that."""

    kernel: Candidate
    seconds: float
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Chosen columns of a problem, by position, and what no choice can beat."""

    chosen: tuple[int, ...]
    bound_seconds: float


def at_least(columns: Sequence[int], least: float) -> Row:
    """So many of these columns are chosen."""
    return Row(columns=tuple(columns), coefficients=(1.0,) * len(columns), least=least)


class Problem:
    """Rows and costs of one piece; the first columns are the candidates."""

    def __init__(
        self,
        view: View,
        offers: Sequence[Offer],
        inside: int,
        settle: Callable[[Sequence[Candidate]], list[float] | None],
        effort: Effort,
    ) -> None:
        """Index the kernels; nothing is solved yet.

        Args:
            view: the graph.
            offers: the kernels to choose from, with what they cost at least.
            inside: nodes of the piece.
            settle: says what kernels cost; None if time is over.
            effort: when to stop with what there is.
        """
        self._effort = effort
        self.view = view
        self.kernels = [offer.kernel for offer in offers]
        self.prices = [offer.seconds for offer in offers]
        self.vague = {k for k, offer in enumerate(offers) if not offer.is_exact}
        self.inside = inside
        self._settle = settle
        self.places = {(c.mask, c.outputs): k for k, c in enumerate(self.kernels)}
        self.writers: dict[int, list[int]] = {}
        self.takers: dict[int, list[int]] = {}
        self._index()
        least = self._cheapest_cover()
        self.factor = SCALE / least if least > 0 else 1.0
        self.ties = self._ties()
        self.stored: list[int] = []
        self.rows: list[Row] = []
        self.start: tuple[int, ...] = ()
        self.first: set[int] = set()
        self._minimiser: Minimiser | None = None
        self._rings: Rings | None = None

    def _ties(self) -> list[float]:
        """What decides between equal costs: fewer bytes, then fewer kernels.

        A kernel has a small tie of its own, and a larger one by the bytes that it reads
        of other kernels and writes; none has more than its share of `SCALE * TIE`.
        """
        each = SCALE * TIE / max(1, self.inside.bit_count())
        sizes = self.view.bytes
        moved = [sum(sizes[j] for j in bits(k.needs | k.outputs)) for k in self.kernels]
        most = max(moved, default=0) or 1
        return [each * (LEAST_TIE + (1 - LEAST_TIE) * n / most) for n in moved]

    def _index(self) -> None:
        for k, kernel in enumerate(self.kernels):
            for j in bits(kernel.outputs):
                self.writers.setdefault(j, []).append(k)
            for j in bits(kernel.needs):
                if self.inside >> self.view.maker[j] & 1:
                    self.takers.setdefault(j, []).append(k)

    def _leaves(self, j: int) -> bool:
        """Whether a tensor is in memory in every partition."""
        view = self.view
        return bool(view.delivered >> j & 1 or view.readers[j] & ~self.inside)

    def _cheapest_cover(self) -> float:
        """About what the piece costs: only to scale by."""
        cheapest: dict[int, float] = {}
        for kernel, seconds in zip(self.kernels, self.prices, strict=True):
            share = seconds / kernel.mask.bit_count()
            for i in bits(kernel.mask):
                cheapest[i] = min(share, cheapest.get(i, share))
        return sum(cheapest.values())

    def _cover_rows(self) -> list[Row]:
        holding: dict[int, list[int]] = {i: [] for i in bits(self.inside)}
        for k, kernel in enumerate(self.kernels):
            for i in bits(kernel.mask):
                holding.setdefault(i, []).append(k)
        distinct = dict.fromkeys(tuple(columns) for columns in holding.values())
        return [at_least(columns, 1) for columns in distinct]

    def _flow_rows(self) -> list[Row]:
        """What is read is written; what leaves the piece is written."""
        rows = []
        for j in sorted({*self.writers, *self.takers}):
            writers = self.writers.get(j, [])
            takers = self.takers.get(j, [])
            if self._leaves(j):
                rows.append(at_least(writers, 1))
            elif takers:
                stored = len(self.kernels) + len(self.stored)
                self.stored.append(j)
                rows += [
                    Row(columns=(stored, k), coefficients=(1.0, -1.0), least=0)
                    for k in takers
                ]
                ones = (1.0,) * len(writers)
                rows.append(
                    Row(columns=(*writers, stored), coefficients=(*ones, -1), least=0)
                )
        return rows

    def bound(self) -> float:
        """What no choice can beat, from what kernels cost at least."""
        return max(0.0, self.unscaled(self._ready().bound()))

    def minimise(self) -> Optimum:
        """Solve with the rows so far."""
        return self._ready().solve()

    def _ready(self) -> Minimiser:
        if self._minimiser is None:
            rows = [*self.rows, *self._cover_rows(), *self._flow_rows()]
            costs = [self._scaled(k, price) for k, price in enumerate(self.prices)]
            self._minimiser = Minimiser(
                costs + [0.0] * len(self.stored),
                rows,
                binaries=len(self.kernels),
                vague=sorted(self.vague),
                settle=self._settled,
                first=sorted(self.first),
                effort=self._effort,
            )
        return self._minimiser

    def _scaled(self, k: int, seconds: float) -> float:
        return seconds * self.factor + self.ties[k]

    def _settled(self, columns: Sequence[int]) -> list[float] | None:
        """The scaled costs of columns; they are remembered."""
        found = self._settle([self.kernels[k] for k in columns])
        if found is None:
            return None
        for k, seconds in zip(columns, found, strict=True):
            if seconds < self.prices[k] * (1 - ROUNDING):
                raise RefutedError
            self.prices[k] = seconds
            self.vague.discard(k)
        return [self._scaled(*pair) for pair in zip(columns, found, strict=True)]

    def seconds(self, chosen: Sequence[int]) -> float:
        """Cost of a choice."""
        return sum(self.prices[k] for k in chosen)

    def stuck(self, chosen: Sequence[int]) -> list[int]:
        """Chosen columns, by place in the choice, that wait for each other."""
        kernels = [self.kernels[k] for k in chosen]
        needs = [kernel.needs for kernel in kernels]
        return runnable_order(needs, [kernel.outputs for kernel in kernels])[1]

    def unscaled(self, bound: float) -> float:
        """A bound on the scaled and tie-broken cost, as seconds without the ties.

        The ties of a partition without idle kernels add up to at most `SCALE * TIE`:
        there are no more kernels than nodes.
        """
        return (bound - SCALE * TIE) / self.factor

    def answer(self, found: Optimum) -> Found:
        """The optimum in seconds."""
        seconds = self.seconds(found.chosen)
        bound = min(self.unscaled(found.bound), seconds)
        return Found(chosen=found.chosen, bound_seconds=max(0.0, bound))

    def forbid(self, chosen: Sequence[int], stuck: Sequence[int]) -> None:
        """Cut off kernels that wait for each other."""
        rows, columns = self._ring_rows().forbid(chosen, stuck)
        self._ready().add(rows, columns=columns)

    def put_in_order(self) -> None:
        """Give every tensor that can be part of a ring a place in time."""
        rows, columns = self._ring_rows().put_in_order(lambda: self._effort.is_over)
        self._ready().add(rows, columns=columns, branches=False)

    def _ring_rows(self) -> Rings:
        self._ready()  # the rows of the piece come before those of rings
        if self._rings is None:
            first = len(self.kernels) + len(self.stored)
            self._rings = Rings(self.kernels, self.writers, first=first)
        return self._rings
