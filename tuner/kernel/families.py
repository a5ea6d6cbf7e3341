"""Which family of kernels a graph belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.ir.ops import OPS, Pattern
from tuner.plan import Family

if TYPE_CHECKING:
    from tuner.ir.graph import Graph

_OTHERS = {
    Pattern.CONTRACTION: Family.CONTRACTION,
    Pattern.WINDOW: Family.WINDOW,
    Pattern.OPAQUE: Family.OPAQUE,
}


def family_of(graph: Graph) -> Family:
    """The family that runs a graph: that of its node that is hardest to fuse."""
    patterns = {OPS[node.op].pattern for node in graph.nodes}
    hardest = max(patterns, default=Pattern.ELEMENTWISE)
    if hardest in _OTHERS:
        return _OTHERS[hardest]
    if hardest is Pattern.REDUCTION:
        return Family.REDUCTION
    return Family.POINTWISE
