"""Groupings of strategies that know no pins, changed until they keep them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.fusion.grouping import Grouping
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.pins import Pins
from tuner.fusion.view import bits


def repaired(
    rules: Rules, pins: Pins, base: Sequence[int], kernels: Sequence[tuple[int, int]]
) -> Grouping | None:
    """Kernels that keep the pins and can still run in some order; None if none do.

    Args:
        rules: which kernels are legal.
        pins: what the user wishes.
        base: operators, or groups of them, that a kernel is cut into.
        kernels: what each computes and writes.
    """
    found: list[tuple[int, int]] = []
    for mask, outputs in kernels:
        if pins.allow(mask, outputs):
            found.append((mask, outputs))
        else:
            found += _cut(rules, pins, base, mask)
    for pair in pins.together:
        if not any(mask & pair == pair for mask, _ in found):
            found = _joined(rules, pins, found, pair)
    view = rules.view
    needs = [view.needs(mask) for mask, _ in found]
    _, stuck = runnable_order(needs, [outputs for _, outputs in found])
    return None if stuck or not pins.keep(found) else tuple(found)


def _cut(
    rules: Rules, pins: Pins, base: Sequence[int], mask: int
) -> Iterator[tuple[int, int]]:
    """A kernel as runs of operators in launch order, each as long as it may be.

    Runs follow each other, and the kernel had a place in the order of all, so no two
    kernels wait for each other afterwards.
    """
    view, run = rules.view, 0
    parts = sorted((unit for unit in base if unit & mask), key=int.bit_length)
    for unit in parts:
        grown = run | unit
        if run and not _is_allowed(rules, pins, grown):
            yield run, view.wanted(run)
            grown = unit
        run = grown
    if run:
        yield run, view.wanted(run)


def _is_allowed(rules: Rules, pins: Pins, mask: int) -> bool:
    outputs = rules.view.wanted(mask)
    if not pins.allow(mask, outputs):
        return False
    return not isinstance(rules.judge(mask, outputs), Refusal)


def _joined(
    rules: Rules, pins: Pins, kernels: Sequence[tuple[int, int]], pair: int
) -> list[tuple[int, int]]:
    """The kernels with one that holds two nodes: two of them as one, or one more."""
    view = rules.view
    first, second = bits(pair)
    holders = [
        [key for key in kernels if key[0] >> node & 1] for node in (first, second)
    ]
    for one in holders[0]:
        for other in holders[1]:
            mask = one[0] | other[0]
            if view.is_convex(mask) and _is_allowed(rules, pins, mask):
                rest = [key for key in kernels if key not in (one, other)]
                return [*rest, (mask, view.wanted(mask))]
    if _is_allowed(rules, pins, pair):
        return [*kernels, (pair, view.wanted(pair))]
    return list(kernels)
