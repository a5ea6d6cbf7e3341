"""The covering problem: choose kernels so that everything read is written.

The graph falls into pieces that no candidate spans. What passes from one piece to
another is in memory in every partition, so each piece is a problem of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from tuner.errors import InternalError
from tuner.fusion.candidates import Candidate
from tuner.fusion.milp import Minimiser, Optimum, Row
from tuner.fusion.order import rings_of, runnable_order
from tuner.fusion.pins import Pins
from tuner.fusion.view import View, bits
from tuner.ir.graph import Region

SCALE: Final = 1e6
"""Costs are scaled so that the kernels of a piece cost about this much together."""
LARGE_PIECE: Final = 256
"""Nodes of a piece above which one known partition is enough."""
ROUNDING: Final = 1e-9
TURNS: Final = 8
"""How often the rings of kernels that a solution has are cut off."""
TIE: Final = 1e-7
"""Share of that by which all kernels together are made dearer, so that of equally
cheap partitions the one with fewer kernels is taken."""
LEAST_TIE: Final = 2.0**-10
"""Share of a tie that every kernel has; the rest goes by bytes."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Chosen columns of a problem, by position, and what no choice can beat."""

    chosen: tuple[int, ...]
    bound_seconds: float


def order_of(chosen: Sequence[Priced]) -> tuple[list[int], list[int]]:
    """Kernels in an order in which each can run, and those that cannot."""
    needs = [c.candidate.needs for c in chosen]
    makes = [c.candidate.outputs for c in chosen]
    return runnable_order(needs, makes)


class _RefutedError(Exception):
    """A kernel costs less than it was said to cost at least."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A kernel, the seconds that it costs at least, and whether it costs just that."""

    kernel: Candidate
    seconds: float
    is_exact: bool


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
        remaining_seconds: Callable[[], float],
    ) -> None:
        """Keep what all pieces share.

        Args:
            view: the graph.
            pins: what the user wishes.
            market: what kernels cost.
            starts: known partitions; an answer is never dearer than one of them that
                keeps the pins.
            remaining_seconds: how long the solver may go on.
        """
        self.view = view
        self.pins = pins
        self.market = market
        self.starts = tuple(_Start(start) for start in starts)
        self._kept_anyway = {key for start in starts for key in _keys(start)}
        self.remaining_seconds = remaining_seconds
        self._problems: dict[int, _Problem] = {}

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
        if not piece.complete or self.remaining_seconds() <= 0:
            return 0.0
        problem = self._problem(piece)
        self._problems[piece.inside] = problem
        return problem.bound(self.remaining_seconds())

    def solve(self, piece: Piece) -> Answer:
        """Choose.

        Raises:
            ConstraintsUnsatisfiable: no choice keeps the pins.
        """
        try:
            problem = self._problems.pop(piece.inside, None) or self._problem(piece)
            found = self._solve(problem)
        except _RefutedError:
            for kernel in piece.kernels:
                self.market.price(kernel)
            problem = self._problem(piece)
            found = self._solve(problem)
        return Answer(
            chosen=tuple(self.market.price(problem.kernels[k]) for k in found.chosen),
            bound_seconds=found.bound_seconds if piece.complete else 0.0,
        )

    def _problem(self, piece: Piece) -> _Problem:
        problem = _Problem(self.view, self._offers(piece), piece.inside, self._settled)
        problem.rows += [
            _at_least(holding, 1)
            for holding in self.pins.demands(
                [kernel.mask for kernel in problem.kernels], problem.inside
            )
        ]
        problem.start = self._start(problem)
        return problem

    def _offers(self, piece: Piece) -> list[_Offer]:
        """Allowed kernels that can be run and are not dominated."""
        offers = []
        for kernel in piece.kernels:
            if self.pins.allow(kernel.mask, kernel.outputs):
                seconds, is_exact = self.market.at_least(kernel)
                if math.isfinite(seconds):
                    offers.append(_Offer(kernel, seconds, is_exact))
        if self.pins.demand(piece.inside):
            return offers
        return self._undominated(offers)

    def _settled(self, kernels: Sequence[Candidate]) -> list[float] | None:
        """What kernels cost; None if time is over."""
        found = []
        for kernel in kernels:
            if self.remaining_seconds() <= 0:
                return None
            found.append(self.market.price(kernel).seconds)
        return found

    def _undominated(self, offers: Sequence[_Offer]) -> list[_Offer]:
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

    def _solve(self, problem: _Problem) -> _Found:
        start = problem.start
        if len(problem.kernels) == 1 and start:
            return _Found(chosen=(0,), bound_seconds=problem.prices[0])
        if start and self.remaining_seconds() <= 0:
            return _Found(chosen=start, bound_seconds=0.0)
        found = self._acyclic(problem)
        if found.feasible and found.chosen:
            answer = problem.answer(found)
            if not start or problem.seconds(answer.chosen) <= problem.seconds(start):
                return answer
        if not start:
            raise self._failure(problem)
        bound = max(0.0, problem.unscaled(found.bound)) if found.feasible else 0.0
        return _Found(chosen=start, bound_seconds=bound)

    def _acyclic(self, problem: _Problem) -> Optimum:
        """Solve, and cut rings of kernels off until there are none.

        Rings are cut off as they are met, a few times; then the tensors get an order.
        """
        for turn in count(1):
            found = problem.minimise(self.remaining_seconds())
            stuck = problem.stuck(found.chosen)
            if not stuck:
                return found
            if self.remaining_seconds() <= 0:
                return Optimum(chosen=(), bound=found.bound)
            problem.forbid(found.chosen, stuck)
            if turn == TURNS:
                problem.put_in_order(lambda: self.remaining_seconds() <= 0)
        raise AssertionError("the loop has no end")

    def _start(self, problem: _Problem) -> tuple[int, ...]:
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

    def _failure(self, problem: _Problem) -> Exception:
        if self.pins.touch(problem.inside):
            return self.pins.error()
        node = self.view.nodes[next(bits(problem.inside))]
        return InternalError(node.name, f"no kernel can run this {node.op}")


