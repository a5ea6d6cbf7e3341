"""Kernels joined after the proof: side by side, or with the one they wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Final

from tuner.fusion.candidates import Candidate
from tuner.fusion.filling import fill_up
from tuner.fusion.finishing import SUM_ROUNDING, Finishing, is_better, launched
from tuner.fusion.parting import parted
from tuner.fusion.pieces import Priced
from tuner.fusion.sharing import share_work
from tuner.fusion.view import bits
from tuner.plan import GENERATED

PARTNERS: Final = 6
"""How many of the latest groups a kernel is tried with."""

Order = Callable[[Sequence[float]], Sequence[int]]
"""The order in which kernels look for others, by place, from what they cost."""


def _as_launched(costs: Sequence[float]) -> Sequence[int]:
    return range(len(costs))


def _dearest_first(costs: Sequence[float]) -> Sequence[int]:
    return sorted(range(len(costs)), key=lambda k: (-costs[k], k))


def _cheapest_first(costs: Sequence[float]) -> Sequence[int]:
    return sorted(range(len(costs)), key=lambda k: (costs[k], k))


def _in_turns(costs: Sequence[float]) -> Sequence[int]:
    """Dear and cheap ones in turns: groups of equal weight."""
    order = _dearest_first(costs)
    half = (len(order) + 1) // 2
    both = zip_longest(order[:half], reversed(order[half:]))
    return [k for pair in both for k in pair if k is not None]


ORDERS: Final[Sequence[Order]] = (
    _as_launched,
    _dearest_first,
    _cheapest_first,
    _in_turns,
)


def join_side_by_side(step: Finishing, chosen: Sequence[Priced]) -> list[Priced]:
    """Join generated kernels that do not depend on each other, first come first served.

    A kernel also joins one that it waits for: that pays where the one serves several
    which run side by side now. Kernels that joined may join others in turn, until no
    pair that is tried costs less together. Who comes first decides who finds room: the
    cheapest of several orders is taken. The result never costs more than what was
    given. It is an improvement of a solved partition, not a part of the proof: whether
    another grouping would be cheaper still is not asked.
    """
    best = _joined_in_turns(step, chosen, [])
    ready, waiting = _cut(step, chosen)
    if len(ready) > 1 and not step.out_of_time():
        found = _joined_in_turns(step, waiting, ready)
        best = found if is_better(found, best) else best
    return best if len(best) == len(chosen) else fill_up(step, best)


def _cut(
    step: Finishing, chosen: Sequence[Priced]
) -> tuple[list[Priced], list[Priced]]:
    """Kernels that wait for no other, some of them cut off from others, and the rest.

    Nothing where none was cut.
    """
    found = parted(step, chosen)
    if len(found) == len(chosen):
        return [], []
    ready = [kernel for kernel in found if not kernel.candidate.needs]
    return ready, [kernel for kernel in found if kernel.candidate.needs]


def _joined_in_turns(
    step: Finishing, chosen: Sequence[Priced], ready: Sequence[Priced]
) -> list[Priced]:
    """The cheapest of what several orders lead to.

    Args:
        step: which kernels may be, and what they cost.
        chosen: what is joined.
        ready: kernels that wait for no other, and join each other first.
    """
    best = [*ready, *chosen]
    most = len(best)
    for order in ORDERS:
        if step.out_of_time() and len(best) < most:
            break
        first = _joined(step, ready, order) if ready else []
        found = _joined(step, [*first, *chosen], order)
        if len(found) < most:
            found = _with_shared_work(step, found, order)
        if is_better(found, best):
            best = found
        if len(found) >= most - 1:
            break  # in any order the same pair, if any
    return best


def _with_shared_work(
    step: Finishing, kernels: Sequence[Priced], order: Order
) -> list[Priced]:
    """Work that many joined kernels repeat in one of them; then there may be room."""
    shared = share_work(step, kernels)
    return shared if shared == list(kernels) else _joined(step, shared, order)


def _joined(step: Finishing, chosen: Sequence[Priced], order: Order) -> list[Priced]:
    kernels = list(chosen)
    count = len(kernels) + 1
    while len(kernels) < count and not step.out_of_time():
        count = len(kernels)
        kernels = _joined_once(step, kernels, order)
    return kernels


def _joined_once(
    step: Finishing, chosen: Sequence[Priced], order: Order
) -> list[Priced]:
    ready, stuck = launched(chosen)
    groups = _Groups(step, [chosen[k] for k in ready])
    for k in order([chosen[k].seconds for k in ready]):
        if step.out_of_time():
            break
        groups.place(k)
    rest = [chosen[k] for k in stuck]
    return [kernel for kernel in groups.kernels if kernel is not None] + rest


class _Groups:
    """Kernels by launch order; one that has joined another leaves None behind.

    Attributes:
        above, below: mask of the kernels that each waits for and keeps waiting.
        readers: mask of the kernels that read each tensor.
        writers: the first kernel that writes each tensor.
        homes: the group that each kernel is in.
        placed: mask of those that others may join.
    """

    def __init__(self, step: Finishing, kernels: Sequence[Priced]) -> None:
        self.step = step
        self.kernels: list[Priced | None] = list(kernels)
        self.above = [0] * len(kernels)
        self.below = [0] * len(kernels)
        self.placed = 0
        self.readers: dict[int, int] = {}
        self.homes = list(range(len(kernels)))
        writers: dict[int, int] = {}
        self.writers = writers
        for k, kernel in enumerate(kernels):
            for j in bits(kernel.candidate.needs):
                self.readers[j] = self.readers.get(j, 0) | 1 << k
                if j in writers:
                    self.above[k] |= self.above[writers[j]] | 1 << writers[j]
            for j in bits(kernel.candidate.outputs):
                writers.setdefault(j, k)
        for k in reversed(range(len(kernels))):
            for j in bits(kernels[k].candidate.needs):
                if j in writers:
                    self.below[writers[j]] |= self.below[k] | 1 << k

    def place(self, k: int) -> None:
        """Let a kernel join the group that gains most by it, or stay alone."""
        kernel = self.kernels[k]
        assert kernel is not None
        if kernel.candidate.family not in GENERATED:
            return
        best, at, joined = math.inf, k, kernel
        for g in self._partners(k):
            group = self.kernels[g]
            assert group is not None
            union = self._union(g, k)
            if union is None:
                continue
            apart = group.seconds + kernel.seconds
            both = self.step.price(union)
            added = both.seconds - apart
            if added <= SUM_ROUNDING * apart and added < best:
                best, at, joined = added, g, both
        group = self.kernels[at]
        assert group is not None
        self.kernels[k] = None
        self.kernels[at] = joined
        if at == k:
            self.placed |= 1 << k
        else:
            self.homes[k] = at
            self._tie(at, k)
            read = group.candidate.needs | kernel.candidate.needs
            self._move_readers(at, k, read)

    def _partners(self, k: int) -> list[int]:
        """Groups that a kernel may join without a ring, latest first.

        Some of those that it neither waits for nor keeps waiting, and those that it
        waits for with no other kernel in between.
        """
        free = self.placed & ~self.above[k] & ~self.below[k]
        found: list[int] = []
        while free and len(found) < PARTNERS:
            found.append(free.bit_length() - 1)
            free ^= 1 << found[-1]
        kernel = self.kernels[k]
        assert kernel is not None
        reads = bits(kernel.candidate.needs)
        first = {self.homes[self.writers[j]] for j in reads if j in self.writers}
        nearest = [
            g
            for g in sorted(first, reverse=True)
            if (self.placed & self.above[k]) >> g & 1
            and not self.below[g] & self.above[k]
        ]
        return found + nearest

    def _tie(self, at: int, k: int) -> None:
        """From now on two kernels wait, and are waited for, together.

        Nothing is new to kernels that both wait for, or that wait for both.
        """
        both = 1 << at | 1 << k
        above = (self.above[at] | self.above[k]) & ~both
        below = (self.below[at] | self.below[k]) & ~both
        for x in bits((self.above[at] ^ self.above[k]) & ~both):
            self.below[x] |= below | both
        for x in bits((self.below[at] ^ self.below[k]) & ~both):
            self.above[x] |= above | both
        for x in (at, k):
            self.below[x] |= below
            self.above[x] |= above

    def _move_readers(self, at: int, k: int, read: int) -> None:
        """What one of two kernels read, the one that holds both may read now."""
        kernel, both = self.kernels[at], 1 << at | 1 << k
        assert kernel is not None
        for j in bits(read):
            needs = kernel.candidate.needs >> j & 1
            self.readers[j] = self.readers[j] & ~both | needs << at

    def _union(self, g: int, k: int) -> Candidate | None:
        """One kernel of two that writes what others read or the graph delivers."""
        first, second = self.kernels[g], self.kernels[k]
        assert first is not None
        assert second is not None
        a, b = first.candidate, second.candidate
        view, others = self.step.view, ~(1 << g | 1 << k)
        passed = (a.outputs & b.needs) | (b.outputs & a.needs)
        idle = sum(
            1 << j
            for j in bits(passed & ~view.delivered)
            if not self.readers.get(j, 0) & others
        )
        outputs = (a.outputs | b.outputs) & ~idle
        mask = view.trimmed(a.mask | b.mask, outputs)
        return self.step.legal(mask, outputs)
