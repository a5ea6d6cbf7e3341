"""A kernel fewer: what it computes finds room in the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from tuner.fusion.finishing import Finishing, is_better
from tuner.fusion.groups import Groups
from tuner.fusion.pieces import Priced
from tuner.fusion.view import View, bits
from tuner.plan import GENERATED

TRIED: Final = 3
"""Kernels that are taken apart in turn, and kernels that a part is tried in."""
FEW_OUTPUTS: Final = 4
"""Of so many results of a part every choice is tried for its first half."""


class Part(NamedTuple):
    """Nodes that hang together, and what they write."""

    mask: int
    outputs: int


def fill_up(step: Finishing, chosen: Sequence[Priced]) -> list[Priced]:
    """Let the parts of one kernel fill up others, as long as that costs less.

    Kernels that hold as many whole steps of an optimiser as they may still have room
    for a few nodes. A part for which there is no room as it is goes to two kernels: the
    first computes some of its results, and the second reads them. That moves more
    bytes, and saves a launch. The result never costs more than what was given.
    """
    kernels = list(chosen)
    while not step.out_of_time():
        fewer = _one_fewer(step, kernels)
        if fewer is None:
            break
        kernels = fewer
    return kernels


def _one_fewer(step: Finishing, kernels: Sequence[Priced]) -> list[Priced] | None:
    """The same work in one kernel less, if that is cheaper."""
    most = step.rules.limits.max_nodes
    ours = [k for k, one in enumerate(kernels) if one.candidate.family in GENERATED]
    held = sum(kernels[k].candidate.mask.bit_count() for k in ours)
    if most is None or held > (len(ours) - 1) * most:
        return None
    for k in sorted(ours, key=lambda k: (kernels[k].seconds, k))[:TRIED]:
        hosts = _Hosts(step, most, [kernels[h] for h in ours if h != k])
        whole = kernels[k].candidate
        if all(map(hosts.take, _parts(step.view, whole.mask, whole.outputs))):
            rest = [one for h, one in enumerate(kernels) if h not in ours]
            found = [*hosts.kernels, *rest]
            if is_better(found, kernels):
                return found
    return None


def _parts(view: View, mask: int, outputs: int) -> list[Part]:
    """What hangs together in a kernel, the largest first."""
    groups = Groups(len(view.nodes))
    for i in bits(mask):
        for p in bits(view.before[i] & mask):
            groups.join(i, p)
    found: dict[int, int] = {}
    for i in bits(mask):
        found[groups.top(i)] = found.get(groups.top(i), 0) | 1 << i
    parts = [Part(part, outputs & view.makes(part)) for part in found.values()]
    return sorted(parts, key=lambda part: -part.mask.bit_count())


class _Hosts:
    """Kernels that take parts in."""

    def __init__(self, step: Finishing, most: int, kernels: Sequence[Priced]) -> None:
        self.step = step
        self.most = most
        self.kernels = list(kernels)

    def take(self, part: Part) -> bool:
        """Find room for a part, or for one half and then the other."""
        if self._take_whole(part):
            return True
        room = max((self.most - self._size(h) for h in self._all()), default=0)
        halves = min(
            _halves(self.step.view, part, room),
            key=lambda pair: (-pair[0].mask.bit_count(), pair[1].mask.bit_count()),
            default=None,
        )
        return (
            halves is not None and self._take_whole(halves[0]) and self.take(halves[1])
        )

    def _all(self) -> range:
        return range(len(self.kernels))

    def _size(self, h: int) -> int:
        return self.kernels[h].candidate.mask.bit_count()

    def _take_whole(self, part: Part) -> bool:
        """Add a part to the kernel that it makes least dearer, of the fullest."""
        need = part.mask.bit_count()
        open_ones = [h for h in self._all() if self._size(h) + need <= self.most]
        found: dict[int, Priced] = {}
        for h in sorted(open_ones, key=lambda h: (-self._size(h), h))[:TRIED]:
            host = self.kernels[h].candidate
            grown = self.step.made(host.mask | part.mask, host.outputs | part.outputs)
            if grown is not None:
                found[h] = grown
        if not found:
            return False
        at = min(found, key=lambda h: found[h].seconds - self.kernels[h].seconds)
        self.kernels[at] = found[at]
        return True


def _halves(view: View, part: Part, room: int) -> Iterator[tuple[Part, Part]]:
    """Ways to compute some results of a part first, in so much room, then the rest."""
    results = list(bits(part.outputs))
    most = len(results) if len(results) <= FEW_OUTPUTS else 2
    for size in range(1, most):
        for picked in combinations(results, size):
            first = sum(1 << j for j in picked)
            mask = view.trimmed(part.mask, first)
            if mask.bit_count() > room:
                continue
            makers = 0
            for j in picked:
                makers |= 1 << view.maker[j]
            rest = part.outputs & ~first
            behind = view.trimmed(part.mask & ~makers, rest)
            if behind.bit_count() < part.mask.bit_count():
                yield Part(mask, first), Part(behind, rest)