def _keys(columns: Sequence[Priced]) -> list[tuple[int, int]]:
    return [(c.candidate.mask, c.candidate.outputs) for c in columns]


def _at_least(columns: Sequence[int], least: float) -> Row:
    return Row(columns=tuple(columns), coefficients=(1.0,) * len(columns), least=least)


class _Problem:
    """Rows and costs of one piece; the first columns are the candidates."""

    def __init__(
        self,
        view: View,
        offers: Sequence[_Offer],
        inside: int,
        settle: Callable[[Sequence[Candidate]], list[float] | None],
    ) -> None:
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
        self.arcs: dict[tuple[int, int], int] = {}
        self.ordered = 0
        self.rows: list[Row] = []
        self.start: tuple[int, ...] = ()
        self.first: set[int] = set()
        self._minimiser: Minimiser | None = None

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
        return [_at_least(columns, 1) for columns in distinct]

    def _flow_rows(self) -> list[Row]:
        """What is read is written; what leaves the piece is written."""
        rows = []
        for j in sorted({*self.writers, *self.takers}):
            writers = self.writers.get(j, [])
            takers = self.takers.get(j, [])
            if self._leaves(j):
                rows.append(_at_least(writers, 1))
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

    def bound(self, seconds: float) -> float:
        """What no choice can beat, from what kernels cost at least."""
        return max(0.0, self.unscaled(self._ready().bound(seconds)))

    def minimise(self, seconds: float) -> Optimum:
        """Solve with the rows so far."""
        return self._ready().solve(seconds)

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
                raise _RefutedError
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

    def answer(self, found: Optimum) -> _Found:
        """The optimum in seconds."""
        seconds = self.seconds(found.chosen)
        bound = min(self.unscaled(found.bound), seconds)
        return _Found(chosen=found.chosen, bound_seconds=max(0.0, bound))

    def forbid(self, chosen: Sequence[int], stuck: Sequence[int]) -> None:
        """Cut off kernels that wait for each other.

        In a ring of tensors, each written only by kernels that read the next, none is
        ever written. So of the arcs of a ring, each there if some kernel reads its one
        end and writes the other, one is missing, or another kernel writes a tensor of
        the ring. An arc is a column, so that one row cuts off all kernels that bring
        the same arcs about.

        Source: M. Grötschel, M. Jünger, G. Reinelt, "On the acyclic subgraph polytope",
        Mathematical Programming 33, 1985, for the rows without other kernels.
        """
        kernels = [self.kernels[k] for k in chosen]
        rings = rings_of(
            [c.needs for c in kernels], [c.outputs for c in kernels], stuck
        )
        known = len(self.arcs)
        rows = [row for ring in rings for row in self._ring_rows(ring)]
        if not rings:
            rows = [self._stuck_row([chosen[at] for at in stuck])]
        self._ready().add(rows, columns=len(self.arcs) - known)

    def _ring_rows(self, ring: Sequence[int]) -> Iterator[Row]:
        """One arc of a ring is missing, or another kernel writes one of its tensors."""
        arcs, others = [], []
        for written, read in zip(ring, (*ring[1:], ring[0]), strict=True):
            both, alone = self._writing(written, read)
            arc = self.arcs.get((written, read))
            if arc is None:
                arc = len(self.kernels) + len(self.stored) + self.ordered
                arc += len(self.arcs)
                self.arcs[written, read] = arc
                for k in both:
                    yield Row(columns=(arc, k), coefficients=(1.0, -1.0), least=0.0)
            arcs.append(arc)
            others += alone
        ones = (1.0,) * len(set(others))
        yield Row(
            columns=(*arcs, *sorted(set(others))),
            coefficients=(*(-1.0,) * len(arcs), *ones),
            least=1.0 - len(arcs),
        )

    def _writing(self, written: int, read: int) -> tuple[list[int], list[int]]:
        """Kernels that write a tensor: those that read another, and the rest."""
        both: list[int] = []
        alone: list[int] = []
        for k in self.writers[written]:
            (both if self.kernels[k].needs >> read & 1 else alone).append(k)
        return both, alone

    def _stuck_row(self, stuck: Sequence[int]) -> Row:
        """One kernel is not chosen, or another writes what one of them writes."""
        wanted = 0
        for k in stuck:
            wanted |= self.kernels[k].outputs
        inside = set(stuck)
        others = [
            k
            for k, kernel in enumerate(self.kernels)
            if k not in inside and kernel.outputs & wanted
        ]
        return Row(
            columns=(*stuck, *others),
            coefficients=(*(-1.0,) * len(stuck), *(1.0,) * len(others)),
            least=1.0 - len(stuck),
        )

    def put_in_order(self, out_of_time: Callable[[], bool]) -> None:
        """Give every tensor that can be part of a ring a place in time.

        A chosen kernel writes later than all that it reads. This asks a little more
        than that the kernels can run: a tensor that two chosen kernels write is read
        only after both. It is therefore a rule of the candidate space, and the
        partition says so.

        Source: C. Miller, A. Tucker, R. Zemlin, "Integer programming formulation of
        traveling salesman problems", JACM 7(4), 1960.
        """
        rings = self._tensors_in_rings(out_of_time)
        first = len(self.kernels) + len(self.stored) + len(self.arcs)
        place = {j: first + n for n, j in enumerate(bits(rings))}
        step = 1.0 / (len(place) + 1)
        rows = [
            Row(
                columns=(place[written], place[read], k),
                coefficients=(1.0, -1.0, -1.0 - step),
                least=-1.0,
            )
            for k, kernel in enumerate(self.kernels)
            for read in bits(kernel.needs & rings)
            for written in bits(kernel.outputs & rings)
        ]
        self.ordered = len(place)
        self._ready().add(rows, columns=len(place), branches=False)

    def _tensors_in_rings(self, out_of_time: Callable[[], bool]) -> int:
        """Tensors that, by way of some kernels, may come before themselves."""
        after: dict[int, int] = {}
        for kernel in self.kernels:
            for j in bits(kernel.needs):
                after[j] = after.get(j, 0) | kernel.outputs
        reached = dict(after)
        changed = True
        while changed and not out_of_time():
            changed = False
            for j, mask in reached.items():
                grown = mask
                for t in bits(mask):
                    grown |= reached.get(t, 0)
                if grown != mask:
                    reached[j] = grown
                    changed = True
        return sum(1 << j for j, mask in reached.items() if mask >> j & 1)
