"""The covering problem: choose kernels so that everything read is written.

The graph falls into pieces that no candidate spans. What passes from one piece to
another is in memory in every partition, so each piece is a problem of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from tuner.errors import InternalError
from tuner.fusion.candidates import Candidate
from tuner.fusion.covering import Found, Offer, Problem, RefutedError, at_least
from tuner.fusion.effort import Effort
from tuner.fusion.linear import Optimum
from tuner.fusion.order import runnable_order
from tuner.fusion.pins import Pins
from tuner.fusion.view import View, bits
from tuner.ir.graph import Region

LARGE_PIECE: Final = 256
"""Nodes of a piece above which one known partition is enough."""
TURNS: Final = 8
"""How often the rings of kernels that a solution has are cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A candidate with its cost."""

    candidate: Candidate
    region: Region
    seconds: float


class Market(Protocol):
    """Says what kernels cost; what one costs at least takes less time to say."""

    def at_least(self, candidate: Candidate) -> tuple[float, bool]:
        """Seconds that a kernel costs at least, and whether it costs just that."""

    def price(self, candidate: Candidate) -> Priced:
        """A kernel with its cost; infinite if nothing of ours can run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of the graph with the kernels to choose from.

    Attributes:
        inside: its nodes.
        kernels: what to choose from; they cover every node.
        complete: whether these are all the kernels that the bound must speak about.
    """

    inside: int
    kernels: tuple[Candidate, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Chosen kernels of a piece, and what no choice can beat."""

    chosen: tuple[Priced, ...]
    bound_seconds: float


def order_of(chosen: Sequence[Priced]) -> tuple[list[int], list[int]]:
    """Kernels in an order in which each can run, and those that cannot."""
    needs = [c.candidate.needs for c in chosen]
    makes = [c.candidate.outputs for c in chosen]
    return runnable_order(needs, makes)


class _Start:
    """A known partition, by node."""

    def __init__(self, kernels: Sequence[Priced]) -> None:
        self._kernels = kernels
        self._holding: dict[int, list[int]] = {}
        for k, kernel in enumerate(kernels):
            for i in bits(kernel.candidate.mask):
                self._holding.setdefault(i, []).append(k)

    def within(self, inside: int) -> list[Priced]:
        """Kernels that compute some of these nodes."""
        found = {k for i in bits(inside) for k in self._holding.get(i, ())}
        return [self._kernels[k] for k in sorted(found)]


