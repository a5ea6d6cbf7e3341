"""Independent kernels side by side in one launch, where that is cheaper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tuner.fusion.candidates import Candidate
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.pins import Pins
from tuner.fusion.pieces import Priced, order_of
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
    order, _ = order_of(chosen)
    kernels = [chosen[k] for k in order]
    groups: list[Priced] = []
    for kernel in kernels:
        if kernel.candidate.family not in GENERATED or out_of_time():
            groups.append(kernel)
            continue
        place, joined = _best(rules, price, pins, groups, kernel)
        if joined is None:
            groups.append(kernel)
        else:
            groups[place] = joined
    _, stuck = order_of(groups)
    return list(chosen) if stuck else groups


def _best(
    rules: Rules,
    price: Callable[[Candidate], Priced],
    pins: Pins,
    groups: Sequence[Priced],
    kernel: Priced,
) -> tuple[int, Priced | None]:
    """The group that a kernel joins with the greatest saving, and the result."""
    best, place = math.inf, 0
    joined: Priced | None = None
    for at in _partners(rules, groups, kernel):
        union = _union(rules, groups[at], kernel)
        if union is None or not pins.allow(union.mask):
            continue
        priced = price(union)
        apart = groups[at].seconds + kernel.seconds
        added = priced.seconds - apart
        if added <= EQUAL * apart and added < best:
            best, place, joined = added, at, priced
    return place, joined


def _partners(rules: Rules, groups: Sequence[Priced], kernel: Priced) -> list[int]:
    """The latest groups that the kernel neither depends on nor feeds."""
    view = rules.view
    above = below = 0
    for i in bits(kernel.candidate.mask):
        above |= view.above[i]
        below |= view.below[i]
    found = []
    for at in reversed(range(len(groups))):
        candidate = groups[at].candidate
        if candidate.family in GENERATED and not candidate.mask & (above | below):
            found.append(at)
        if len(found) == PARTNERS:
            break
    return found


def _union(rules: Rules, first: Priced, second: Priced) -> Candidate | None:
    a, b = first.candidate, second.candidate
    mask, outputs = a.mask | b.mask, a.outputs | b.outputs
    family = rules.judge(mask, outputs)
    if isinstance(family, Refusal):
        return None
    return Candidate(
        mask=mask, outputs=outputs, needs=rules.view.needs(mask), family=family
    )
