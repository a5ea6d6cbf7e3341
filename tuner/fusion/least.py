"""What no set of kernels can beat, however they are formed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tuner.fusion.columns import Floor
from tuner.fusion.legality import Rules
from tuner.fusion.view import View, bits
from tuner.ir.graph import Region
from tuner.ir.ops import Pattern
from tuner.plan import Family

OWN_LAWS: Final = (Pattern.CONTRACTION, Pattern.WINDOW, Pattern.OPAQUE)
"""Nodes that a library may run, whose calls follow other laws than our kernels."""


def least_seconds(
    rules: Rules, floor: Floor | None, inside: int | None = None
) -> float | None:
    """What no set of kernels can beat, however they are joined.

    As many launches as the nodes need at least; whatever they are given and need whole,
    and whatever others read of them, is moved once; and every node is computed once.
    None where nothing is known of prices, or where a library may take part, whose calls
    follow other laws.

    Args:
        rules: which kernels are legal.
        floor: what no price is below.
        inside: nodes of which no kernel holds others; by default all.
    """
    view = rules.view
    nodes = view.everything if inside is None else inside
    if floor is None or not nodes or any(view.has(nodes, each) for each in OWN_LAWS):
        return None
    launches = [
        floor.launch_seconds(family) for family in (Family.POINTWISE, Family.REDUCTION)
    ]
    if None in launches:
        return None
    launch = min(seconds for seconds in launches if seconds is not None)
    whole = [i for i in bits(nodes) if not _is_narrowed(view, i)]
    moved = [floor.moving_seconds(size) for size in _read(view, nodes, whole)]
    moved += [floor.storing_seconds(view.bytes[j]) for j in _leaving(view, nodes)]
    busy = floor.busy_seconds(math.fsum(moved), _alone(rules, whole))
    return _fewest_kernels(rules, nodes) * launch + busy


def least_of_any(rules: Rules, floor: Floor | None, inside: int) -> float:
    """The same where a library may take part; then of one kernel, whoever runs it."""
    found = least_seconds(rules, floor, inside)
    if found is not None or floor is None:
        return found or 0.0
    view = rules.view
    stored = [floor.moving_seconds(view.bytes[j]) for j in _leaving(view, inside)]
    return floor.any_launch_seconds() + math.fsum(stored)


def _read(view: View, nodes: int, whole: list[int]) -> list[int]:
    """Bytes of what some nodes need whole of what is not made among them."""
    given = {name for i in whole for name in view.given[i]}
    needs = 0
    for i in whole:
        needs |= view.reads[i]
    others = [view.bytes[j] for j in bits(needs & ~view.makes(nodes))]
    return [view.given_bytes[name] for name in sorted(given)] + others


def _leaving(view: View, nodes: int) -> Iterator[int]:
    """Tensors that are written whatever kernels compute these nodes."""
    return bits(view.wanted(nodes))


def _alone(rules: Rules, whole: list[int]) -> Iterator[tuple[Region, Family]]:
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
    """Every node is in a kernel, and a kernel holds so many; only lines may be longer.

    A line is a run of nodes of which each is the only reader of the one before.
    """
    view, most = rules.view, rules.limits.max_nodes
    if most is None:
        return 1
    lengths = [1] * len(view.nodes)
    for i in reversed(range(len(view.nodes))):
        after = view.after[i]
        if after and not after & (after - 1):
            lengths[i] += lengths[after.bit_length() - 1]
    longest = max(lengths[i] for i in bits(nodes))
    return 1 if longest > most else -(-nodes.bit_count() // most)
