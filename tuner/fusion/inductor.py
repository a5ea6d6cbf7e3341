"""Fusion groups in the style of PyTorch Inductor, as a baseline to beat.

Rounds over all pairs of kernels that share memory, most shared bytes first, until a
round changes nothing; a pair may be producer and reader, or two readers of one tensor
(horizontal). What is left between kernels is written into its readers, unless much
feeds it and many read it. Inductor does that first, before its scheduler sees a node;
here the scheduler sees every operator, as its byte goldens have it.

Source: pytorch, `torch/_inductor/scheduler.py` (`fuse_nodes`, `score_fusion`),
`torch/_inductor/ir.py` (`realize`, `should_realize_on_reuse`), `lowering.py` (`cat`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tuner.fusion.grouping import (
    Grouping,
    Kernels,
    pairs_of,
    with_library_epilogues,
)
from tuner.fusion.legality import Rules
from tuner.fusion.view import View, bits
from tuner.ir.inference import ints
from tuner.ir.ops import Pattern

MAX_FUSION_NODES: Final = 64
"""`torch._inductor.config.max_fusion_size`."""
LEAST_SHARED_BYTES: Final = 10
"""`torch._inductor.config.score_fusion_memory_threshold`, of horizontal pairs."""
PAIRS_OF_A_BUFFER: Final = 64
"""`torch._inductor.config.max_fusion_buffer_group_pairwise_attempts`."""
FAR: Final = 64
"""Horizontal partners further apart in the order of kernels raise peak memory."""
ROUNDS: Final = 10
"""`Scheduler.fuse_nodes` stops after so many rounds."""
REUSE: Final = 2
"""A producer is stored when `(reads - 1) * (readers - 1)` is at least this."""
MAX_CONCAT_OPERANDS: Final = 4
"""`torch._inductor.config.max_pointwise_cat_inputs`, as the byte goldens have it."""
MAX_UNROLLED: Final = 4
"""Longest reduction that is written out as a sum, as the byte goldens have it."""

_Extent = tuple[int, int]
"""Elements of a kernel's result, and how many each is reduced from (1: pointwise)."""


