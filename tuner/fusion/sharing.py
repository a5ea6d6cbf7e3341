"""Work that several joined kernels repeat, done by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.finishing import Finishing, is_better, launched
from tuner.fusion.pieces import Priced
from tuner.fusion.view import View, bits, joined

FEW: Final = 3
"""As many kernels must repeat a piece of work, or the solver has weighed it already."""


def share_work(step: Finishing, chosen: Sequence[Priced]) -> list[Priced]:
    """Let one kernel store what many repeat, where that costs less.

    A few numbers that every step of an optimiser needs are cheap to compute again in
    each of many small kernels. Joined in few large ones each of their threads computes
    them again, and they take room that other work could have. The kernel that runs
    first stores them; each of the others reads them if it gains by that. The result
    never costs more than what was given.
    """
    kernels = list(chosen)
    tried: set[int] = set()
    while not step.out_of_time():
        repeated = _Repeated.of(step.view, kernels)
        nodes = next((n for n in repeated if n not in tried), None)
        if nodes is None:
            return kernels
        tried.add(nodes)
        kernels = _shared(step, kernels, repeated[nodes])
    return kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeated:
    """Nodes that the same kernels compute.

    Attributes:
        nodes: their mask.
        holders: kernels that compute them all, by place.
    """

    nodes: int
    holders: tuple[int, ...]

    @staticmethod
    def of(view: View, kernels: Sequence[Priced]) -> dict[int, _Repeated]:
        """What many kernels repeat, by nodes."""
        holders = [0] * len(view.nodes)
        for k, kernel in enumerate(kernels):
            for i in bits(kernel.candidate.mask):
                holders[i] |= 1 << k
        found: dict[int, int] = {}
        for i, mask in enumerate(holders):
            if mask.bit_count() >= FEW:
                found[mask] = found.get(mask, 0) | 1 << i
        return {
            nodes: _Repeated(nodes=nodes, holders=tuple(bits(mask)))
            for mask, nodes in found.items()
        }


def _shared(
    step: Finishing, kernels: Sequence[Priced], repeated: _Repeated
) -> list[Priced]:
    """The kernels with some nodes in as few of them as pays."""
    view = step.view
    makes = view.makes(repeated.nodes)
    order, _ = launched(kernels)
    places = {k: place for place, k in enumerate(order)}
    first, *others = sorted(repeated.holders, key=lambda k: places.get(k, len(order)))
    found, passed = list(kernels), 0
    for k in others:
        old = kernels[k]
        if old.candidate.outputs & makes:
            continue
        rest = view.trimmed(old.candidate.mask & ~repeated.nodes, old.candidate.outputs)
        new = step.made(rest, old.candidate.outputs)
        if new is not None and new.seconds < old.seconds:
            found[k] = new
            passed |= joined(view.reads, rest) & makes
    source = kernels[first].candidate
    stored = step.made(source.mask, source.outputs | passed)
    if not passed or stored is None:
        return list(kernels)
    found[first] = stored
    return found if is_better(found, kernels) else list(kernels)
