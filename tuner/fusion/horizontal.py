"""Independent kernels side by side in one launch, where that is cheaper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tuner.fusion.candidates import Candidate
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.pieces import Priced
from tuner.fusion.pins import Pins
from tuner.fusion.view import bits
from tuner.plan import GENERATED

PARTNERS: Final = 6
"""How many of the latest groups a kernel is tried with."""
EQUAL: Final = 1e-12
"""Costs this close, relatively, are equal: then fewer kernels win."""


def join_side_by_side(
    rules: Rules,
    price: Callable[[Candidate], Priced],
    chosen: Sequence[Priced],
    *,
    pins: Pins,
    out_of_time: Callable[[], bool],
) -> list[Priced]:
    """Join generated kernels that do not depend on each other, first come first served.

    The result never costs more than what was given. It is an improvement of a solved
    partition, not a part of the proof: whether another grouping would be cheaper still
    is not asked.
    """
    needs = [kernel.candidate.needs for kernel in chosen]
    order, stuck = runnable_order(needs, [k.candidate.outputs for k in chosen])
    groups = _Groups(rules, price, pins, [chosen[k] for k in order])
    for k in range(len(order)):
        if out_of_time():
            break
        groups.place(k)
    rest = [chosen[k] for k in stuck]
    return [kernel for kernel in groups.kernels if kernel is not None] + rest


class _Groups:
    """Kernels by launch order; one that has joined another leaves None behind.

    Attributes:
        above, below: mask of the kernels that each waits for and keeps waiting.
        placed: mask of those that others may join.
    """

    def __init__(
        self,
        rules: Rules,
        price: Callable[[Candidate], Priced],
        pins: Pins,
        kernels: Sequence[Priced],
    ) -> None:
        self.rules = rules
        self.price = price
        self.pins = pins
        self.kernels: list[Priced | None] = list(kernels)
        self.above = [0] * len(kernels)
        self.below = [0] * len(kernels)
        self.placed = 0
        writers: dict[int, int] = {}
        for k, kernel in enumerate(kernels):
            for j in bits(kernel.candidate.needs):
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
            union = self._union(group, kernel)
            if union is None:
                continue
            apart = group.seconds + kernel.seconds
            added = self.price(union).seconds - apart
            if added <= EQUAL * apart and added < best:
                best, at, joined = added, g, self.price(union)
        self.kernels[k] = None
        self.kernels[at] = joined
        if at == k:
            self.placed |= 1 << k
        else:
            self._tie(at, k)

    def _partners(self, k: int) -> list[int]:
        """The latest groups that a kernel neither waits for nor keeps waiting."""
        free = self.placed & ~self.above[k] & ~self.below[k]
        found: list[int] = []
        while free and len(found) < PARTNERS:
            found.append(free.bit_length() - 1)
            free ^= 1 << found[-1]
        return found

    def _tie(self, at: int, k: int) -> None:
        """From now on two kernels wait, and are waited for, together."""
        both = 1 << at | 1 << k
        above = self.above[at] | self.above[k]
        below = self.below[at] | self.below[k]
        for x in bits(above | both):
            self.below[x] |= below if both >> x & 1 else below | both
        for x in bits(below | both):
            self.above[x] |= above if both >> x & 1 else above | both

    def _union(self, first: Priced, second: Priced) -> Candidate | None:
        a, b = first.candidate, second.candidate
        mask, outputs = a.mask | b.mask, a.outputs | b.outputs
        family = self.rules.judge(mask, outputs)
        if isinstance(family, Refusal) or not self.pins.allow(mask, outputs):
            return None
        needs = self.rules.view.needs(mask)
        return Candidate(mask=mask, outputs=outputs, needs=needs, family=family)
