"""What no set of kernels can beat, however they are formed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from tuner.fusion.columns import Floor, Least
from tuner.fusion.legality import Rules
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
    there are at least as many launches as `_fewest_kernels` says. Somewhere each of
    those tensors is moved, and each node computed, in full: all kernels together do at
    least `Least`. What that costs, shared out over kernels in the best way, is the
    floor's matter.

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
    work = Least(
        read=tuple(types[name] for name in _read(view, nodes, whole)),
        written=tuple(types[view.tensors[j]] for j in _leaving(view, nodes)),
        nodes=tuple(_alone(rules, whole)),
    )
    return floor.joint_seconds(work, kernels=_fewest_kernels(rules, nodes))


def least_of_any(rules: Rules, floor: Floor | None, inside: int) -> float:
    """The same where a library may take part; then of one kernel, whoever runs it."""
    found = least_seconds(rules, floor, inside)
    if found is not None or floor is None:
        return found or 0.0
    view = rules.view
    if not _filled(view, inside):
        return 0.0
    stored = [floor.storing_seconds(view.bytes[j]) for j in _leaving(view, inside)]
    return floor.any_launch_seconds() + math.fsum(stored)


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


def _fewest_kernels(rules: Rules, nodes: int) -> int:
    """How many kernels hold these nodes at least, by what one kernel may hold.

    So many reductions; so many tensors, of which each that is given or wanted is in
    some kernel; and so many nodes, but for kernels along a line, which hold nothing
    beside it. A line is a run of nodes of which each is the only reader of the one
    before; those that are longer than a kernel may be otherwise are left out.
    """
    view, limits = rules.view, rules.limits
    given = {name for i in bits(nodes) for name in view.given[i]}
    tensors = sum(name not in view.graph.constants for name in given)
    tensors += view.needs(nodes).bit_count() + view.wanted(nodes).bit_count()
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
