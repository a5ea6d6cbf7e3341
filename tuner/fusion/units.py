"""The steps in which kernels grow: nodes, or groups of nodes that stay together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuner.fusion.legality import ANCHORS, Limits, Profile, Rules
from tuner.fusion.view import View, bits, joined
from tuner.ir.ops import Pattern

LIGHT: Final = 64
"""A tensor this many times smaller than what its reader touches joins nobody."""
MANY_READERS: Final = 64
"""Of more readers of one tensor, each joins only those next to it in graph order."""
NEAR_READERS: Final = 4
"""How many of them on each side."""
LONG_RUN: Final = 16
"""A run of more nodes is not taken for granted in a reader that repeats its result."""
_UNARY_MOVES: Final = frozenset({"slice", "expand", "pad", "gather", "transpose"})


class Units:
    """Groups of nodes, in topological order, as masks; bit `u` is `masks[u]`.

    Attributes:
        masks: node mask of each unit.
        above, below: unit mask of all predecessors and successors.
        feeders: unit mask of the units whose tensors a unit reads.
        weights: bytes of the largest tensor that each unit touches.
        partners: unit mask of units joined by a tensor worth saving: one makes and
            the other reads it, or both read it.
        light: unit mask of the units that feed a unit next to nothing: all that they
            touch is less than 1/64 of what the reader touches. They are no reason to
            share a kernel; a kernel takes all of them in, or none.
        stored: tensor mask of what is in memory in every plan.
        inner: tensor mask of what only nodes of the unit that makes it read.
    """

    def __init__(
        self, view: View, groups: Sequence[int], *, prologues: bool = False
    ) -> None:
        """Join groups of nodes by what they read and make.

        Args:
            view: the graph.
            groups: node mask of each unit.
            prologues: whether a kernel may compute what its contraction reads.
        """
        self.view = view
        self.masks = tuple(sorted(groups, key=lambda mask: mask.bit_length()))
        self.unit_of = [0] * len(view.nodes)
        for u, mask in enumerate(self.masks):
            for i in bits(mask):
                self.unit_of[i] = u
        self.feeders = tuple(self._lift(mask, view.before) for mask in self.masks)
        readers = tuple(self._lift(mask, view.after) for mask in self.masks)
        self.above = _closure(self.feeders, readers)
        self.below = _closure(readers, self.feeders)
        self.weights = tuple(self._weight(mask) for mask in self.masks)
        self.light, self.partners = self._joined()
        self.stored = _stored(view, prologues=prologues)
        self.inner = self._inner()

    def __len__(self) -> int:
        return len(self.masks)

    def nodes(self, units: int) -> int:
        """Node mask of a unit mask."""
        return joined(self.masks, units)

    def of(self, nodes: int) -> int:
        """Unit mask of the units that hold these nodes."""
        found = 0
        for i in bits(nodes):
            found |= 1 << self.unit_of[i]
        return found

    def _inner(self) -> int:
        view, found = self.view, 0
        for j, maker in enumerate(view.maker):
            readers = view.readers[j] & ~self.masks[self.unit_of[maker]]
            if not readers and not view.delivered >> j & 1:
                found |= 1 << j
        return found

    def _lift(self, mask: int, relation: Sequence[int]) -> int:
        found = 0
        for i in bits(mask):
            found |= relation[i]
        return self.of(found & ~mask)

    def _touched(self, mask: int) -> dict[str, int]:
        """Bytes of every home tensor that the nodes read or make."""
        view = self.view
        names = {
            view.home[name]
            for i in bits(mask)
            for name in (*view.nodes[i].inputs, *view.nodes[i].outputs)
        }
        return {name: view.graph.types[name].bytes for name in sorted(names)}

    def _weight(self, mask: int) -> int:
        return max(self._touched(mask).values(), default=0)

    def _joined(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        light = [0] * len(self.masks)
        partners = [0] * len(self.masks)
        for u in range(len(self.masks)):
            for p in bits(self.feeders[u]):
                if self.weights[p] * LIGHT < self.weights[u]:
                    light[u] |= 1 << p
                else:
                    partners[u] |= 1 << p
                    partners[p] |= 1 << u
        for size, group in self._reading_together():
            near = [u for u in bits(group) if size * LIGHT >= self.weights[u]]
            for at, u in enumerate(near):
                first = max(0, at - NEAR_READERS) if len(near) > MANY_READERS else 0
                last = at + NEAR_READERS if len(near) > MANY_READERS else len(near)
                partners[u] |= sum(1 << v for v in near[first : last + 1])
        return tuple(light), tuple(p & ~(1 << u) for u, p in enumerate(partners))

    def _reading_together(self) -> list[tuple[int, int]]:
        """Bytes of each tensor that several units read, and these units."""
        view = self.view
        groups: dict[str, int] = {}
        for i, node in enumerate(view.nodes):
            for name in dict.fromkeys(view.home[n] for n in node.inputs):
                if not view.is_free(name):
                    own = 1 << self.unit_of[i]
                    groups[name] = groups.get(name, 0) | own
        types = view.graph.types
        return [(types[n].bytes, g) for n, g in groups.items() if g & (g - 1)]


def _closure(near: Sequence[int], far: Sequence[int]) -> tuple[int, ...]:
    """All that is reached along `near`, whose opposite is `far`; there are no rings."""
    found = [0] * len(near)
    missing = [mask.bit_count() for mask in near]
    ready = [u for u, count in enumerate(missing) if not count]
    while ready:
        u = ready.pop()
        for v in bits(near[u]):
            found[u] |= found[v] | 1 << v
        for w in bits(far[u]):
            missing[w] -= 1
            if not missing[w]:
                ready.append(w)
    return tuple(found)


def whole_composites(view: View) -> list[int]:
    """The user's nodes, whole; one that is not convex falls apart into its nodes."""
    groups, covered = [], 0
    for mask in view.composites.values():
        if view.is_convex(mask):
            groups.append(mask)
            covered |= mask
    return groups + [1 << i for i in bits(view.everything & ~covered)]


