"""Kernels that a greedy strategy joins pair by pair; a node may be in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tuner.fusion.legality import ANCHORS, Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.view import View, bits
from tuner.ir.ops import Pattern
from tuner.plan import Family

Grouping = tuple[tuple[int, int], ...]
"""Node mask and tensor mask (what it writes) of every kernel."""
GENERATED_HERE = frozenset({Family.POINTWISE, Family.REDUCTION})
_EPILOGUE_NODES = 16


class Kernels:
    """A changing set of kernels, by number.

    Attributes:
        masks: nodes of each kernel.
        writes: tensors that each kernel can write: those that it was made to make.
        needs: tensors of others that each reads.
        readers: kernels that read each tensor.
        writer: the kernel that writes each tensor.
        rank: a place for each kernel such that it reads only what lower ones write.
    """

    def __init__(self, rules: Rules, base: Sequence[int]) -> None:
        """Start from operators, or groups of them."""
        self.rules = rules
        self.view: View = rules.view
        self.masks: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.needs: dict[int, int] = {}
        self.readers: dict[int, set[int]] = {}
        self.writer: dict[int, int] = {}
        view = self.view
        stops = view.masks[Pattern.OPAQUE]
        for pattern in ANCHORS:
            stops |= view.masks[pattern]
        self.closed = stops
        for k, mask in enumerate(sorted(base, key=lambda m: m.bit_length())):
            self._put(k, mask, view.wanted(mask))
        order, _ = runnable_order(list(self.needs.values()), list(self.writes.values()))
        self.rank = {k: place for place, k in enumerate(order)}

    def _put(self, k: int, mask: int, writes: int) -> None:
        self.masks[k], self.writes[k] = mask, writes
        self.needs[k] = self.view.needs(mask)
        for j in bits(self.needs[k]):
            self.readers.setdefault(j, set()).add(k)
        for j in bits(writes):
            self.writer[j] = k

    def _take(self, k: int) -> tuple[int, int]:
        for j in bits(self.needs.pop(k)):
            self.readers[j].discard(k)
        for j in bits(self.writes[k]):
            if self.writer.get(j) == k:
                del self.writer[j]
        return self.masks.pop(k), self.writes.pop(k)

    def is_closed(self, k: int) -> bool:
        """Whether a kernel holds an anchor or an opaque node."""
        return bool(self.masks[k] & self.closed)

    def users(self, k: int) -> list[int]:
        """Kernels that read what a kernel writes, lowest first."""
        found: set[int] = set()
        for j in bits(self.writes[k]):
            found |= self.readers.get(j, set())
        return sorted(found)

    def makers(self, k: int) -> list[int]:
        """Kernels that write what a kernel reads, lowest first."""
        return sorted({self.writer[j] for j in bits(self.needs[k])})

    def leaves(self, k: int) -> bool:
        """Whether a kernel writes something that the graph delivers."""
        return bool(self.writes[k] & self.view.delivered)

    def is_legal(self, mask: int, outputs: int) -> bool:
        """Whether one of our generated families runs these nodes."""
        family = self.rules.judge(mask, outputs)
        return not isinstance(family, Refusal) and family in GENERATED_HERE

    def inline(self, k: int) -> None:
        """Compute a kernel in each of its readers instead."""
        readers = self.users(k)
        mask, _ = self._take(k)
        for r in readers:
            own, writes = self._take(r)
            self._put(r, own | mask, writes)

    def join(self, a: int, b: int) -> int:
        """Make one kernel of two that writes what others read of them; its number."""
        low, high = sorted((a, b), key=self.rank.__getitem__)
        self._make_room(low, high)
        first, second = self._take(a), self._take(b)
        mask = first[0] | second[0]
        writes = first[1] | second[1]
        kept = writes & self.view.delivered
        for j in bits(writes & ~kept):
            if self.readers.get(j):
                kept |= 1 << j
        self._put(min(a, b), mask, kept)
        return min(a, b)

    def joined_writes(self, a: int, b: int) -> int:
        """What one kernel of two would write."""
        both = self.writes[a] | self.writes[b]
        kept = both & self.view.delivered
        for j in bits(both & ~kept):
            if self.readers.get(j, set()) - {a, b}:
                kept |= 1 << j
        return kept

    def leads_around(self, a: int, b: int) -> bool:
        """Whether a third kernel lies between two: joined, they would form a ring."""
        low, high = sorted((a, b), key=self.rank.__getitem__)
        last = self.rank[high]
        stack = [r for r in self.users(low) if self.rank[r] < last]
        seen = set(stack)
        while stack:
            for r in self.users(stack.pop()):
                if r == high:
                    return True
                if self.rank[r] < last and r not in seen:
                    seen.add(r)
                    stack.append(r)
        return False

    def _make_room(self, low: int, high: int) -> None:
        """Order the kernels between two that become one; no path leads around them.

        What the higher one waits for comes before both, what waits for the lower one
        behind, in the places that all of them had (D. Pearce, P. Kelly, "A dynamic
        topological sort algorithm for directed acyclic graphs", JEA 11, 2007).
        """
        first, last = self.rank[low], self.rank[high]
        before = self._near(high, self.makers, lambda rank: rank > first)
        behind = self._near(low, self.users, lambda rank: rank < last)
        moved = [*sorted(before - {low}, key=self.rank.__getitem__), low, high]
        moved += sorted(behind - {high}, key=self.rank.__getitem__)
        places = sorted(self.rank[k] for k in moved)
        for k, place in zip(moved, places, strict=True):
            self.rank[k] = place
        self.rank[min(low, high)] = self.rank[low]

    def _near(
        self,
        start: int,
        following: Callable[[int], list[int]],
        is_between: Callable[[int], bool],
    ) -> set[int]:
        found: set[int] = set()
        stack = [start]
        while stack:
            for k in following(stack.pop()):
                if k not in found and is_between(self.rank[k]):
                    found.add(k)
                    stack.append(k)
        return found

    def grouping(self, base: Sequence[int]) -> Grouping:
        """The kernels, each writing only what others read or the graph delivers.

        Kernels that wait for each other are taken apart into operators.
        """
        kernels = self._trimmed()
        order, stuck = runnable_order(
            [self.view.needs(mask) for mask, _ in kernels], [w for _, w in kernels]
        )
        if not stuck:
            return tuple(kernels[k] for k in order)
        torn = 0
        for k in stuck:
            torn |= kernels[k][0]
        fine = [kernels[k] for k in order]
        loose = [(unit, self.view.wanted(unit)) for unit in base if unit & torn]
        return (*fine, *loose)

    def _trimmed(self) -> list[tuple[int, int]]:
        found = []
        wanted = self.view.delivered
        for needs in self.needs.values():
            wanted |= needs
        for k in sorted(self.masks):
            writes = self.writes[k] & wanted
            mask = self.view.trimmed(self.masks[k], writes)
            if mask:
                found.append((mask, writes))
        return found


def with_library_epilogues(
    rules: Rules, base: Sequence[int], out_of_time: Callable[[], bool]
) -> list[int]:
    """Operators, with each anchor joined by what its library runs in the same call.

    Both XLA (`gemm_rewriter.cc`, `cudnn_fused_conv_rewriter.cc`) and Inductor do this
    by pattern before anything else is fused. Behind a convolution cuDNN fuses more
    activations at run time (ReLU6, ELU, leaky ReLU) than our library family names;
    there our own family stands in.
    """
    view = rules.view
    unit_of = {i: mask for mask in base for i in bits(mask)}
    taken: dict[int, int] = {}
    for mask in sorted(base, key=lambda m: m.bit_length()):
        anchors = any(mask & view.masks[pattern] for pattern in ANCHORS)
        if anchors and mask not in taken and not out_of_time():
            group = _grown(rules, mask, unit_of, taken)
            for i in bits(group):
                taken[unit_of[i]] = group
    return sorted({taken.get(mask, mask) for mask in base})


def _grown(
    rules: Rules, anchor: int, unit_of: dict[int, int], taken: dict[int, int]
) -> int:
    """An anchor with the most nodes behind it that one library call runs."""
    view = rules.view
    best = grown = anchor
    while grown.bit_count() < anchor.bit_count() + _EPILOGUE_NODES:
        following = list(_readers(view, grown))
        if not following:
            break
        unit = unit_of[min(following)]
        if unit & ~view.masks[Pattern.ELEMENTWISE] or unit in taken:
            break
        grown |= unit
        if _is_library_call(rules, grown):
            best = grown
    return best


def _readers(view: View, mask: int) -> Iterator[int]:
    after = 0
    for i in bits(mask):
        after |= view.after[i]
    yield from bits(after & ~mask)


def _is_library_call(rules: Rules, mask: int) -> bool:
    view = rules.view
    outputs = view.wanted(mask)
    if outputs & (outputs - 1):
        return False
    if not view.is_convex(mask):
        return False
    family = rules.judge(mask, outputs)
    return family is Family.LIBRARY or (
        family is Family.CONTRACTION
        and any(view.nodes[i].op == "conv" for i in bits(mask))
    )


def pairs_of(members: Iterable[int], most: int) -> Iterator[tuple[int, int]]:
    """Pairs of a set, lowest first, each member with the next `most` ones."""
    ordered = sorted(members)
    for at, a in enumerate(ordered):
        for b in ordered[at + 1 : at + 1 + most]:
            yield a, b
