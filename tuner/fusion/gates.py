"""Gates: what waits for many reductions, of which one kernel can hold few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.legality import Rules
from tuner.fusion.rows import UNROLL_LIMIT, Frame, frame, row_length
from tuner.fusion.view import View, bits
from tuner.ir.ops import Pattern
from tuner.ir.types import TensorType

GATES: Final = 32
"""So many nodes are looked at, those that wait for most reductions."""
CLASSES: Final = 16
"""Of reductions over more kinds of rows nothing is said of what is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A node that waits for many reductions, and all that waits for it.

    Let `t` be the node, R the reductions that it depends on, and B the node with all
    that depends on it. Take the first kernel, in launch order, that holds a node of B.
    What that node depends on of B no earlier kernel has made, so the kernel holds `t`,
    too. Each reduction of R is in this kernel, tied to `t` by computed values, or in an
    earlier one, which holds nothing of B. Rows of reductions that are tied together
    must be the same, but for short inner ones, which R leaves out; and a kernel holds
    so many reductions. So all of R but a few over the same rows are in kernels without
    B, and B is in others.

    Attributes:
        behind: the nodes of B.
        rows: the reductions of R, by the rows that they are over.
        most: how many of these the first kernel may hold.
        kernels: how many kernels there are at least.
    """

    behind: int
    rows: Mapping[Frame, Sequence[int]]
    most: int
    kernels: int


def best_gate(rules: Rules, nodes: int) -> Gate | None:
    """The gate that shows most kernels; None where there is none.

    Args:
        rules: which kernels are legal.
        nodes: what is computed; no kernel holds others.
    """
    view = rules.view
    long = [i for i in bits(nodes & view.masks[Pattern.REDUCTION]) if _is_long(view, i)]
    if rules.profile != "full" or len(long) < 2:  # noqa: PLR2004
        return None
    everything = sum(1 << i for i in long)
    first: dict[int, int] = {}
    for i in bits(nodes):
        held = view.above[i] & everything
        if held & (held - 1):
            known = first.setdefault(held, i)
            if view.below[i].bit_count() > view.below[known].bit_count():
                first[held] = i
    wide = sorted(first, key=lambda held: -held.bit_count())[:GATES]
    found = (_gate(rules, nodes, first[held], held) for held in wide)
    return max(
        (gate for gate in found if gate), key=lambda gate: gate.kernels, default=None
    )


def _is_long(view: View, i: int) -> bool:
    """Whether a reduction is over rows too long to be an unrolled inner loop."""
    return row_length(view.graph, view.nodes[i]) > UNROLL_LIMIT


def _gate(rules: Rules, nodes: int, at: int, held: int) -> Gate | None:
    view, most = rules.view, rules.limits.max_reductions
    rows: dict[Frame, list[int]] = {}
    for i in bits(held):
        rows.setdefault(frame(view.graph, view.nodes[i]), []).append(i)
    count, widest = held.bit_count(), max(map(len, rows.values()))
    first = min(widest, most or widest)
    if count <= first:
        return None
    early = -(-(count - first) // (most or count))
    behind = (view.below[at] | 1 << at) & nodes
    return Gate(
        behind=behind,
        rows=rows,
        most=first,
        kernels=early + fewest_kernels(rules, behind, nodes),
    )


def read_again(
    view: View, gate: Gate, whole: Sequence[int]
) -> tuple[tuple[TensorType, ...], ...]:
    """What is read in front of a gate and behind it, by different kernels.

    A tensor that is given is read by a kernel without B where a reduction in such a
    kernel needs it, and by one with B where a node of B reads it: that is twice. The
    reductions that the first kernel with B holds need not be in one without. Which
    these are is not known, but they are over the same rows: for each kind of rows this
    says what is read again if those are the ones that save most.

    Only tensors that one reduction alone needs are looked at. Those that are spared are
    the largest of their rows: of tensors of one type none costs more to read than a
    larger one.

    Args:
        view: the graph.
        gate: where it falls apart.
        whole: the nodes that are computed in full, in any kernel.
    """
    if len(gate.rows) > CLASSES:
        return ((),)
    twice = _read_twice(view, gate, sum(1 << i for i in whole))
    found = []
    for mine in gate.rows.values():
        own = [kind for i in mine for kind in twice[i]]
        spared = gate.most * max(len(twice[i]) for i in mine)
        if len({kind.dtype for kind in own}) > 1:
            spared = len(own)
        kept = sorted(own, key=lambda kind: -kind.bytes)[spared:]
        others = (i for each in gate.rows.values() if each is not mine for i in each)
        kept += [kind for i in others for kind in twice[i]]
        found.append(tuple(kept))
    return tuple(found)


def _read_twice(view: View, gate: Gate, whole: int) -> Mapping[int, list[TensorType]]:
    """By reduction, tensors that it alone needs and that are read behind the gate."""
    behind = {name for i in bits(gate.behind & whole) for name in view.given[i]}
    needed = {
        r: {
            name
            for i in bits((view.above[r] | 1 << r) & whole)
            for name in view.given[i]
        }
        for mine in gate.rows.values()
        for r in mine
    }
    often = Counter(name for names in needed.values() for name in names)
    types = view.graph.types
    return {
        r: [
            types[name]
            for name in sorted(names & behind)
            if often[name] == 1 and not view.is_free(name)
        ]
        for r, names in needed.items()
    }


def fewest_kernels(rules: Rules, nodes: int, around: int | None = None) -> int:
    """How many kernels hold these nodes at least, by what one kernel may hold.

    So many reductions; so many tensors, of which each that is given or wanted is in
    some kernel; and so many nodes, but for kernels along a line, which hold nothing
    beside it. A line is a run of nodes of which each is the only reader of the one
    before; those that are longer than a kernel may be otherwise are left out.

    Args:
        rules: which kernels are legal.
        nodes: what is held.
        around: what these kernels may hold beside it; by default nothing.
    """
    view, limits = rules.view, rules.limits
    given = {name for i in bits(nodes) for name in view.given[i]}
    tensors = sum(name not in view.graph.constants for name in given)
    read = view.needs(nodes) & ~view.makes(nodes if around is None else around)
    tensors += read.bit_count() + view.wanted(nodes).bit_count()
    reductions = (nodes & view.masks[Pattern.REDUCTION]).bit_count()
    counts = [(tensors, limits.max_arguments), (reductions, limits.max_reductions)]
    if limits.max_nodes is not None:
        short = nodes.bit_count() - _on_long_lines(view, nodes, limits.max_nodes)
        counts.append((short, limits.max_nodes))
    found = (-(-count // most) for count, most in counts if most is not None)
    return max(found, default=1) or 1


def _on_long_lines(view: View, nodes: int, most: int) -> int:
    """How many of some nodes lie on lines of more than so many of them."""
    if nodes.bit_count() <= most:
        return 0
    order = list(bits(nodes))
    follower = {i: view.after[i].bit_length() - 1 for i in order if _leads(view, i)}
    before, behind = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
    for i in order:
        k = follower.get(i)
        if k in before:
            before[k] = max(before[k], before[i] + 1)
    for i in reversed(order):
        k = follower.get(i)
        if k in behind:
            behind[i] = behind[k] + 1
    return sum(before[i] + 1 + behind[i] > most for i in order)


def _leads(view: View, i: int) -> bool:
    """Whether a node has one reader."""
    after = view.after[i]
    return bool(after) and not after & (after - 1)
