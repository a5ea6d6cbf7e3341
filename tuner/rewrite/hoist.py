"""Moves what depends on weights and constants alone into a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, cast

from tuner.ir.fingerprint import walk
from tuner.ir.graph import Graph, Node
from tuner.ir.types import Array, Dim

_CHEAP: Final = frozenset({"reshape", "expand"})
"""Stay in the main graph where it reads them: a view costs nothing, and an expanded
weight would only be more to read."""
_LIVE: Final = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "If",
        "Loop",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Scan",
    }
)
"""Operators that may give another result each time, or hold one that may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A simplified graph, and what is computed once before its first run.

    Attributes:
        graph: the main graph. Its weights are weights of the model and outputs of
            `prepare`.
        prepare: nodes that depend on weights and constants alone; it has no inputs.
    """

    graph: Graph
    prepare: Graph


def hoist(
    graph: Graph, *, fresh: Collection[str] = (), live_weights: bool = False
) -> Rewritten:
    """Split a graph into the part that runs each time and the part that runs once.

    Args:
        graph: any graph.
        fresh: tensors whose names the user does not know; those that are made in
            `prepare` are called prepare/k.
        live_weights: whether weights may change between runs, as in training; then
            only what depends on constants is hoisted.
    """
    static = _static(graph, live_weights=live_weights)
    makers = {o: n for n in graph.nodes if n.name in static for o in n.outputs}
    rest = [node for node in graph.nodes if node.name not in static]
    reads = [name for node in rest for name in node.inputs]
    kept, sources = walk(
        (*reads, *graph.outputs),
        lambda name: _cheap(makers.get(name)),
    )
    boundary = [name for name in sources if name in makers]
    early, _ = walk(boundary, makers.get)
    stay = {node.name for node in kept}
    main = [n for n in graph.nodes if n.name not in static or n.name in stay]
    names = _names(graph, early, kept, fresh)
    prepare = _prepare(graph, early, boundary, names)
    return Rewritten(
        graph=_main(graph, main, {n: names.get(n, n) for n in boundary}),
        prepare=prepare,
    )


def _cheap(node: Node | None) -> Node | None:
    return node if node is not None and node.op in _CHEAP else None


def _static(graph: Graph, *, live_weights: bool) -> set[str]:
    fixed = set(graph.constants)
    if not live_weights:
        fixed.update(graph.weights)
    found: set[str] = set()
    for node in graph.nodes:
        if all(name in fixed for name in node.inputs) and not _is_live(node):
            found.add(node.name)
            fixed.update(node.outputs)
    return found


def _is_live(node: Node) -> bool:
    if node.op != "opaque":
        return False
    standard = node.attributes.get("domain", "") in ("", "ai.onnx")
    return not standard or cast("str", node.attributes["op_type"]) in _LIVE


def _names(
    graph: Graph, early: Sequence[Node], kept: Sequence[Node], fresh: Collection[str]
) -> Mapping[str, str]:
    """New names of tensors made in `prepare` whose own would not do there."""
    taken = {*fresh, *graph.outputs, *(out for node in kept for out in node.outputs)}
    made = [out for node in early for out in node.outputs]
    renamed = [name for name in made if name in taken]
    return {name: f"prepare/{k}" for k, name in enumerate(renamed)}


def _prepare(
    graph: Graph,
    nodes: Sequence[Node],
    boundary: Sequence[str],
    names: Mapping[str, str],
) -> Graph:
    moved = [
        replace(
            node,
            name=f"prepare/{node.name}",
            inputs=tuple(names.get(name, name) for name in node.inputs),
            outputs=tuple(names.get(name, name) for name in node.outputs),
            composite="",
        )
        for node in nodes
    ]
    back = {new: old for old, new in names.items()}
    made = {out for node in moved for out in node.outputs}
    reads = dict.fromkeys(name for node in moved for name in node.inputs)
    given = [name for name in reads if name not in made]
    return Graph(
        nodes=tuple(moved),
        inputs=(),
        weights=tuple(name for name in given if name not in graph.constants),
        constants=_subset(graph.constants, given),
        outputs=tuple(names.get(name, name) for name in boundary),
        types=MappingProxyType(
            {name: graph.types[back.get(name, name)] for name in (*given, *made)}
        ),
    )


def _main(graph: Graph, nodes: Sequence[Node], names: Mapping[str, str]) -> Graph:
    """The part that runs each time. `names` holds what `prepare` makes for it."""
    later = [
        replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
        if any(name in names for name in node.inputs)
        else node
        for node in nodes
    ]
    later += [
        _delivery(name, names[name], graph.types[name].shape)
        for name in dict.fromkeys(graph.outputs)
        if name in names
    ]
    types = {**graph.types, **{new: graph.types[old] for old, new in names.items()}}
    made = [out for node in later for out in node.outputs]
    reads = dict.fromkeys(name for node in later for name in node.inputs)
    fixed = _subset(graph.constants, reads)
    known = {*graph.inputs, *made, *fixed}
    weights = tuple(name for name in reads if name not in known)
    return Graph(
        nodes=tuple(later),
        inputs=graph.inputs,
        weights=weights,
        constants=fixed,
        outputs=graph.outputs,
        types=MappingProxyType(
            {name: types[name] for name in (*graph.inputs, *weights, *fixed, *made)}
        ),
    )


def _delivery(name: str, source: str, shape: tuple[Dim, ...]) -> Node:
    """Delivers an output that `prepare` makes."""
    return Node(
        name=f"{name}/output",
        op="reshape",
        inputs=(source,),
        outputs=(name,),
        attributes=MappingProxyType({"shape": shape}),
    )


def _subset(
    constants: Mapping[str, Array], names: Iterable[str]
) -> Mapping[str, Array]:
    return MappingProxyType({n: constants[n] for n in names if n in constants})
