"""Tensors as strided views of one another: what a chain of layout operators reads.

An axis of a view is a list of factors, the outermost first; each says how many steps
it takes and how far apart they lie in the tensor that is viewed. Heads that share keys
are an axis of two factors, the second with stride 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from tuner.ir.graph import Graph, Node
from tuner.ir.inference import ints

Factors = tuple[tuple[int, int], ...]
"""Extent and stride, in elements, of each factor."""
Axes = tuple[Factors, ...]


def contiguous(shape: Sequence[int]) -> Axes:
    """A tensor as it lies in memory."""
    axes, stride = [], 1
    for extent in reversed(shape):
        axes.append(merged([(extent, stride)]))
        stride *= extent
    return tuple(reversed(axes))


def merged(factors: Iterable[tuple[int, int]]) -> Factors:
    """The same steps in the fewest factors."""
    found: list[tuple[int, int]] = []
    for extent, stride in factors:
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(found)


def flat(axes: Iterable[Factors]) -> Factors:
    """All axes as one."""
    return merged(chain.from_iterable(axes))


def regrouped(axes: Iterable[Factors], shape: Sequence[int]) -> Axes | None:
    """A view under another shape; None where an axis would begin inside a factor.

    Args:
        axes: of the view.
        shape: other extents; of as many elements, or there is no such view.
    """
    rest = list(flat(axes))
    found: list[Factors] = []
    for extent in shape:
        taken: list[tuple[int, int]] = []
        while extent > 1:
            if not rest:
                return None
            first, stride = rest.pop(0)
            whole = math.gcd(extent, first)
            if whole not in (extent, first):
                return None
            if whole < first:
                rest.insert(0, (first // whole, stride))
                stride *= first // whole
            taken.append((whole, stride))
            extent //= whole  # noqa: PLW2901
        found.append(merged(taken))
    return None if rest else tuple(found)


def through(graph: Graph, node: Node, axes: Axes) -> Axes | None:
    """What a layout operator, or an element-wise one, makes of a view.

    Args:
        graph: gives the shapes.
        node: of one operand that is viewed.
        axes: of that operand.
    """
    shape = graph.types[node.outputs[0]].static_shape
    if node.op == "reshape":
        return regrouped(axes, shape)
    if node.op == "transpose":
        perm = ints(node.attributes, "perm") or tuple(reversed(range(len(axes))))
        return tuple(axes[axis] for axis in perm)
    if node.op == "expand":
        before = graph.types[node.inputs[0]].static_shape
        more = len(shape) - len(before)
        padded = ((1,) * more + before, ((),) * more + axes)
        return tuple(
            axis if old == new else ((new, 0),)
            for old, new, axis in zip(padded[0], shape, padded[1], strict=True)
        )
    return axes
