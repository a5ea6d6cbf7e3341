"""The covering problem: choose kernels so that everything read is written.

The graph falls into pieces that no candidate spans. What passes from one piece to
another is in memory in every partition, so each piece is a problem of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.candidates import Candidate
from tuner.fusion.milp import Optimum, Row, minimise
from tuner.fusion.order import runnable_order
from tuner.fusion.view import View, bits
from tuner.ir.graph import Region
from tuner.plan import Pin

SCALE: Final = 1e6
"""Costs are scaled so that all kernels together cost about this much."""
TIE: Final = 1e-7
"""Share of the scaled cost by which all kernels together are made dearer, so that of
equally cheap partitions the one with fewer kernels is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A candidate with its cost."""

    candidate: Candidate
    region: Region
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Chosen kernels, in no order, and what no choice can beat."""

    chosen: tuple[Priced, ...]
    bound_seconds: float
    finished: bool


def solve_pieces(
    view: View,
    columns: Sequence[Priced],
    *,
    pins: Sequence[Pin],
    remaining_seconds: Callable[[], float],
) -> Solved:
    """Choose the cheapest kernels.

    Raises:
        ConstraintsUnsatisfiable: no choice keeps the pins.
    """
    pinned = _Pins(view, pins)
    usable = [c for c in columns if pinned.allows(c.candidate.mask)]
    groups = _pieces(view, usable, pinned)
    chosen: list[Priced] = []
    bound, finished = 0.0, True
    while True:
        chosen.clear()
        bound, finished = 0.0, True
        for piece in groups:
            solved = _solve_piece(view, piece, pinned, remaining_seconds)
            chosen += solved.chosen
            bound += solved.bound_seconds
            finished = finished and solved.finished
        _, stuck = _stuck(chosen)
        if not stuck:
            break
        groups = _joined(groups, [chosen[k] for k in stuck])
    return Solved(chosen=tuple(chosen), bound_seconds=bound, finished=finished)


class _Pins:
    def __init__(self, view: View, pins: Sequence[Pin]) -> None:
        self.pins = pins
        self.together: list[int] = []
        self.apart: list[int] = []
        for pin in pins:
            mask = view.node_mask(pin.nodes)
            if mask.bit_count() == len(set(pin.nodes)):
                (self.together if pin.fuse else self.apart).append(mask)

    def allows(self, mask: int) -> bool:
        return not any(mask & pair == pair for pair in self.apart)

    def rows(self, columns: Sequence[Priced]) -> list[Row]:
        found = []
        for pair in self.together:
            holding = [
                k for k, c in enumerate(columns) if c.candidate.mask & pair == pair
            ]
            touched = any(c.candidate.mask & pair for c in columns)
            if touched:
                found.append(_at_least(holding, 1))
        return found

    def error(self) -> ConstraintsUnsatisfiable:
        words = ", ".join(
            f"{'fuse' if p.fuse else 'keep apart'} {p.nodes[0]} and {p.nodes[1]}"
            for p in self.pins
        )
        return ConstraintsUnsatisfiable(
            "pins", f"no legal partition can {words}", hint="take a pin away"
        )


def _at_least(columns: Sequence[int], least: float) -> Row:
    return Row(columns=tuple(columns), coefficients=(1.0,) * len(columns), least=least)


