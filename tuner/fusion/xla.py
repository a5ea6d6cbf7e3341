"""Fusion groups in the style of XLA's GPU compiler, as a baseline to beat.

Library calls take their epilogues first, then a priority queue: the producer goes next
whose fusion into *all* its users saves most time, into all of them or none, so that it
is computed again in each. Then several outputs: siblings that read the same tensor, and
producers with a user, each of equal extent.

Source: openxla/xla, `xla/backends/gpu/transforms/priority_fusion.cc`,
`softmax_rewriter_triton.cc` and `multi_output_fusion.cc`, and `gpu_fusible.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from tuner.fusion.grouping import (
    Grouping,
    Kernels,
    pairs_of,
    with_library_epilogues,
)
from tuner.fusion.legality import Rules
from tuner.fusion.roofline import KernelTimes, Roofline
from tuner.fusion.rows import row_length
from tuner.fusion.view import bits
from tuner.ir.inference import ints
from tuner.ir.ops import Pattern

MAX_TENSORS: Final = 96
"""`MaxOperandsAndOutputsPerFusion`."""
MAX_REDUCTIONS: Final = 8
"""`kMaxUnnestedReductionOutputsPerFusion`, of kernels with several outputs."""
SMALL_REDUCTION: Final = 16
"""A reduction of fewer elements is a loop like any other."""
SIBLINGS: Final = 8
"""How many of the next readers of a tensor each of them is tried with."""


def xla_groups(
    rules: Rules,
    base: Sequence[int],
    *,
    device: Roofline | None = None,
    several_outputs: bool = True,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Grouping:
    """Kernels that an XLA-style compiler forms, by our legality.

    Args:
        rules: what our families can run.
        base: node masks of the operators that it would see.
        device: what its cost model knows of the device.
        several_outputs: whether multi-output fusion follows the priority queue.
        out_of_time: when what is not yet fused stays apart.
    """
    kernels = Kernels(rules, with_library_epilogues(rules, base, out_of_time))
    times = KernelTimes(rules.view, device or Roofline())
    _PriorityFusion(kernels, times, out_of_time).run()
    if several_outputs:
        _MultiOutput(kernels, times, out_of_time).run()
    return kernels.grouping(base)


class _Fits:
    """What both passes ask of a kernel that they would form."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.view = view = kernels.view
        self.reducing = sum(
            1 << i
            for i in bits(view.masks[Pattern.REDUCTION])
            if row_length(view.graph, view.nodes[i]) >= SMALL_REDUCTION
        )

    def fits(self, mask: int, writes: int) -> bool:
        """Whether a kernel is legal for us and within XLA's walls."""
        if 3 * mask.bit_count() + writes.bit_count() > MAX_TENSORS:  # cheap test first
            view = self.view
            given = {n for i in bits(mask) for n in view.given[i]}
            tensors = sum(not view.is_free(n) for n in given) + writes.bit_count()
            if tensors + view.needs(mask).bit_count() > MAX_TENSORS:
                return False
        return self.kernels.is_legal(mask, writes)

    def reductions(self, k: int) -> list[int]:
        """Reductions of a kernel that are more than a short loop."""
        return list(bits(self.kernels.masks[k] & self.reducing))


class _PriorityFusion(_Fits):
    """The queue of producers."""

    def __init__(
        self, kernels: Kernels, times: KernelTimes, out_of_time: Callable[[], bool]
    ) -> None:
        super().__init__(kernels)
        self.times = times
        self.out_of_time = out_of_time
        self.version = dict.fromkeys(kernels.masks, 0)

    def run(self) -> None:
        """Fuse until no producer saves time."""
        queue = [e for k in self.kernels.masks if (e := self._entry(k)) is not None]
        heapify(queue)
        while queue and not self.out_of_time():
            _, k, version = heappop(queue)
            if k not in self.kernels.masks or self.version[k] != version:
                continue
            if not self._fits_all(k):
                continue
            users, makers = self.kernels.users(k), self.kernels.makers(k)
            self.kernels.inline(k)
            touched = {*users, *makers}
            for user in users:
                touched.update(self.kernels.makers(user))
            for t in sorted(touched):
                self.version[t] += 1
                entry = self._entry(t)
                if entry is not None:
                    heappush(queue, entry)

    def _entry(self, k: int) -> tuple[float, int, int] | None:
        saved = self._saved_seconds(k)
        return None if saved < 0 else (-saved, k, self.version[k])

    def _saved_seconds(self, k: int) -> float:
        """Time saved by fusing a producer into all its users; negative: not at all."""
        kernels = self.kernels
        users = kernels.users(k)
        if not users or kernels.leaves(k) or kernels.is_closed(k):
            return -math.inf
        mask, seconds = kernels.masks[k], self.times.seconds
        saved = seconds(mask, kernels.writes[k])
        for user in users:
            joined = kernels.masks[user] | mask
            if not self._may_fuse(k, user):
                return -math.inf
            saved += seconds(kernels.masks[user], kernels.writes[user])
            saved -= seconds(joined, kernels.writes[user])
        return saved

    def _fits_all(self, k: int) -> bool:
        """Whether a producer with each user is a kernel; asked late, as it is dear."""
        kernels = self.kernels
        mask = kernels.masks[k]
        return all(
            self.fits(kernels.masks[user] | mask, kernels.writes[user])
            for user in kernels.users(k)
        )

    def _may_fuse(self, k: int, user: int) -> bool:
        """One reduction a kernel, with what follows at its size; or a normalisation."""
        if self.kernels.is_closed(user):
            return False
        above = self.reductions(k)
        if not above:
            return True
        if self._is_normalisation(k, user, above):
            return True
        return not self.reductions(user) and self._keeps_size(user, above)

    def _keeps_size(self, user: int, above: Sequence[int]) -> bool:
        """Whether a user works on reduced values alone, so that no loop is redone."""
        most = max(self.times.elements[i] for i in above)
        return all(
            self.times.elements[i] <= most for i in bits(self.kernels.masks[user])
        )

    def _is_normalisation(self, k: int, user: int, above: Sequence[int]) -> bool:
        """A diamond: rows, reduced over the last axis, meet what they were made of."""
        view, kernels = self.view, self.kernels
        for i in above:
            node = view.nodes[i]
            rank = len(view.graph.types[node.inputs[0]].static_shape)
            if ints(node.attributes, "axes") != (rank - 1,):
                return False
        own = self._sources(kernels.masks[k])
        return bool(own & self._sources(kernels.masks[user]))

    def _sources(self, mask: int) -> set[str]:
        view = self.view
        found = {n for i in bits(mask) for n in view.given[i] if not view.is_free(n)}
        tensors = view.needs(mask) | view.makes(mask)
        return found | {view.tensors[j] for j in bits(tensors)}


