"""Fusion groups by the rules of TVM's FuseOps, as a baseline to beat.

Phase 0 joins an anchor with the element-wise nodes up to its post-dominator, and
element-wise or broadcast nodes with theirs; phase 1 does so for injective nodes.
(Phase 2 joins fields of tuples, which our graphs do not have.) A group has one
result; a reduction never joins its reader. A layer that reduces (softmax, layer norm,
mean) is one operator, into whose result element-wise work is fused as behind a
contraction: `LegalizeOps` writes it as one function, `AnnotateTIROpPattern` says so.

Source: apache/tvm, `src/relax/analysis/graph_partitioner.cc`, `RunFuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tuner.fusion.legality import ANCHORS, Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.units import whole_composites
from tuner.fusion.view import View, bits
from tuner.ir.ops import Pattern

MAX_FUSE_DEPTH: Final = 256
"""`relax.FuseOps.max_depth`."""

_ELEMENTWISE, _BROADCAST, _INJECTIVE, _REDUCE, _ANCHOR, _OPAQUE = 0, 1, 2, 3, 4, 8
_KINDS: Final = {
    Pattern.ELEMENTWISE: _ELEMENTWISE,
    Pattern.INJECTIVE: _INJECTIVE,
    Pattern.REDUCTION: _REDUCE,
    Pattern.CONTRACTION: _ANCHOR,
    Pattern.WINDOW: _ANCHOR,
    Pattern.OPAQUE: _OPAQUE,
}


def tvm_operators(rules: Rules, base: Sequence[int]) -> list[int]:
    """What TVM sees as operators: layers that reduce whole, all else in primitives.

    Args:
        rules: what our families can run; a layer that they cannot is taken apart.
        base: node masks of the finest grouping.
    """
    view = rules.view
    whole, covered = [], 0
    for mask in whole_composites(view):
        if _is_layer(view, mask) and _is_legal(rules, mask):
            whole.append(mask)
            covered |= mask
    return whole + [mask for mask in base if not mask & covered]


def _is_layer(view: View, mask: int) -> bool:
    closed = view.masks[Pattern.OPAQUE]
    for pattern in ANCHORS:
        closed |= view.masks[pattern]
    return bool(mask & (mask - 1) and mask & view.masks[Pattern.REDUCTION]) and not (
        mask & closed
    )


def tvm_groups(
    rules: Rules,
    base: Sequence[int],
    *,
    out_of_time: Callable[[], bool] = lambda: False,
) -> list[int]:
    """TVM's groups, split where none of our families runs one.

    Args:
        rules: what our families can run.
        base: node masks of the finest grouping.
        out_of_time: when operators that are not yet grouped stay alone.
    """
    operators = tvm_operators(rules, base)
    grouped = _Partitioner(rules.view, operators, out_of_time).groups()
    parts: list[int] = []
    for units in grouped:
        parts += units if out_of_time() else _legal_parts(rules, units, out_of_time)
    return _without_rings(rules.view, base, parts)


class _Partitioner:
    def __init__(
        self, view: View, base: Sequence[int], out_of_time: Callable[[], bool]
    ) -> None:
        self.view = view
        self.out_of_time = out_of_time
        self.base = sorted(base, key=lambda mask: mask.bit_length())
        self.unit_of = {i: u for u, mask in enumerate(self.base) for i in bits(mask)}
        self.readers = [self._readers(u) for u in range(len(self.base))]
        self.kinds = [self._kind(mask) for mask in self.base]
        self.parent = list(range(len(self.base)))
        self.sizes = [1] * len(self.base)
        self.dominators: list[int | None] = [None] * len(self.base)
        self.relations = [_OPAQUE] * len(self.base)
        self._dominate()

    def groups(self) -> list[list[int]]:
        """Groups of node masks of operators."""
        for phase in (0, 1):
            for u in range(len(self.base)):
                if self.out_of_time():
                    break
                self._visit(u, phase)
        found: dict[int, list[int]] = {}
        for u, mask in enumerate(self.base):
            found.setdefault(self._root(u), []).append(mask)
        return list(found.values())

    def _readers(self, u: int) -> tuple[int, ...]:
        after = {
            self.unit_of[r]
            for i in bits(self.base[u])
            for r in bits(self.view.after[i])
        }
        return tuple(sorted(after - {u}))

    def _kind(self, mask: int) -> int:
        if _is_layer(self.view, mask):
            return _ANCHOR
        kind = max(_KINDS[self.view.patterns[i]] for i in bits(mask))
        if kind == _ELEMENTWISE and any(
            self._edge_broadcasts(i, name)
            for i in bits(mask)
            for name in self.view.nodes[i].inputs
        ):
            return _BROADCAST
        return kind

    def _edge_broadcasts(self, i: int, name: str) -> bool:
        types = self.view.graph.types
        return types[name].shape != types[self.view.nodes[i].outputs[0]].shape

    def _edge(self, u: int, reader: int) -> int:
        """Relation of an operator to one that reads it."""
        kind = self.kinds[reader]
        if kind != _BROADCAST:
            return kind
        made = {n for i in bits(self.base[u]) for n in self.view.nodes[i].outputs}
        broadcasts = any(
            self.view.home[name] in made and self._edge_broadcasts(i, name)
            for i in bits(self.base[reader])
            for name in self.view.nodes[i].inputs
        )
        return _BROADCAST if broadcasts else _ELEMENTWISE

    def _dominate(self) -> None:
        """Immediate post-dominators, and the worst relation on the way there."""
        depth = [1] * len(self.base)
        for u in reversed(range(len(self.base))):
            delivered = self.view.makes(self.base[u]) & self.view.delivered
            if delivered or not self.readers[u]:
                continue
            meet: int | None = self.readers[u][0]
            relation = self._edge(u, self.readers[u][0])
            for reader in self.readers[u][1:]:
                relation = max(relation, self._edge(u, reader))
                meet, relation = self._meet(meet, reader, relation, depth)
            self.dominators[u] = meet
            self.relations[u] = relation
            depth[u] = 1 if meet is None else depth[meet] + 1

    def _meet(
        self, a: int | None, b: int | None, relation: int, depth: list[int]
    ) -> tuple[int | None, int]:
        while a != b:
            if a is None or b is None:
                return None, _OPAQUE
            if depth[a] >= depth[b]:
                relation = max(relation, self.relations[a])
                a = self.dominators[a]
            else:
                relation = max(relation, self.relations[b])
                b = self.dominators[b]
        return a, relation

    def _root(self, u: int) -> int:
        while self.parent[u] != u:
            self.parent[u] = self.parent[self.parent[u]]
            u = self.parent[u]
        return u

    def _visit(self, u: int, phase: int) -> None:
        sink = self.dominators[u]
        if sink is None or self._root(u) == self._root(sink):
            return
        allowed = self._allowed(u, phase)
        if allowed is None:
            return
        on_way, at_sink = allowed
        between = self._between(u, sink)
        if len(between) > MAX_FUSE_DEPTH:
            return
        kinds = {v: self.kinds[self._root(v)] for v in between - {u}}
        if any(k > (at_sink if v == sink else on_way) for v, k in kinds.items()):
            return
        roots = {self._root(v) for v in between}
        if sum(self.sizes[r] for r in roots) <= MAX_FUSE_DEPTH:
            self._commit(roots, self._root(sink))

    def _allowed(self, u: int, phase: int) -> tuple[int, int] | None:
        """Greatest kinds on the way to the post-dominator and at it; None: apart."""
        kind, relation = self.kinds[u], self.relations[u]
        if kind == _ANCHOR and phase == 0 and relation == _ELEMENTWISE:
            return _BROADCAST, _BROADCAST
        if kind <= _BROADCAST and relation <= _REDUCE:
            return _INJECTIVE, _ANCHOR
        if kind == _INJECTIVE and phase == 1:
            return _INJECTIVE, _INJECTIVE
        return None

    def _between(self, u: int, sink: int) -> set[int]:
        found: set[int] = set()
        stack = [u]
        while stack and len(found) <= MAX_FUSE_DEPTH:
            v = stack.pop()
            if v not in found:
                found.add(v)
                if v != sink:
                    stack.extend(self.readers[v])
        return found

    def _commit(self, roots: set[int], target: int) -> None:
        for root in roots - {target}:
            self.parent[root] = target
            self.sizes[target] += self.sizes[root]
            if self.kinds[root] == _ANCHOR:
                self.kinds[target] = max(self.kinds[target], _ANCHOR)


def _legal_parts(
    rules: Rules, units: list[int], out_of_time: Callable[[], bool]
) -> list[int]:
    """Split a group so that our families can run every part."""
    group = 0
    for unit in units:
        group |= unit
    if len(units) == 1 or _is_legal(rules, group):
        return [group]
    parts: list[int] = []
    for unit in units:
        before = 0
        for i in bits(unit):
            before |= rules.view.before[i]
        for at in reversed(range(0 if not out_of_time() else len(parts), len(parts))):
            joined = parts[at] | unit
            if parts[at] & before and _is_legal(rules, joined):
                parts[at] = joined
                break
        else:
            parts.append(unit)
    return parts


def _is_legal(rules: Rules, mask: int) -> bool:
    view = rules.view
    if not view.is_convex(mask):
        return False
    return not isinstance(rules.judge(mask, view.wanted(mask)), Refusal)


def _without_rings(view: View, base: Sequence[int], parts: list[int]) -> list[int]:
    """Take kernels that wait for each other apart."""
    needs = [view.needs(mask) for mask in parts]
    makes = [view.makes(mask) for mask in parts]
    _, stuck = runnable_order(needs, makes)
    if not stuck:
        return parts
    waiting = set(stuck)
    kept = [mask for k, mask in enumerate(parts) if k not in waiting]
    torn = 0
    for k in stuck:
        torn |= parts[k]
    return kept + [unit for unit in base if unit & torn]