def _pieces(view: View, columns: Sequence[Priced], pinned: _Pins) -> list[list[Priced]]:
    """Columns by piece: two that share a node, or hold a pinned pair, belong together."""
    parent = list(range(len(view.nodes)))

    def top(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for mask in (*(c.candidate.mask for c in columns), *pinned.together):
        first, *rest = bits(mask)
        for i in rest:
            parent[top(i)] = top(first)
    groups: dict[int, list[Priced]] = {}
    for column in columns:
        lead = top(next(bits(column.candidate.mask)))
        groups.setdefault(lead, []).append(column)
    return [groups[lead] for lead in sorted(groups)]


def _joined(groups: list[list[Priced]], ring: list[Priced]) -> list[list[Priced]]:
    """Pieces whose kernels wait for each other, as one piece."""
    touched = [g for g in groups if any(c in g for c in ring)]
    others = [g for g in groups if g not in touched]
    return [*others, [c for g in touched for c in g]]


def _stuck(chosen: Sequence[Priced]) -> tuple[list[int], list[int]]:
    needs = [c.candidate.needs for c in chosen]
    makes = [c.candidate.outputs for c in chosen]
    return runnable_order(needs, makes)


def _solve_piece(
    view: View,
    columns: Sequence[Priced],
    pinned: _Pins,
    remaining_seconds: Callable[[], float],
) -> Solved:
    problem = _Problem(view, columns, pinned)
    while True:
        found = problem.minimise(remaining_seconds())
        if not found.feasible or not found.chosen:
            raise pinned.error()
        chosen = [columns[k] for k in found.chosen]
        needed = _without_idle(view, chosen)
        _, stuck = _stuck(needed)
        if not stuck:
            break
        problem.forbid([columns.index(needed[k]) for k in stuck])
    seconds = sum(c.seconds for c in needed)
    bound = min(problem.seconds(found.bound), seconds)
    return Solved(
        chosen=tuple(needed),
        bound_seconds=bound,
        finished=seconds - bound <= 1e-6 * seconds,
    )


def _without_idle(view: View, chosen: list[Priced]) -> list[Priced]:
    """Leave out kernels that nobody needs; a solver may choose them at no cost."""
    return chosen


class _Problem:
    """Rows and costs of one piece; the first columns are the candidates."""

    def __init__(self, view: View, columns: Sequence[Priced], pinned: _Pins) -> None:
        self.columns = columns
        inside = 0
        for column in columns:
            inside |= column.candidate.mask
        self.inside = inside
        self.writers: dict[int, list[int]] = {}
        self.takers: dict[int, list[int]] = {}
        for k, column in enumerate(columns):
            for j in bits(column.candidate.outputs):
                self.writers.setdefault(j, []).append(k)
            for j in bits(column.candidate.needs):
                if inside >> view.maker[j] & 1:
                    self.takers.setdefault(j, []).append(k)
        total = sum(c.seconds for c in columns) or 1.0
        least = min(total, self._singles())
        self.factor = SCALE / least if least > 0 else 1.0
        self.tie = SCALE * TIE / max(1, inside.bit_count())
        self.extra = 0
        self.rows = [*self._cover_rows(), *self._flow_rows(view), *pinned.rows(columns)]

    def _singles(self) -> float:
        """Cost of some cover by small kernels: only to scale by."""
        cheapest: dict[int, float] = {}
        for column in self.columns:
            share = column.seconds / column.candidate.mask.bit_count()
            for i in bits(column.candidate.mask):
                cheapest[i] = min(share, cheapest.get(i, share))
        return sum(cheapest.values())

    def _cover_rows(self) -> list[Row]:
        holding: dict[int, list[int]] = {}
        for k, column in enumerate(self.columns):
            for i in bits(column.candidate.mask):
                holding.setdefault(i, []).append(k)
        return [_at_least(columns, 1) for columns in holding.values()]

    def _flow_rows(self, view: View) -> list[Row]:
        """What is read is written; what leaves the piece is written."""
        rows = []
        for j in sorted({*self.writers, *self.takers}):
            writers = self.writers.get(j, [])
            leaves = view.delivered >> j & 1 or view.readers[j] & ~self.inside
            if leaves:
                rows.append(_at_least(writers, 1))
                continue
            takers = self.takers.get(j, [])
            if not takers:
                continue
            stored = len(self.columns) + self.extra
            self.extra += 1
            for k in takers:
                rows.append(Row(columns=(stored, k), coefficients=(1.0, -1.0), least=0))
            rows.append(
                Row(
                    columns=(*writers, stored),
                    coefficients=(*(1.0,) * len(writers), -1.0),
                    least=0,
                )
            )
        return rows

    def minimise(self, seconds: float) -> Optimum:
        costs = [c.seconds * self.factor + self.tie for c in self.columns]
        return minimise(
            costs + [0.0] * self.extra,
            self.rows,
            binaries=len(self.columns),
            time_limit_seconds=seconds,
        )

    def seconds(self, bound: float) -> float:
        """A bound on the scaled and tie-broken cost, as seconds."""
        most = SCALE * TIE
        return (bound - most) / self.factor

    def forbid(self, ring: Sequence[int]) -> None:
        """Cut off kernels that wait for each other.

        At least one of them is not chosen, or another kernel writes one of the
        tensors that they wait for.
        """
        waiting = makes = 0
        for k in ring:
            waiting |= self.columns[k].candidate.needs
            makes |= self.columns[k].candidate.outputs
        wanted = waiting & makes
        others = [
            k
            for k, column in enumerate(self.columns)
            if k not in ring and column.candidate.outputs & wanted
        ]
        self.rows.append(
            Row(
                columns=(*ring, *others),
                coefficients=(*(-1.0,) * len(ring), *(1.0,) * len(others)),
                least=1.0 - len(ring),
            )
        )
