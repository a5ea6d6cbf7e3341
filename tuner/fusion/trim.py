"""Kernels without what nobody reads of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tuner.fusion.candidates import Candidate
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.pieces import Priced
from tuner.fusion.pins import Pins
from tuner.fusion.view import bits

SOLVER_TOLERANCE: Final = 1e-6
"""Costs this close, relatively, are equal: the solver proves no more. Of partitions
that cost the same, the one with fewer bytes is taken, then the one with fewer
kernels, then the one that was found first, whatever the size of the graph."""


def without_unread(
    rules: Rules,
    price: Callable[[Candidate], Priced],
    chosen: Sequence[Priced],
    *,
    pins: Pins,
) -> list[Priced]:
    """Kernels that write only what others read or the graph delivers.

    From the last kernel to the first: a tensor stays if the graph delivers it or a
    later kernel reads it, and no earlier kernel writes it too. A kernel that has
    nothing left to write goes, and so do nodes that nothing depends on any more. A
    kernel that a pin speaks about stays as it is, and so does one that would be dearer:
    no step makes a partition worse than the one that was proved.
    """
    needs = [kernel.candidate.needs for kernel in chosen]
    order, stuck = runnable_order(needs, [k.candidate.outputs for k in chosen])
    if stuck:
        return list(chosen)
    first: dict[int, int] = {}
    for k in order:
        for j in bits(chosen[k].candidate.outputs):
            first.setdefault(j, k)
    found: list[Priced] = []
    wanted = rules.view.delivered
    for k in reversed(order):
        kernel = chosen[k]
        own = sum(1 << j for j in bits(kernel.candidate.outputs) if first[j] == k)
        if not pins.touch(kernel.candidate.mask):
            if not own & wanted:
                continue
            kernel = _trimmed(rules, price, kernel, own & wanted)
        found.append(kernel)
        wanted |= kernel.candidate.needs
    return found[::-1]


def _trimmed(
    rules: Rules, price: Callable[[Candidate], Priced], kernel: Priced, outputs: int
) -> Priced:
    if outputs == kernel.candidate.outputs:
        return kernel
    view = rules.view
    mask = view.trimmed(kernel.candidate.mask, outputs)
    family = rules.judge(mask, outputs)
    if isinstance(family, Refusal):
        return kernel
    needs = view.needs(mask)
    other = price(Candidate(mask=mask, outputs=outputs, needs=needs, family=family))
    return other if other.seconds <= (1 + SOLVER_TOLERANCE) * kernel.seconds else kernel