def glued(rules: Rules, groups: Sequence[int]) -> list[int]:
    """Join nodes with one operand to their only reader.

    Let `v` have one operand that costs anything, `a`, with no more bytes than the
    result `t` of `v`; let the unit `w` be the only reader of `t`, and no contraction,
    window or opaque node; and let `t` not be delivered. Then under any price that is
    a launch cost plus bytes moved some best plan computes `v` in every kernel that
    computes `w`: such a kernel may read `a` where it read `t`, which costs no more; the
    kernel that wrote `t` writes `a` instead if it had it inside, which costs no more
    either, and else drops `v`. A unary node changes no row and adds no order.

    The same holds for a `v` with several operands that are given, and together no more
    than twice as large as `t`, when the reader is a reduction to less than half of
    `t`: no second kernel reduces again what one can write, so `t` would be written
    once and read once.

    For other prices this is a rule of the candidate space. Under `full` transposes
    stay free, because to walk through memory in the wrong order is not free there, and
    so do nodes right behind a contraction, because libraries fuse some of them. No
    group grows larger than a kernel may be: a longer chain is cut from its end.
    """
    view = rules.view
    found = _Growing(view, groups)
    for i in reversed(range(len(view.nodes))):
        cheap = _is_cheap_unary(view, i, rules.profile) and not (
            rules.profile == "full" and _is_repeated(view, i) and _is_long_run(view, i)
        )
        if not found.is_alone(i) or not (cheap or _is_cheap_before_reduction(view, i)):
            continue
        readers = {found.group[r] for r in bits(view.after[i])}
        if len(readers) == 1 and not view.made[i] & view.delivered:
            found.join(i, readers.pop(), rules.limits)
    return found.groups()


