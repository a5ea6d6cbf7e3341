"""Names and order of the user's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import onnx

from tuner.errors import InvalidModel
from tuner.frontend.opaque import captures


def names_of(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """A name for each node: its own, or `OpType:first_output` if that is no name.

    An own name is none when it is empty or when two nodes have it.
    """
    counts = Counter(node.name for node in nodes)
    names = [
        node.name if node.name and counts[node.name] == 1 else _fallback(node)
        for node in nodes
    ]
    if len(set(names)) == len(names):
        return names
    taken = Counter(names)
    return [
        name if taken[name] == 1 else f"{name}#{position}"
        for position, name in enumerate(names)
    ]


def _fallback(node: onnx.NodeProto) -> str:
    first = next((name for name in node.output if name), "")
    return f"{node.op_type}:{first}"


def reads_of(node: onnx.NodeProto) -> tuple[str, ...]:
    """Every tensor that a node reads, by its subgraphs too."""
    own = tuple(name for name in node.input if name)
    if any(a.type in _GRAPHS for a in node.attribute):
        return (*own, *captures(node))
    return own


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def sort_nodes(
    nodes: Sequence[onnx.NodeProto],
    names: Sequence[str],
    sources: Collection[str],
) -> list[int]:
    """Positions of the nodes in an order in which each reads what is there already.

    The given order stays where it is such an order.

    Raises:
        InvalidModel: a tensor is made twice or never, or nodes wait for each other.
    """
    makers = _makers(nodes, names, sources)
    needs = [{makers[r] for r in reads_of(node) if r in makers} for node in nodes]
    _check_defined(nodes, names, makers, sources)
    turns = _turns(needs)
    if len(turns) < len(nodes):
        stuck = [index for index in range(len(nodes)) if index not in turns]
        raise _cycle(stuck, dict(enumerate(needs)), names)
    return sorted(turns, key=lambda index: (turns[index], index))


def _turns(needs: Sequence[Collection[int]]) -> dict[int, int]:
    """In which walk over all nodes each comes up when a walk takes what is ready.

    A node is ready in the walk of what it needs, or one later where that stands behind
    it. Nodes that wait for each other have no turn.
    """
    readers: list[list[int]] = [[] for _ in needs]
    for index, sources in enumerate(needs):
        for source in sources:
            readers[source].append(index)
    missing = [len(sources) for sources in needs]
    ready = [index for index, count in enumerate(missing) if not count]
    turns = dict.fromkeys(ready, 0)
    for index in ready:
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                turns[reader] = max(turns[s] + (s > reader) for s in needs[reader])
                ready.append(reader)
    return turns


def _makers(
    nodes: Sequence[onnx.NodeProto],
    names: Sequence[str],
    sources: Collection[str],
) -> dict[str, int]:
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for output in filter(None, node.output):
            if output in makers:
                raise InvalidModel(
                    names[index],
                    f"makes {output!r}, which {names[makers[output]]} makes too",
                    hint="every tensor has one maker",
                )
            if output in sources:
                raise InvalidModel(
                    names[index], f"makes {output!r}, which is an input or initializer"
                )
            makers[output] = index
    return makers


def _check_defined(
    nodes: Sequence[onnx.NodeProto],
    names: Sequence[str],
    makers: Collection[str],
    sources: Collection[str],
) -> None:
    for index, node in enumerate(nodes):
        for name in reads_of(node):
            if name not in makers and name not in sources:
                raise InvalidModel(
                    names[index],
                    f"reads {name!r}, which nothing makes",
                    hint="declare it as a graph input or an initializer",
                )


def _cycle(
    rest: Sequence[int], needs: dict[int, set[int]], names: Sequence[str]
) -> InvalidModel:
    """Name the nodes of one cycle among those that wait."""
    waiting = set(rest)
    path: dict[int, int] = {}
    index = rest[0]
    while index not in path:
        path[index] = len(path)
        index = min(needs[index] & waiting)
    ring = [names[i] for i in reversed(list(path)[path[index] :])]
    return InvalidModel(
        ring[0],
        f"waits for its own result: {' -> '.join([*ring[:8], ring[0]])}",
        hint="a graph must have no cycles",
    )
