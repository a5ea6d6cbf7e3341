"""Checks what every stage promises of a graph."""

from __future__ import annotations

from tuner.errors import InternalError
from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS


def verify(graph: Graph) -> Graph:
    """Return the graph, if it keeps its promises.

    Nodes are in topological order; names of nodes are unique and every tensor has
    one source; every tensor has a type, equal to what the operator table infers;
    arities are right; constants have the type that they claim; outputs are made.

    Raises:
        InternalError: a promise is broken; the message names the node or tensor.
    """
    known = _sources(graph)
    names: set[str] = set()
    for node in graph.nodes:
        if node.name in names:
            raise InternalError(node.name, "two nodes have this name")
        names.add(node.name)
        _check_node(graph, node, known)
        known.update(node.outputs)
    for name in graph.outputs:
        if name not in known:
            raise InternalError(name, "is a graph output that nothing makes")
    return graph


def _sources(graph: Graph) -> set[str]:
    listed = (*graph.inputs, *graph.weights, *graph.constants)
    known = set(listed)
    if len(known) != len(listed):
        twice = sorted(n for n in known if listed.count(n) > 1)
        raise InternalError(twice[0], "is listed twice among inputs and constants")
    for name in listed:
        if name not in graph.types:
            raise InternalError(name, "has no type")
    for name, array in graph.constants.items():
        kind = graph.types[name]
        if array.shape != kind.shape or array.dtype != kind.dtype.numpy:
            raise InternalError(
                name, f"holds {array.dtype}{array.shape}, its type says {kind}"
            )
    return known


def _check_node(graph: Graph, node: Node, known: set[str]) -> None:
    row = OPS.get(node.op)
    if row is None:
        raise InternalError(node.name, f"{node.op!r} is not in the operator table")
    least, most = row.arity
    if not least <= len(node.inputs) <= most:
        raise InternalError(
            node.name,
            f"{node.op} takes {least} to {most} inputs, has {len(node.inputs)}",
        )
    for name in node.inputs:
        if name not in known:
            raise InternalError(node.name, f"reads {name!r} before it is defined")
    for name in node.outputs:
        if name in known:
            raise InternalError(node.name, f"makes {name!r}, which exists already")
        if name not in graph.types:
            raise InternalError(node.name, f"its output {name!r} has no type")
    _check_types(graph, node)


def _check_types(graph: Graph, node: Node) -> None:
    infer = OPS[node.op].infer
    if infer is None:
        return
    try:
        wanted = infer([graph.types[n] for n in node.inputs], node.attributes)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InternalError(
            node.name, f"{node.op} cannot be typed: {error!r}"
        ) from error
    stated = tuple(graph.types[n] for n in node.outputs)
    if wanted != stated:
        raise InternalError(
            node.name, f"{node.op} gives {wanted}, the graph says {stated}"
        )