class _Growing:
    """Groups that single nodes in front of them join, last ones first.

    Attributes:
        group: the group of each node.
        masks: nodes of each group.
    """

    def __init__(self, view: View, groups: Sequence[int]) -> None:
        self.view = view
        self.masks = list(groups)
        self.group = [0] * len(view.nodes)
        for g, mask in enumerate(groups):
            for i in bits(mask):
                self.group[i] = g
        stops = view.masks[Pattern.OPAQUE]
        for pattern in ANCHORS:
            stops |= view.masks[pattern]
        self._is_closed = [bool(mask & stops) for mask in groups]
        simple = view.masks[Pattern.ELEMENTWISE]
        self._head = [m if m & (m - 1) == 0 and m & simple else 0 for m in groups]

    def is_alone(self, i: int) -> bool:
        """Whether nothing has joined a node, and it was not whole with others."""
        return self.masks[self.group[i]].bit_count() == 1

    def join(self, i: int, g: int, limits: Limits) -> None:
        """Let a node join its reader's group, if a kernel may hold them."""
        view, own = self.view, 1 << i
        joined = self.masks[g] | own
        simple = bool(own & view.masks[Pattern.ELEMENTWISE])
        is_chain = simple and view.after[i] == self._head[g]
        if self._is_closed[g] or limits.size_fault(joined, is_chain=is_chain):
            return
        self._head[g] = own if is_chain else 0
        self.masks[self.group[i]] = 0
        self.masks[g] = joined
        self.group[i] = g

    def groups(self) -> list[int]:
        """Node masks, in graph order of their last nodes."""
        return sorted(filter(None, self.masks), key=lambda mask: mask.bit_length())


def _is_cheap_unary(view: View, i: int, profile: Profile) -> bool:
    node = view.nodes[i]
    if view.patterns[i] is Pattern.INJECTIVE:
        if node.op not in _UNARY_MOVES or (
            profile == "full" and node.op == "transpose"
        ):
            return False
    elif view.patterns[i] is not Pattern.ELEMENTWISE:
        return False
    homes = dict.fromkeys(view.home[name] for name in node.inputs)
    operands = [name for name in homes if not view.is_free(name)]
    if len(operands) != 1:
        return False
    behind = view.index.get(_maker(view, operands[0]))
    if profile == "full" and behind is not None and view.patterns[behind] in ANCHORS:
        return False
    types = view.graph.types
    narrowing = node.op in ("slice", "gather", "pad")
    result = types[node.outputs[0]].bytes
    return narrowing or types[operands[0]].bytes <= result


def _is_repeated(view: View, i: int) -> bool:
    """Whether a reader computes more elements than it reads of a node."""
    types, name = view.graph.types, view.nodes[i].outputs[0]
    return any(
        view.patterns[k] is Pattern.ELEMENTWISE
        and types[view.nodes[k].outputs[0]].elements > types[name].elements
        for k in bits(view.after[i])
    )


def _is_long_run(view: View, i: int) -> bool:
    """Whether many element-wise nodes, each with one reader, lead up to a node."""
    for _ in range(LONG_RUN):
        before = view.before[i] & view.masks[Pattern.ELEMENTWISE]
        if before.bit_count() != 1:
            return False
        i = before.bit_length() - 1
        if view.after[i].bit_count() != 1:
            return False
    return True


def _is_cheap_before_reduction(view: View, i: int) -> bool:
    readers = list(bits(view.after[i]))
    if view.patterns[i] is not Pattern.ELEMENTWISE or len(readers) != 1:
        return False
    types = view.graph.types
    (reader,) = readers
    result = types[view.nodes[i].outputs[0]].bytes
    reduced = types[view.nodes[reader].outputs[0]].bytes
    if view.patterns[reader] is not Pattern.REDUCTION or 2 * reduced > result:
        return False
    read = sum(view.given_bytes[name] for name in view.given[i])
    return not view.reads[i] and read <= 2 * result


def _maker(view: View, tensor: str) -> str:
    node = view.graph.producer(tensor)
    return "" if node is None else node.name


def _stored(view: View, *, prologues: bool) -> int:
    """Tensors that are in memory in every plan: delivered, or read from there."""
    found = view.delivered
    for i, pattern in enumerate(view.patterns):
        if pattern is Pattern.OPAQUE:
            found |= view.reads[i]
        elif pattern in ANCHORS and not prologues:
            for j in bits(view.reads[i]):
                if view.nodes[view.maker[j]].op != "transpose":
                    found |= 1 << j
    return found
