"""Independent kernels side by side in one launch, where that is cheaper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    groups = _Groups(rules=rules, price=price, pins=pins, kernels=list(chosen))
    for k in groups.order():
        if out_of_time():
            break
        groups.place(k)
    return [kernel for kernel in groups.kernels if kernel is not None]


@dataclass
class _Groups:
    """Kernels by position; one that has joined another leaves None behind."""

    rules: Rules
    price: Callable[[Candidate], Priced]
    pins: Pins
    kernels: list[Priced | None]
    above: list[int] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)

    def order(self) -> list[int]:
        """Positions in launch order; also notes what each kernel waits for."""
        needs = [0 if p is None else p.candidate.needs for p in self.kernels]
        makes = [0 if p is None else p.candidate.outputs for p in self.kernels]
        order, _ = runnable_order(needs, makes)
        writers: dict[int, int] = {}
        self.above = [0] * len(self.kernels)
        for k in order:
            for j in bits(needs[k]):
                if j in writers:
                    self.above[k] |= self.above[writers[j]] | 1 << writers[j]
            for j in bits(makes[k]):
                writers.setdefault(j, k)
        return order

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
            self.placed.append(k)
        else:
            self.order()

    def _partners(self, k: int) -> list[int]:
        """The latest groups that a kernel neither waits for nor keeps waiting."""
        free = [
            g
            for g in reversed(self.placed)
            if not self.above[k] >> g & 1 and not self.above[g] >> k & 1
        ]
        return free[:PARTNERS]

    def _union(self, first: Priced, second: Priced) -> Candidate | None:
        a, b = first.candidate, second.candidate
        mask, outputs = a.mask | b.mask, a.outputs | b.outputs
        family = self.rules.judge(mask, outputs)
        if isinstance(family, Refusal) or not self.pins.allow(mask):
            return None
        needs = self.rules.view.needs(mask)
        return Candidate(mask=mask, outputs=outputs, needs=needs, family=family)