class _MultiOutput(_Fits):
    """Kernels of several outputs: siblings, then a producer with a user."""

    def __init__(
        self, kernels: Kernels, times: KernelTimes, out_of_time: Callable[[], bool]
    ) -> None:
        super().__init__(kernels)
        self.times = times
        self.out_of_time = out_of_time
        self.place = {k: k for k in kernels.masks}

    def run(self) -> None:
        """Join siblings whatever it costs, and a producer where that is no worse."""
        for members in self._reading_together():
            for a, b in pairs_of(members, SIBLINGS):
                self._try(a, b, siblings=True)
        for k in sorted(self.kernels.masks):
            for user in self.kernels.users(self._now(k))[:SIBLINGS]:
                self._try(k, user, siblings=False)

    def _now(self, k: int) -> int:
        while self.place[k] != k:
            k = self.place[k]
        return k

    def _reading_together(self) -> list[list[int]]:
        """Kernels that read the same tensor, by tensor."""
        view, kernels = self.view, self.kernels
        groups: dict[object, list[int]] = {}
        for k in sorted(kernels.masks):
            if kernels.is_closed(k):
                continue
            given = {n for i in bits(kernels.masks[k]) for n in view.given[i]}
            names: list[object] = [*bits(kernels.needs[k]), *sorted(given)]
            for name in names:
                if not (isinstance(name, str) and view.is_free(name)):
                    groups.setdefault(name, []).append(k)
        return [members for members in groups.values() if len(members) > 1]

    def _try(self, a: int, b: int, *, siblings: bool) -> None:
        first, second = self._now(a), self._now(b)
        if first == second or self.out_of_time():
            return
        if self._walk_alike(first, second) and self._may_join(first, second, siblings):
            joined = self.kernels.join(first, second)
            self.place[first] = self.place[second] = joined

    def _may_join(self, a: int, b: int, siblings: bool) -> bool:
        kernels = self.kernels
        feeds = (
            kernels.needs[a] & kernels.writes[b] | kernels.needs[b] & kernels.writes[a]
        )
        if siblings and feeds:
            return False
        if len(self.reductions(a)) + len(self.reductions(b)) > MAX_REDUCTIONS:
            return False
        mask, writes = kernels.masks[a] | kernels.masks[b], kernels.joined_writes(a, b)
        if kernels.leads_around(a, b) or not self.fits(mask, writes):
            return False
        return siblings or self._is_no_worse(a, b, mask, writes)

    def _is_no_worse(self, a: int, b: int, mask: int, writes: int) -> bool:
        kernels, seconds = self.kernels, self.times.seconds
        apart = sum(seconds(kernels.masks[k], kernels.writes[k]) for k in (a, b))
        return seconds(mask, writes) <= apart

    def _walk_alike(self, a: int, b: int) -> bool:
        """Whether both loop over as many elements, and reduce equal rows if any."""
        if self.kernels.is_closed(a) or self.kernels.is_closed(b):
            return False
        (walked, row), (other, rows) = self._extent(a), self._extent(b)
        return walked == other and (row == rows or 1 in (row, rows))

    def _extent(self, k: int) -> tuple[int, int]:
        """Elements that a kernel walks over, and the length of rows that it reduces."""
        view, types = self.view, self.view.graph.types
        found = self.reductions(k)
        if not found:
            written = (view.tensors[j] for j in bits(self.kernels.writes[k]))
            return (max(types[name].elements for name in written), 1)
        operands = (view.nodes[i].inputs[0] for i in found)
        rows = (row_length(view.graph, view.nodes[i]) for i in found)
        return (max(types[name].elements for name in operands), max(rows))
