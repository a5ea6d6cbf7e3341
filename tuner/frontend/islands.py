"""Nodes that talk through values which our graphs do not hold, each group as one node.

Sequences, optionals, maps, text, element types such as uint16 or int4, and tensors of
which only a run tells the size may lie between nodes of a model. The nodes on both
sides of such a value, and what must run between them, become one node that a library
runs; only tensors of ours cross its border.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper, shape_inference

from tuner.frontend.order import names_of, reads_of, sort_nodes
from tuner.frontend.protos import DTYPES

OPERATOR = "If"
"""An island is a condition that always holds: every version of the standard has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosed:
    """A model whose foreign values lie inside islands.

    Attributes:
        model: the model; an island is an `If` whose branches are alike.
        members: names of the user's nodes in an island, by the island's first output.
    """

    model: onnx.ModelProto
    members: Mapping[str, Sequence[str]]


def enclose(model: onnx.ModelProto, unsized: Collection[str] = ()) -> Enclosed | None:
    """The model with islands, or None where it needs none.

    Foreign values that the graph takes or delivers stay where they are.

    Args:
        model: without functions of its own.
        unsized: tensors with an extent that only a run can tell; foreign, too.

    Raises:
        InvalidModel: the nodes have no order.
    """
    graph = model.graph
    kinds = _kinds(model)
    foreign = {name for name, kind in kinds.items() if not _is_ours(kind)}
    foreign.update(t.name for t in graph.initializer if t.data_type not in DTYPES)
    foreign.update(unsized)
    if not foreign:
        return None
    names = names_of(graph.node)
    sources = [t.name for t in graph.initializer] + [v.name for v in graph.input]
    order = sort_nodes(graph.node, names, sources)
    groups = _groups([graph.node[k] for k in order], foreign)
    if not groups:
        return None
    return _Enclosing(model, [names[k] for k in order], kinds, foreign).build(
        [graph.node[k] for k in order], groups
    )


def _kinds(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """What the model states or inference finds of every tensor."""
    with suppress(shape_inference.InferenceError):
        model = shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    return {v.name: v.type for v in (*graph.value_info, *graph.output, *graph.input)}


def _is_ours(kind: onnx.TypeProto) -> bool:
    """Whether a type is a tensor of ours, as far as it is known."""
    if kind.WhichOneof("value") is None:
        return True
    if not kind.HasField("tensor_type"):
        return False
    element = kind.tensor_type.elem_type
    return element == TensorProto.UNDEFINED or element in DTYPES


def _groups(
    nodes: Sequence[onnx.NodeProto], foreign: Collection[str]
) -> list[list[int]]:
    """Nodes that must run as one, for each island; positions in order.

    Two nodes on one foreign value belong together, and so does all that lies on a cycle
    once they are one: that is what their own order would run between them.
    """
    makers = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    reads = [reads_of(node) for node in nodes]
    touching: set[int] = set()
    near: list[set[int]] = [set() for _ in nodes]
    for k, node in enumerate(nodes):
        for name in reads[k]:
            if name in makers:
                near[makers[name]].add(k)
                if name in foreign:
                    near[k].add(makers[name])
        if any(name in foreign for name in (*reads[k], *node.output)):
            touching.add(k)
    parts = _strong(near)
    return [sorted(part) for part in parts if not touching.isdisjoint(part)]


def _strong(after: Sequence[Collection[int]]) -> list[list[int]]:
    """Strongly connected components: a search, and one backwards from its last ends.

    Source: M. Sharir, "A strong-connectivity algorithm and its applications in data
    flow analysis", Computers and Mathematics with Applications 7(1), 1981.
    """
    before: list[set[int]] = [set() for _ in after]
    for k, others in enumerate(after):
        for other in others:
            before[other].add(k)
    ends = [k for root in _searches(range(len(after)), after) for k in root]
    return _searches(reversed(ends), before)


def _searches(
    roots: Iterable[int], after: Sequence[Collection[int]]
) -> list[list[int]]:
    """What is reached from each root for the first time, in the order of its end."""
    seen: set[int] = set()
    found: list[list[int]] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(after[root]))]
        ended: list[int] = []
        while path:
            k, rest = path[-1]
            other = next((o for o in rest if o not in seen), None)
            if other is None:
                ended.append(k)
                path.pop()
            else:
                seen.add(other)
                path.append((other, iter(after[other])))
        found.append(ended)
    return found


class _Enclosing:
    """Writes the model in which each group is one node."""

    def __init__(
        self,
        model: onnx.ModelProto,
        names: Sequence[str],
        kinds: Mapping[str, onnx.TypeProto],
        foreign: Collection[str],
    ) -> None:
        self._names, self._kinds, self._foreign = names, kinds, foreign
        self._old = model.graph
        self._new = onnx.ModelProto()
        self._new.CopyFrom(model)
        self._strange = {t.name: t for t in self._old.initializer if t.name in foreign}
        self._wanted: set[str] = {value.name for value in self._old.output}
        self._members: dict[str, Sequence[str]] = {}

    def build(
        self, nodes: Sequence[onnx.NodeProto], groups: Sequence[Sequence[int]]
    ) -> Enclosed:
        graph = self._new.graph
        group_of = {k: index for index, group in enumerate(groups) for k in group}
        self._always(nodes)
        outside: dict[str, set[int]] = {}
        for k, node in enumerate(nodes):
            for name in reads_of(node):
                outside.setdefault(name, set()).add(group_of.get(k, -1))
        del graph.node[:]
        last = {group[-1]: index for index, group in enumerate(groups)}
        for k, node in enumerate(nodes):
            if k not in group_of:
                graph.node.append(node)
                graph.node[-1].name = self._names[k]
            elif k in last:
                index = last[k]
                made = [n for j in groups[index] for n in nodes[j].output if n]
                out = [n for n in made if self._leaves(n, outside, index)]
                self._island([nodes[j] for j in groups[index]], groups[index], out)
        kept = [t for t in graph.initializer if t.name not in self._strange]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        return Enclosed(model=self._new, members=self._members)

    def _always(self, nodes: Sequence[onnx.NodeProto]) -> None:
        taken = {name for node in nodes for name in (*node.input, *node.output)}
        taken.update(t.name for t in self._old.initializer)
        taken.update(v.name for v in self._old.input)
        self._true = next(n for k in range(1 << 62) if (n := f"always{k}") not in taken)
        truth = helper.make_tensor(self._true, TensorProto.BOOL, [], [True])
        self._new.graph.initializer.append(truth)

    def _leaves(self, name: str, readers: Mapping[str, set[int]], group: int) -> bool:
        """Whether a result of a group is read outside of it."""
        return name in self._wanted or not readers.get(name, set()) <= {group}

    def _island(
        self,
        nodes: Sequence[onnx.NodeProto],
        places: Sequence[int],
        outputs: Sequence[str],
    ) -> None:
        if not outputs:
            return
        used = {name for node in nodes for name in reads_of(node)}
        body = helper.make_graph(
            nodes,
            "island",
            [],
            [onnx.ValueInfoProto(name=n, type=self._kinds.get(n)) for n in outputs],
            [tensor for name, tensor in self._strange.items() if name in used],
        )
        members = [self._names[k] for k in places]
        island = helper.make_node(
            OPERATOR,
            [self._true],
            list(outputs),
            name=members[0],
            then_branch=body,
            else_branch=body,
        )
        self._new.graph.node.append(island)
        self._members[outputs[0]] = members
