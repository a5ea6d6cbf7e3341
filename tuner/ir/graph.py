"""The graph: a frozen, topologically ordered list of primitive operators."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from tuner.ir.types import Array, TensorType

Attribute = int | float | str | bytes | tuple["Attribute", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One primitive operator.

    Attributes:
        name: unique in the graph.
        op: row of the operator table (`tuner.ir.ops`).
        inputs: tensor names, in operator order. There are no optional holes.
        outputs: tensor names that this node makes.
        attributes: normalised, as the row of the operator table says.
        origins: names of the user's nodes that this node does work for.
        composite: name of the user's node that this primitive is a part of, when
            that node was taken apart into several primitives; else empty.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(
        default_factory=lambda: MappingProxyType({})
    )
    origins: tuple[str, ...] = ()
    composite: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph in topological order.

    Attributes:
        nodes: every node after the nodes whose outputs it reads.
        inputs: tensors given at run time.
        weights: tensors given once, at load time; their values play no part in any
            decision and in no identity.
        constants: tensors whose values are known and may decide something.
        outputs: tensors to deliver, in the user's order.
        types: the type of every tensor.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    constants: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that makes each computed tensor."""
        return {out: node for node in self.nodes for out in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each tensor, each once, in graph order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    def producer(self, tensor: str) -> Node | None:
        """The node that makes a tensor; None for inputs, weights and constants."""
        return self.producers.get(tensor)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of symbolic dimensions, in order of appearance."""
        names = (s for t in self.types.values() for s in t.symbols)
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A set of nodes that one kernel computes, and the tensors that it writes.

    A node may lie in several regions of a plan: it is then computed several times.

    Attributes:
        nodes: node names, in graph order.
        outputs: tensors written to memory, in graph order; each made by a node of
            the region.
    """

    nodes: tuple[str, ...]
    outputs: tuple[str, ...]


def region_inputs(graph: Graph, nodes: Collection[str]) -> tuple[str, ...]:
    """Tensors that the nodes read and do not make, in order of first use."""
    chosen = [graph.by_name[name] for name in nodes]
    made = {out for node in chosen for out in node.outputs}
    reads = (name for node in chosen for name in node.inputs)
    return tuple(dict.fromkeys(name for name in reads if name not in made))


def extract(graph: Graph, region: Region) -> Graph:
    """Cut a region out as a graph of its own: the form that kernels are made from.

    Constants of one element stay constants (they become literals in a kernel);
    larger constants, weights and values of other kernels become inputs.
    """
    nodes = tuple(graph.by_name[name] for name in region.nodes)
    reads = region_inputs(graph, region.nodes)
    literal = {
        name: graph.constants[name]
        for name in reads
        if name in graph.constants and graph.constants[name].size == 1
    }
    touched = dict.fromkeys((*reads, *(out for node in nodes for out in node.outputs)))
    return Graph(
        nodes=nodes,
        inputs=tuple(name for name in reads if name not in literal),
        constants=MappingProxyType(literal),
        outputs=region.outputs,
        types=MappingProxyType({name: graph.types[name] for name in touched}),
    )


def make_region(
    graph: Graph, nodes: Iterable[str], outputs: Iterable[str] | None = None
) -> Region:
    """Order the nodes as the graph does; by default write what others need.

    Args:
        graph: where the nodes live.
        nodes: node names, in any order.
        outputs: tensors to write; by default those that a node outside the region
            reads or that the graph delivers.
    """
    chosen = set(nodes)
    ordered = tuple(node for node in graph.nodes if node.name in chosen)
    if outputs is None:
        delivered = set(graph.outputs)
        wanted = {
            out
            for node in ordered
            for out in node.outputs
            if out in delivered
            or any(c.name not in chosen for c in graph.consumers.get(out, ()))
        }
    else:
        wanted = set(outputs)
    return Region(
        nodes=tuple(node.name for node in ordered),
        outputs=tuple(o for node in ordered for o in node.outputs if o in wanted),
    )
