"""Shapes of graphs without symbols, quickly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.ir.graph import Graph


def is_static(graph: Graph) -> bool:
    """Whether no tensor of a graph has a symbolic dimension."""
    return not any(
        isinstance(extent, str)
        for kind in graph.types.values()
        for extent in kind.shape
    )


def shape_of(graph: Graph, tensor: str) -> tuple[int, ...]:
    """The shape of a tensor, in a graph that is known to be static."""
    return graph.types[tensor].shape  # type: ignore[return-value]  # a cast is a call