def inductor_groups(
    rules: Rules,
    base: Sequence[int],
    *,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Grouping:
    """Kernels that an Inductor-style scheduler forms, by our legality.

    Args:
        rules: what our families can run.
        base: node masks of the operators that the scheduler sees.
        out_of_time: when what is not yet joined stays apart.
    """
    kernels = Kernels(rules, with_library_epilogues(rules, base, out_of_time))
    _inline(kernels, _feeds_unrolled, out_of_time)
    _write_in_place(kernels)
    _fuse(kernels, out_of_time)
    if _inline(kernels, _is_cheap, out_of_time):
        _fuse(kernels, out_of_time)
    return kernels.grouping(base)


def _fuse(kernels: Kernels, out_of_time: Callable[[], bool]) -> None:
    scheduler = _Scheduler(kernels, out_of_time)
    for _ in range(ROUNDS):
        if not scheduler.round():
            break


def _inline(
    kernels: Kernels,
    applies: Callable[[Kernels, int], bool],
    out_of_time: Callable[[], bool],
) -> bool:
    """Compute kernels in their readers, from the last to the first; whether any was."""
    changed = False
    for k in sorted(kernels.masks, reverse=True):
        if out_of_time():
            break
        if _is_stored(kernels, k) or not applies(kernels, k):
            continue
        mask = kernels.masks[k]
        if all(
            kernels.is_legal(kernels.masks[r] | mask, kernels.writes[r])
            for r in kernels.users(k)
        ):
            kernels.inline(k)
            changed = True
    return changed


def _feeds_unrolled(kernels: Kernels, k: int) -> bool:
    """Whether a result is a part of the sums that its readers are written out as."""
    reductions = kernels.view.masks[Pattern.REDUCTION]
    return all(kernels.masks[r] & reductions for r in kernels.users(k)) and all(
        _is_unrolled(kernels.view, kernels.masks[r]) for r in kernels.users(k)
    )


def _is_cheap(kernels: Kernels, k: int) -> bool:
    """Whether little feeds a result, or few read it."""
    view = kernels.view
    given = {n for i in bits(kernels.masks[k]) for n in view.given[i]}
    reads = kernels.needs[k].bit_count() + sum(not view.is_free(n) for n in given)
    return (reads - 1) * (len(kernels.users(k)) - 1) < REUSE


def _is_stored(kernels: Kernels, k: int) -> bool:
    """Whether what a kernel writes has memory of its own whatever it costs."""
    view, mask = kernels.view, kernels.masks[k]
    readers = kernels.users(k)
    if kernels.leaves(k) or kernels.is_closed(k) or not readers:
        return True
    if any(kernels.is_closed(r) for r in readers) or kernels.writes[k].bit_count() > 1:
        return True
    if mask & view.masks[Pattern.REDUCTION] and not _is_unrolled(view, mask):
        return True
    return _is_copying_concat(view, mask)


def _write_in_place(kernels: Kernels) -> None:
    """Join the operands of copying concatenations with them."""
    for k in [
        k for k, m in kernels.masks.items() if _is_copying_concat(kernels.view, m)
    ]:
        at = k
        for maker in kernels.makers(k):
            alone = kernels.users(maker) == [at] and not kernels.leaves(maker)
            mask = kernels.masks[maker] | kernels.masks[at]
            if alone and kernels.is_legal(mask, kernels.writes[at]):
                at = kernels.join(maker, at)


def _is_unrolled(view: View, mask: int) -> bool:
    return all(
        _reduced(view, i) <= MAX_UNROLLED
        for i in bits(mask & view.masks[Pattern.REDUCTION])
    )


def _is_copying_concat(view: View, mask: int) -> bool:
    """A concatenation whose operands are written into place, not read from there.

    Its producers then end in it: of many operands, or of reductions.
    """
    for i in bits(mask):
        node = view.nodes[i]
        if node.op == "concat":
            above = view.before[i] & view.masks[Pattern.REDUCTION]
            return len(node.inputs) > MAX_CONCAT_OPERANDS or bool(above)
    return False


class _Scheduler:
    """Rounds of joins."""

    def __init__(self, kernels: Kernels, out_of_time: Callable[[], bool]) -> None:
        self.kernels = kernels
        self.view = kernels.view
        self.out_of_time = out_of_time
        self.extents = {k: self._extent(m) for k, m in kernels.masks.items()}
        view = kernels.view
        self.barred = {
            k for k, m in kernels.masks.items() if _is_copying_concat(view, m)
        }
        self.refused: dict[int, set[int]] = {k: set() for k in kernels.masks}
        self._memory: dict[int, dict[object, int]] = {}
        self.order = {k: (k, k) for k in kernels.masks}

    def round(self) -> bool:
        """Join what can be joined, best pairs first; whether anything was."""
        place = {k: k for k in self.kernels.masks}
        joined = False
        for _, _, _, a, b in sorted(self._scored()):
            first, second = _follow(place, a), _follow(place, b)
            if first == second or self.out_of_time():
                continue
            if self._may_join(first, second):
                place[first] = place[second] = self._join(first, second)
                joined = True
        return joined

    def _scored(self) -> list[tuple[bool, int, int, int, int]]:
        """Pairs that share memory: kind, bytes, distance; smallest is best."""
        groups: dict[object, set[int]] = {}
        for k in self.kernels.masks:
            if not self.kernels.is_closed(k):
                for name in self._touched(k):
                    groups.setdefault(name, set()).add(k)
        pairs = {
            pair
            for members in groups.values()
            for pair in pairs_of(members, PAIRS_OF_A_BUFFER)
        }
        found = []
        for a, b in pairs:
            if self._suits(a, b):
                alike = (self.extents[a][1] > 1) == (self.extents[b][1] > 1)
                shared = self._shared_bytes(a, b)
                found.append((not alike, -shared, self._distance(a, b), a, b))
        return found

    def _touched(self, k: int) -> dict[object, int]:
        """Bytes of every tensor in memory that a kernel reads or writes."""
        if k in self._memory:
            return self._memory[k]
        view = self.view
        found: dict[object, int] = {
            j: view.bytes[j]
            for j in bits(self.kernels.needs[k] | self.kernels.writes[k])
        }
        for i in bits(self.kernels.masks[k]):
            for name in view.given[i]:
                found[name] = view.given_bytes[name]
        self._memory[k] = found
        return found

    def _shared_bytes(self, a: int, b: int) -> int:
        first, second = self._touched(a), self._touched(b)
        return sum(first[name] for name in first.keys() & second.keys())

    def _distance(self, a: int, b: int) -> int:
        first, second = self.order[a], self.order[b]
        return max(abs(first[0] - second[1]), abs(second[0] - first[1]))

    def _may_join(self, a: int, b: int) -> bool:
        if b in self.refused[a]:
            return False
        fine = self._fits(a, b)
        if not fine:
            self.refused[a].add(b)
            self.refused[b].add(a)
        return fine

    def _fits(self, a: int, b: int) -> bool:
        kernels = self.kernels
        mask = kernels.masks[a] | kernels.masks[b]
        return (
            self._suits(a, b)
            and not kernels.leads_around(a, b)
            and kernels.is_legal(mask, kernels.joined_writes(a, b))
        )

    def _suits(self, a: int, b: int) -> bool:
        """What can be said of a pair at little cost."""
        kernels = self.kernels
        if b in self.refused[a] or kernels.is_closed(a) or kernels.is_closed(b):
            return False
        if not self._walk_alike(a, b):
            return False
        mask = kernels.masks[a] | kernels.masks[b]
        return mask.bit_count() <= MAX_FUSION_NODES and self._is_worth_it(a, b)

    def _is_worth_it(self, a: int, b: int) -> bool:
        reads, writes = self.kernels.needs, self.kernels.writes
        if reads[b] & writes[a] or reads[a] & writes[b]:
            return not self.barred.intersection({a} if reads[b] & writes[a] else {b})
        return (
            self._shared_bytes(a, b) >= LEAST_SHARED_BYTES
            and self._distance(a, b) <= FAR
        )

    def _walk_alike(self, a: int, b: int) -> bool:
        """Whether both kernels run over the same numbers of elements."""
        (n, r), (m, s) = self.extents[a], self.extents[b]
        if r > 1 and s > 1:
            return (n, r) == (m, s)
        if r == s == 1:
            return n == m
        pointwise = m if s == 1 else n
        kept, reduced = (n, r) if r > 1 else (m, s)
        return pointwise in (kept, kept * reduced)

    def _join(self, a: int, b: int) -> int:
        low = min(self.order[a][0], self.order[b][0])
        high = max(self.order[a][1], self.order[b][1])
        extent = max(self.extents[a], self.extents[b], key=lambda e: (e[1], e[0]))
        barred = bool(self.barred.intersection({a, b}))
        k = self.kernels.join(a, b)
        for old in (a, b):
            self._memory.pop(old, None)
            for other in self.refused.pop(old):
                self.refused.get(other, set()).discard(old)
        self.refused[k] = set()
        self.order[k], self.extents[k] = (low, high), extent
        if barred:
            self.barred.add(k)
        return k

    def _extent(self, mask: int) -> _Extent:
        view = self.view
        reductions = mask & view.masks[Pattern.REDUCTION]
        longest = max((_reduced(view, i) for i in bits(reductions)), default=1)
        longest = longest if longest > MAX_UNROLLED else 1
        sizes = [
            view.graph.types[view.nodes[i].outputs[0]].elements for i in bits(mask)
        ]
        if longest <= 1:
            return (sizes[-1], 1)
        kept = [
            view.graph.types[view.nodes[i].outputs[0]].elements
            for i in bits(reductions)
            if _reduced(view, i) == longest
        ]
        return (kept[-1], longest)


def _reduced(view: View, i: int) -> int:
    """How many elements one result of a reduction is made of."""
    node = view.nodes[i]
    shape = view.graph.types[node.inputs[0]].static_shape
    return math.prod(shape[axis] for axis in ints(node.attributes, "axes"))


def _follow(place: dict[int, int], k: int) -> int:
    while place[k] != k:
        k = place[k]
    return k
