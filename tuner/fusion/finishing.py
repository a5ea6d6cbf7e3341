"""What steps after the proof share: which kernels may be, and what is an improvement.

A step takes the kernels of a solved partition and gives others in their place, which
never cost more. It proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.candidates import Candidate
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.pieces import Priced
from tuner.fusion.pins import Pins
from tuner.fusion.view import View
from tuner.plan import GENERATED

SUM_ROUNDING: Final = 1e-12
"""Sums this close, relatively, differ by their rounding: then fewer kernels win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishing:
    """What every step is given.

    Attributes:
        rules: which kernels are legal.
        price: what a kernel costs.
        pins: what the user wishes.
        out_of_time: whether to end with what there is.
    """

    rules: Rules
    price: Callable[[Candidate], Priced]
    pins: Pins
    out_of_time: Callable[[], bool]

    @property
    def view(self) -> View:
        """The graph."""
        return self.rules.view

    def legal(self, mask: int, outputs: int) -> Candidate | None:
        """A kernel that the rules and the user allow."""
        family = self.rules.judge(mask, outputs)
        if isinstance(family, Refusal) or not self.pins.allow(mask, outputs):
            return None
        needs = self.view.needs(mask)
        return Candidate(mask=mask, outputs=outputs, needs=needs, family=family)

    def made(self, mask: int, outputs: int) -> Priced | None:
        """A kernel of ours, if it is legal and no pin speaks about its nodes."""
        if not mask or not outputs or self.pins.touch(mask):
            return None
        candidate = self.legal(mask, outputs)
        if candidate is None or candidate.family not in GENERATED:
            return None
        return self.price(candidate)


def cost(kernels: Sequence[Priced]) -> float:
    """Seconds of kernels together."""
    return math.fsum(kernel.seconds for kernel in kernels)


def launched(kernels: Sequence[Priced]) -> tuple[list[int], list[int]]:
    """Kernels in an order in which each can run, by place, and those that cannot."""
    return runnable_order(
        [kernel.candidate.needs for kernel in kernels],
        [kernel.candidate.outputs for kernel in kernels],
    )


def is_better(found: Sequence[Priced], before: Sequence[Priced]) -> bool:
    """Whether kernels can run, and cost less than others, or as much and are fewer."""
    costs = cost(found), cost(before)
    if math.isclose(*costs, rel_tol=SUM_ROUNDING):
        is_less = len(found) < len(before)
    else:
        is_less = costs[0] < costs[1]
    return is_less and not launched(found)[1]
