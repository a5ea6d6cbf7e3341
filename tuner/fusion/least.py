"""What no set of kernels can beat, however they are formed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from typing import Final

from tuner.fusion.columns import Floor, Least
from tuner.fusion.gates import best_gate, fewest_kernels, read_again
from tuner.fusion.legality import ANCHORS, Rules
from tuner.fusion.view import View, bits
from tuner.ir.graph import Region
from tuner.ir.ops import Pattern
from tuner.plan import Family

OWN_LAWS: Final = (Pattern.CONTRACTION, Pattern.WINDOW, Pattern.OPAQUE)
"""Nodes that a library may run, whose calls follow other laws than our kernels."""
OWN_FAMILIES: Final = (Family.POINTWISE, Family.REDUCTION)
"""What runs all other nodes."""


def least_seconds(
    rules: Rules, floor: Floor | None, inside: int | None = None
) -> float | None:
    """What no set of kernels can beat, however they are joined.

    Take any kernels that compute these nodes: apart or side by side, with work repeated
    or not. Each node is in one of them, and so is each tensor that is given and needed
    whole, or wanted by others; a kernel holds so many nodes, tensors and reductions, so
    there are at least as many launches as `fewest_kernels` says. Somewhere each of
    those tensors is moved, and each node computed, in full: all kernels together do at
    least `Least`. What that costs, shared out over kernels in the best way, is the
    floor's matter. What waits for many reductions takes more launches, and more reads,
    see `tuner.fusion.gates`.

    Nodes without an element are left out: a kernel that holds no others waits for no
    memory. None where nothing is known of prices, or where a library may take part,
    whose calls follow other laws.

    Args:
        rules: which kernels are legal.
        floor: what no price is below.
        inside: nodes of which no kernel holds others; by default all.
    """
    view = rules.view
    nodes = view.everything if inside is None else inside
    if floor is None or not nodes or any(view.has(nodes, each) for each in OWN_LAWS):
        return None
    nodes = _filled(view, nodes)
    if not nodes:
        return 0.0
    if any(floor.launch_seconds(family) is None for family in OWN_FAMILIES):
        return None
    whole = [i for i in bits(nodes) if not _is_narrowed(view, i)]
    types = view.graph.types
    read = [types[name] for name in _read(view, nodes, whole)]
    written = tuple(types[view.tensors[j]] for j in _leaving(view, nodes))
    alone = tuple(_alone(rules, whole))
    gate = best_gate(rules, nodes)
    kernels = max(fewest_kernels(rules, nodes), gate.kernels if gate else 1)
    again = read_again(view, gate, whole) if gate else ((),)
    return min(
        floor.joint_seconds(
            Least(read=(*read, *more), written=written, nodes=alone), kernels=kernels
        )
        for more in again
    )


def least_of_any(rules: Rules, floor: Floor | None, inside: int) -> float:
    """The same where a library may take part.

    Whoever runs a kernel, it costs a launch and no less than what it moves takes, since
    of moving and computing at most the shorter hides behind the other. Every tensor
    that is wanted by others is written somewhere, and every tensor that is read whole
    from memory is read somewhere: a kernel pays for each of its operands at least what
    that operand takes alone at the nearest level that may hold it.
    """
    found = least_seconds(rules, floor, inside)
    if found is not None or floor is None:
        return found or 0.0
    view = rules.view
    types, nodes = view.graph.types, _filled(view, inside)
    if not nodes:
        return 0.0
    whole = [i for i in bits(nodes) if _reads_whole(view, i)]
    moved = [floor.storing_seconds(view.bytes[j]) for j in _leaving(view, inside)]
    moved += [floor.moving_seconds(types[t].bytes) for t in _read(view, inside, whole)]
    return _launches_seconds(rules, floor, inside, nodes) + math.fsum(moved)


def _reads_whole(view: View, i: int) -> bool:
    """Whether whoever computes a node reads all of its operands.

    A convolution or a window may step over elements, and of an opaque node nothing is
    known.
    """
    if _is_narrowed(view, i) or view.patterns[i] in (Pattern.WINDOW, Pattern.OPAQUE):
        return False
    return view.patterns[i] is not Pattern.CONTRACTION or view.nodes[i].op == "matmul"


def _launches_seconds(rules: Rules, floor: Floor, inside: int, nodes: int) -> float:
    """What the launches cost of all kernels that it takes at least.

    By the rules, a kernel with contractions or windows holds one of them, or products
    that read the same tensor (`tuner.fusion.merged`), or, where the library runs small
    graphs, up to as many as one call may hold. Give each of them the share 1 / m, where
    m is the greatest number of which it can be one: no kernel has more than 1 in all,
    so there are at least as many kernels as all shares together. An opaque node is
    alone. A reduction never joins an anchor but in such small graphs; so elsewhere
    those kernels come on top that hold the reductions.

    The whole graph may be one call of a library that runs graphs.

    Args:
        rules: which kernels are legal.
        floor: what no price is below.
        inside: nodes of which no kernel holds others.
        nodes: those of them that make elements.
    """
    view, limits = rules.view, rules.limits
    runs_graphs = limits.library == "session"
    each = floor.any_launch_seconds()
    if rules.profile != "full" or (runs_graphs and inside == view.everything):
        return each
    anchors = [i for i in bits(nodes) if view.patterns[i] in ANCHORS]
    classes = Counter(_merging(view, i) for i in anchors)
    most = limits.max_library_anchors if runs_graphs else 1
    shares = (Fraction(1, max(most, classes[_merging(view, i)])) for i in anchors)
    calls = math.ceil(sum(shares, Fraction(0)))
    calls += (nodes & view.masks[Pattern.OPAQUE]).bit_count()
    reductions = (nodes & view.masks[Pattern.REDUCTION]).bit_count()
    if runs_graphs or not reductions:
        return max(1, calls) * each
    own = floor.launch_seconds(Family.REDUCTION) or each
    return calls * each + -(-reductions // (limits.max_reductions or reductions)) * own


def _merging(view: View, i: int) -> Hashable:
    """What products share that one kernel may run; other anchors are alone."""
    node = view.nodes[i]
    left = node.inputs[0]
    if node.op != "matmul" or view.home[node.inputs[1]] in view.place:
        return i
    return (view.home[left], view.graph.types[left].shape)


def _filled(view: View, nodes: int) -> int:
    """The nodes that make at least one element."""
    made = (i for i in bits(nodes) if any(view.bytes[j] for j in bits(view.made[i])))
    return sum(1 << i for i in made)


def _read(view: View, nodes: int, whole: Sequence[int]) -> Iterator[str]:
    """What some nodes need whole of what is not made among them, and is not free."""
    given = {name for i in whole for name in view.given[i]}
    yield from sorted(name for name in given if not view.is_free(name))
    needs = 0
    for i in whole:
        needs |= view.reads[i]
    yield from (view.tensors[j] for j in bits(needs & ~view.makes(nodes)))


def _leaving(view: View, nodes: int) -> Iterator[int]:
    """Tensors that are written whatever kernels compute these nodes."""
    return bits(view.wanted(nodes))


def _alone(rules: Rules, whole: Sequence[int]) -> Iterator[tuple[Region, Family]]:
    """Each of some nodes in a region of its own."""
    view = rules.view
    for i in whole:
        family = rules.judge(1 << i, view.made[i])
        if isinstance(family, Family):
            yield view.region(1 << i, view.made[i]), family


def _is_narrowed(view: View, i: int) -> bool:
    """Whether a kernel may need a node, or what it reads, in part only."""
    return bool((view.below[i] | 1 << i) & view.narrowing)
