"""Transposes that stand alone are read where they are used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tuner.fusion.finishing import SUM_ROUNDING, Finishing, cost, is_better
from tuner.fusion.pieces import Priced
from tuner.fusion.view import View, bits

MOVES: Final = frozenset({"transpose", "reshape"})
"""What computes nothing: a kernel of these alone is a launch and two passes."""


class _Join(NamedTuple):
    """A way to do without a kernel.

    Attributes:
        saved: seconds.
        gone: the kernel, by place.
        grown: what stands for each kernel that read it, by place.
    """

    saved: float
    gone: int
    grown: dict[int, Priced]


def read_turned(step: Finishing, chosen: Sequence[Priced]) -> list[Priced]:
    """Let the readers of a transpose read what it reads, where that costs less.

    In large graphs the search leaves work in front of a contraction apart, because it
    would tie parts together that are solved one by one. A transpose in a kernel of its
    own ties nothing once the others are chosen. The largest saving goes first. The
    result never costs more than what was given.
    """
    kernels = list(chosen)
    while not step.out_of_time():
        joins = [join for join in _joins(step, kernels) if join.saved > 0.0]
        if not joins:
            break
        best = max(joins, key=lambda join: join.saved)
        found = [
            best.grown.get(k, kernel)
            for k, kernel in enumerate(kernels)
            if k != best.gone
        ]
        if not is_better(found, kernels):
            break
        kernels = found
    return kernels


def _joins(step: Finishing, kernels: Sequence[Priced]) -> Iterator[_Join]:
    for k, kernel in enumerate(kernels):
        mask, outputs = kernel.candidate.mask, kernel.candidate.outputs
        if not _only_moves(step.view, mask) or outputs & step.view.delivered:
            continue
        readers = [r for r, one in enumerate(kernels) if one.candidate.needs & outputs]
        grown = {r: _with(step, kernels[r], mask) for r in readers}
        whole = {r: one for r, one in grown.items() if one is not None}
        if not readers or len(whole) < len(grown):
            continue
        before = cost([kernel, *(kernels[r] for r in readers)])
        after = cost(list(whole.values()))
        if not math.isclose(before, after, rel_tol=SUM_ROUNDING):
            yield _Join(before - after, k, whole)


def _only_moves(view: View, mask: int) -> bool:
    ops = {view.nodes[i].op for i in bits(mask)}
    return "transpose" in ops and ops <= MOVES


def _with(step: Finishing, kernel: Priced, mask: int) -> Priced | None:
    """A kernel that computes more, if it may."""
    grown = kernel.candidate.mask | mask
    if step.pins.touch(mask) or step.pins.touch(kernel.candidate.mask):
        return None
    candidate = step.legal(grown, kernel.candidate.outputs)
    return None if candidate is None else step.price(candidate)
