"""Pieces of real models that are small enough to try every plan."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS, Pattern
from tuner.model import load


@cache
def static_graphs(folder: Path) -> Mapping[str, Graph]:
    """The canonical graphs of the models that fix every shape, by name; read once."""
    paths = sorted(folder.glob("*.onnx"))
    fixed = [path for path in paths if "dynamic" not in path.stem]
    found = {path.stem: load(path.read_bytes()).graph for path in fixed}
    return MappingProxyType(found)


def cut(graph: Graph, rng: random.Random, size: int) -> Graph | None:
    """A connected piece with so many nodes that compute, as a graph of its own.

    What the rest of the model reads of it, and what the model delivers, it delivers.
    None where the growth meets a node with several results or ends too early.
    """
    near = _neighbours(graph)
    chosen: set[str] = set()
    front = [rng.choice(graph.nodes).name]
    count = 0
    while front and count < size:
        name = front.pop(rng.randrange(len(front)))
        node = graph.by_name[name]
        if name in chosen or not _fits(node):
            continue
        chosen.add(name)
        count += node.op != "reshape"
        front += [other for other in near[name] if other not in chosen]
    return _piece(graph, chosen) if count == size else None


def _fits(node: Node) -> bool:
    return len(node.outputs) == 1 and OPS[node.op].pattern is not Pattern.OPAQUE


def _neighbours(graph: Graph) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        for name in node.inputs:
            maker = graph.producers.get(name)
            if maker is not None:
                found[node.name].append(maker.name)
                found[maker.name].append(node.name)
    return found


def _piece(graph: Graph, chosen: set[str]) -> Graph:
    nodes = tuple(node for node in graph.nodes if node.name in chosen)
    made = {node.outputs[0] for node in nodes}
    outside = [n for n in graph.nodes if n.name not in chosen]
    wanted = {name for node in outside for name in node.inputs} | set(graph.outputs)
    read = {name for node in nodes for name in node.inputs}
    given = list(dict.fromkeys(n for x in nodes for n in x.inputs))
    given = [n for n in given if n not in made]
    held = {name: graph.constants[name] for name in given if name in graph.constants}
    weights = tuple(name for name in given if name in graph.weights)
    return Graph(
        nodes=nodes,
        inputs=tuple(n for n in given if n not in held and n not in weights),
        weights=weights,
        constants=MappingProxyType(held),
        outputs=tuple(sorted((made & wanted) | (made - read))),
        types=MappingProxyType({n: graph.types[n] for n in (*given, *sorted(made))}),
    )
