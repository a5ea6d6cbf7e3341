"""The steps in which kernels grow: nodes, or groups of nodes that stay together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuner.fusion.legality import ANCHORS, Profile
from tuner.fusion.view import FREE_ELEMENTS, View, bits
from tuner.ir.ops import Pattern

_UNARY_MOVES: Final = frozenset({"slice", "expand", "pad", "gather", "transpose"})


class Units:
    """Groups of nodes, in topological order, as masks; bit `u` is `masks[u]`.

    Attributes:
        masks: node mask of each unit.
        above, below: unit mask of all predecessors and successors.
        feeders: unit mask of the units whose tensors a unit reads.
        partners: unit mask of units joined by a tensor worth saving: one makes and
            the other reads it, or both read it. Tensors of up to 64 elements join
            nobody: to save a scalar is no reason to share a kernel.
        small: unit mask of units that read and make nothing but such tensors.
    """

    def __init__(self, view: View, groups: Sequence[int]) -> None:
        self.view = view
        self.masks = tuple(sorted(groups, key=lambda mask: mask.bit_length()))
        self.unit_of = [0] * len(view.nodes)
        for u, mask in enumerate(self.masks):
            for i in bits(mask):
                self.unit_of[i] = u
        self.above = tuple(self._lift(mask, view.above) for mask in self.masks)
        self.below = tuple(self._lift(mask, view.below) for mask in self.masks)
        self.feeders = tuple(self._lift(mask, view.before) for mask in self.masks)
        self.partners = self._partners()
        self.small = self._small()

    def __len__(self) -> int:
        return len(self.masks)

    def nodes(self, units: int) -> int:
        """Node mask of a unit mask."""
        found = 0
        for u in bits(units):
            found |= self.masks[u]
        return found

    def of(self, nodes: int) -> int:
        """Unit mask of the units that hold these nodes."""
        found = 0
        for i in bits(nodes):
            found |= 1 << self.unit_of[i]
        return found

    def _lift(self, mask: int, relation: Sequence[int]) -> int:
        found = 0
        for i in bits(mask):
            found |= relation[i]
        return self.of(found & ~mask)

    def _partners(self) -> tuple[int, ...]:
        view = self.view
        groups: dict[str, int] = {}
        for i, node in enumerate(view.nodes):
            own = 1 << self.unit_of[i]
            for name in (*node.outputs, *(view.home[n] for n in node.inputs)):
                if view.graph.types[name].elements > FREE_ELEMENTS:
                    groups[name] = groups.get(name, 0) | own
        partners = [0] * len(self.masks)
        for group in groups.values():
            for u in bits(group):
                partners[u] |= group
        return tuple(p & ~(1 << u) for u, p in enumerate(partners))

    def _small(self) -> int:
        found = 0
        types = self.view.graph.types
        for u, mask in enumerate(self.masks):
            nodes = [self.view.nodes[i] for i in bits(mask)]
            names = {n for node in nodes for n in (*node.inputs, *node.outputs)}
            if all(types[name].elements <= FREE_ELEMENTS for name in names):
                found |= 1 << u
        return found


def whole_composites(view: View) -> list[int]:
    """The user's nodes, whole; one that is not convex falls apart into its nodes."""
    groups, covered = [], 0
    for mask in view.composites.values():
        above = below = 0
        for i in bits(mask):
            above |= view.above[i]
            below |= view.below[i]
        if not above & below & ~mask:
            groups.append(mask)
            covered |= mask
    return groups + [1 << i for i in bits(view.everything & ~covered)]


def glued(view: View, groups: Sequence[int], profile: Profile) -> list[int]:
    """Join nodes with one operand to their only reader.

    Let `v` have one operand that costs anything, `a`, with no more bytes than the
    result `t` of `v`; let the unit `w` be the only reader of `t`, and no contraction,
    window or opaque node; and let `t` not be delivered. Then under any price that is
    a launch cost plus bytes moved some best plan computes `v` in every kernel that
    computes `w`: such a kernel may read `a` where it read `t`, which costs no more; the
    kernel that wrote `t` writes `a` instead if it had it inside, which costs no more
    either, and else drops `v`. A unary node changes no row and adds no order.

    For other prices this is a rule of the candidate space. Under `full` transposes
    stay free, because to walk through memory in the wrong order is not free there, and
    so do nodes right behind a contraction, because libraries fuse some of them.
    """
    parent = {mask: mask for mask in groups}
    owner = {i: mask for mask in groups for i in bits(mask)}

    def top(mask: int) -> int:
        while parent[mask] != mask:
            mask = parent[mask]
        return mask

    for i in reversed(range(len(view.nodes))):
        own = owner[i]
        if own.bit_count() > 1 or not _is_cheap_unary(view, i, profile):
            continue
        readers = {top(owner[r]) for r in bits(view.after[i])}
        if len(readers) != 1 or view.made[i] & view.delivered:
            continue
        (reader,) = readers
        if not _is_barrier(view, reader):
            joined = own | reader
            parent[joined] = joined
            parent[own] = parent[reader] = joined
    return sorted({top(mask) for mask in groups}, key=lambda m: m.bit_length())


def _is_barrier(view: View, mask: int) -> bool:
    stops = (*ANCHORS, Pattern.OPAQUE)
    return any(view.patterns[i] in stops for i in bits(mask))


def _is_cheap_unary(view: View, i: int, profile: Profile) -> bool:
    node = view.nodes[i]
    if view.patterns[i] is Pattern.INJECTIVE:
        if node.op not in _UNARY_MOVES or profile == "full" and node.op == "transpose":
            return False
    elif view.patterns[i] is not Pattern.ELEMENTWISE:
        return False
    operands = [n for n in dict.fromkeys(view.home[t] for t in node.inputs)]
    operands = [n for n in operands if not view.is_free(n)]
    if len(operands) != 1:
        return False
    behind = view.index.get(_maker(view, operands[0]))
    if profile == "full" and behind is not None and view.patterns[behind] in ANCHORS:
        return False
    types = view.graph.types
    narrowing = node.op in ("slice", "gather", "pad")
    result = types[node.outputs[0]].bytes
    return narrowing or types[operands[0]].bytes <= result


def _maker(view: View, tensor: str) -> str:
    node = view.graph.producer(tensor)
    return "" if node is None else node.name