class PieceSolver:
    """Chooses the cheapest kernels of one piece after another."""

    def __init__(
        self,
        view: View,
        pins: Pins,
        market: Market,
        starts: Sequence[Sequence[Priced]],
        effort: Effort,
    ) -> None:
        """Keep what all pieces share.

        Args:
            view: the graph.
            pins: what the user wishes.
            market: what kernels cost.
            starts: known partitions; an answer is never dearer than one of them that
                keeps the pins.
            effort: how far the solver may go.
        """
        self.view = view
        self.pins = pins
        self.market = market
        self.starts = tuple(_Start(start) for start in starts)
        self._kept_anyway = {key for start in starts for key in _keys(start)}
        self.effort = effort
        self._problems: dict[int, Problem] = {}

    def known(self, inside: int) -> list[Priced]:
        """Kernels of the known partitions that compute some of these nodes.

        Of a large piece without pins only those of the cheapest one: many single nodes
        next to kernels that hold hundreds of them keep the solver busy, and a piece
        needs one partition to fall back on.
        """
        found = [start.within(inside) for start in self.starts]
        if inside.bit_count() > LARGE_PIECE and not self.pins.touch(inside):
            found = [min(found, key=lambda start: sum(p.seconds for p in start))]
        return [kernel for start in found for kernel in start]

    def bound(self, piece: Piece) -> float:
        """What no choice can beat, from what kernels cost at least.

        The problem is kept for `solve`.
        """
        if not piece.complete or self.effort.is_over:
            return 0.0
        problem = self._problem(piece)
        self._problems[piece.inside] = problem
        return problem.bound()

    def solve(self, piece: Piece) -> Answer:
        """Choose.

        Raises:
            ConstraintsUnsatisfiable: no choice keeps the pins.
        """
        try:
            problem = self._problems.pop(piece.inside, None) or self._problem(piece)
            found = self._solve(problem)
        except RefutedError:
            for kernel in piece.kernels:
                self.market.price(kernel)
            problem = self._problem(piece)
            found = self._solve(problem)
        return Answer(
            chosen=tuple(self.market.price(problem.kernels[k]) for k in found.chosen),
            bound_seconds=found.bound_seconds if piece.complete else 0.0,
        )

    def _problem(self, piece: Piece) -> Problem:
        problem = Problem(
            self.view, self._offers(piece), piece.inside, self._settled, self.effort
        )
        problem.rows += [
            at_least(holding, 1)
            for holding in self.pins.demands(
                [kernel.mask for kernel in problem.kernels], problem.inside
            )
        ]
        problem.start = self._start(problem)
        return problem

    def _offers(self, piece: Piece) -> list[Offer]:
        """Allowed kernels that can be run and are not dominated."""
        offers = []
        for kernel in piece.kernels:
            if self.pins.allow(kernel.mask, kernel.outputs):
                seconds, is_exact = self.market.at_least(kernel)
                if math.isfinite(seconds):
                    offers.append(Offer(kernel, seconds, is_exact))
        if self.pins.demand(piece.inside):
            return offers
        return self._undominated(offers)

    def _settled(self, kernels: Sequence[Candidate]) -> list[float] | None:
        """What kernels cost; None if time is over."""
        found = []
        for kernel in kernels:
            if self.effort.is_over:
                return None
            found.append(self.market.price(kernel).seconds)
        return found

    def _undominated(self, offers: Sequence[Offer]) -> list[Offer]:
        """Kernels without those that another can always stand in for.

        Kernel D can stand in for kernel C when D writes all that C writes, reads no
        tensor of another kernel that C does not read, and costs no more: in any
        partition with C, take D instead. All that was read is still written, nothing
        waits for more than before, and every node that counts is still computed, since
        it is needed for what is written. Known partitions keep their kernels. What D
        costs must be known; of C it is enough what it costs at least.
        """
        order = sorted(
            range(len(offers)),
            key=lambda k: (offers[k].seconds, offers[k].kernel.mask.bit_count()),
        )
        writers: dict[int, list[Candidate]] = {}
        kept = []
        for k in order:
            kernel = offers[k].kernel
            rivals = min((writers.get(j, []) for j in bits(kernel.outputs)), key=len)
            if (
                any(
                    not kernel.outputs & ~r.outputs and not r.needs & ~kernel.needs
                    for r in rivals
                )
                and (kernel.mask, kernel.outputs) not in self._kept_anyway
            ):
                continue
            kept.append(k)
            for j in bits(kernel.outputs) if offers[k].is_exact else ():
                writers.setdefault(j, []).append(kernel)
        return [offers[k] for k in sorted(kept)]

    def _solve(self, problem: Problem) -> Found:
        start = problem.start
        if len(problem.kernels) == 1 and start:
            return Found(chosen=(0,), bound_seconds=problem.prices[0])
        if start and self.effort.is_over:
            return Found(chosen=start, bound_seconds=0.0)
        found = self._acyclic(problem)
        if found.feasible and found.chosen:
            answer = problem.answer(found)
            if not start or problem.seconds(answer.chosen) <= problem.seconds(start):
                return answer
        if not start:
            raise self._failure(problem)
        bound = max(0.0, problem.unscaled(found.bound)) if found.feasible else 0.0
        return Found(chosen=start, bound_seconds=bound)

    def _acyclic(self, problem: Problem) -> Optimum:
        """Solve, and cut rings of kernels off until there are none.

        Rings are cut off as they are met, a few times; then the tensors get an order.
        """
        for turn in count(1):
            found = problem.minimise()
            stuck = problem.stuck(found.chosen)
            if not stuck:
                return found
            if self.effort.is_over:
                return Optimum(chosen=(), bound=found.bound)
            problem.forbid(found.chosen, stuck)
            if turn == TURNS:
                problem.put_in_order()
        raise AssertionError("the loop has no end")

    def _start(self, problem: Problem) -> tuple[int, ...]:
        """The cheapest known partition of the piece, by column."""
        best: tuple[int, ...] = ()
        for start in self.starts:
            inside = start.within(problem.inside)
            places = [problem.places.get(c) for c in _keys(inside)]
            if not places or None in places:
                continue
            chosen = tuple(sorted(p for p in places if p is not None))
            problem.first.update(chosen)
            masks = [problem.kernels[k].mask for k in chosen]
            holds = self.pins.demands(masks, problem.inside)
            if not all(holds):
                continue
            if not best or problem.seconds(chosen) < problem.seconds(best):
                best = chosen
        return best

    def _failure(self, problem: Problem) -> Exception:
        if self.pins.touch(problem.inside):
            return self.pins.error()
        node = self.view.nodes[next(bits(problem.inside))]
        return InternalError(node.name, f"no kernel can run this {node.op}")


def _keys(columns: Sequence[Priced]) -> list[tuple[int, int]]:
    return [(c.candidate.mask, c.candidate.outputs) for c in columns]
