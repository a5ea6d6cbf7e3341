"""Identity of graphs: canonical order, canonical ids, and a digest free of names.

Operands have positions and so have graph outputs. Hence every node that matters is
reached by a path of positions from an output, a depth-first walk meets the nodes in an
order that depends on nothing else, and two graphs are the same exactly when their walks
read the same. No refinement of colours and no ties: the walk is linear.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tuner.ir.graph import Attribute, Graph, Node
from tuner.ir.types import Array, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """A graph, what is prepared for it, and the way back to the names handed in.

    Attributes:
        graph: nodes n0, n1, ... and tensors t0, t1, ... in canonical order.
        prepare: the weight-only part. A tensor that both graphs know has one id.
        names: canonical id -> names in the graph handed in: of a node its origins, of
            a tensor its name.
        dims: canonical name of a symbolic dimension -> its name as handed in.
        fingerprint: SHA-256 of both graphs, as hexadecimal digits.
    """

    graph: Graph
    prepare: Graph
    names: Mapping[str, tuple[str, ...]]
    dims: Mapping[str, str]
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A kernel's graph in ids of its own.

    Attributes:
        graph: nodes n0, n1, ... and tensors t0, t1, ... in canonical order.
        names: node or tensor id -> its name in the graph handed in.
        fingerprint: SHA-256 of the graph, as hexadecimal digits.
    """

    graph: Graph
    names: Mapping[str, str]
    fingerprint: str


EMPTY = Graph(nodes=(), inputs=(), outputs=(), types=MappingProxyType({}))
"""A graph without nodes: the `prepare` of a model that needs none."""


def walk(
    outputs: Iterable[str], maker: Callable[[str], Node | None]
) -> tuple[list[Node], list[str]]:
    """Nodes and sources behind some tensors, in depth-first order.

    Args:
        outputs: where the walk starts, in order.
        maker: the node that makes a tensor, if any.

    Returns:
        The nodes, each after those whose outputs it reads, and the tensors that no
        node makes, in order of first use. What no output needs is not there.
    """
    nodes: dict[str, Node] = {}
    sources: dict[str, None] = {}
    stack: list[str | Node] = [*reversed(list(outputs))]
    opened: set[str] = set()
    while stack:
        top = stack.pop()
        if isinstance(top, Node):  # all that it reads has been met
            nodes[top.name] = top
            continue
        node = maker(top)
        if node is None:
            sources[top] = None
        elif node.name not in opened:
            opened.add(node.name)
            stack.append(node)
            stack.extend(node.inputs[::-1])
    return list(nodes.values()), list(sources)


def canonicalize(graph: Graph, prepare: Graph | None = None) -> Canonical:
    """Rename nodes and tensors so that names and node order leave no trace.

    Nodes that no output needs are left out. Inputs and weights are known by their
    use, outputs by their position, constants by their values.

    Args:
        graph: the main graph.
        prepare: makes some of the main graph's weights from others.
    """
    before = prepare if prepare is not None else EMPTY
    nodes, sources = walk(graph.outputs, graph.producers.get)
    made = [name for name in sources if name in before.producers]
    early, roots = walk(made, before.producers.get)
    labels = _Labels()
    known = {**before.types, **graph.types}
    both = list(dict.fromkeys((*sources, *roots)))
    given = set(graph.inputs)
    used = [name for name in both if name in given]
    unused = [name for name in graph.inputs if name not in set(used)]
    constants = {**before.constants, **graph.constants}
    weights = [n for n in both if n not in given and n not in constants]
    fixed = [n for n in both if n in constants]
    labels.tensors(used)
    labels.tensors(weights)
    labels.tensors(fixed)
    for node in (*nodes, *early):
        labels.node(node)
    labels.dims(known[name] for name in labels.tensor)
    idle = sorted(unused, key=lambda name: labels.pattern(known[name]))
    labels.tensors(idle)
    labels.dims(known[name] for name in idle)
    main = labels.relabel(
        graph, nodes, inputs=(*used, *idle), sources=sources, outputs=graph.outputs
    )
    first = labels.relabel(before, early, inputs=(), sources=roots, outputs=made)
    return Canonical(
        graph=main,
        prepare=first,
        names=labels.names((*nodes, *early)),
        dims=MappingProxyType({new: old for old, new in labels.dim.items()}),
        fingerprint=_digest((text(main), text(first))),
    )


def fingerprint(graph: Graph) -> str:
    """Identity of a kernel's graph: equal for equal kernels of different places."""
    return local_form(graph).fingerprint


def local_form(graph: Graph) -> Local:
    """A small graph in ids of its own, without a trace of where it was cut out.

    The order of its outputs does not matter either. Origins and composites are
    dropped.
    """
    outputs = _settled_outputs(graph)
    nodes, sources = walk(outputs, graph.producers.get)
    given, weights = set(graph.inputs), set(graph.weights)
    labels = _Labels()
    used = [name for name in sources if name in given]
    labels.tensors(used)
    labels.tensors([name for name in sources if name in weights])
    labels.tensors([name for name in sources if name in graph.constants])
    for node in nodes:
        labels.node(node)
    labels.dims(graph.types[name] for name in labels.tensor)
    bare = [replace(node, origins=(), composite="") for node in nodes]
    local = labels.relabel(graph, bare, inputs=used, sources=sources, outputs=outputs)
    back = {new: old for old, new in labels.tensor.items()}
    back.update({new: old for old, new in labels.nodes.items()})
    return Local(
        graph=local, names=MappingProxyType(back), fingerprint=_digest((text(local),))
    )


def _settled_outputs(graph: Graph) -> tuple[str, ...]:
    """The outputs in an order that depends on how they are computed only.

    Colours of tensors are refined downstream and upstream a few times. Outputs that
    still look alike keep their order: in all but contrived graphs they are then
    interchangeable, and otherwise an equal kernel is merely not recognised.
    """
    outputs = tuple(dict.fromkeys(graph.outputs))
    if len(outputs) == 1:
        return outputs
    nodes, sources = walk(outputs, graph.producers.get)
    delivered = set(outputs)
    colour: dict[str, int] = {
        name: _mix("source", _source_text(graph, name)) for name in sources
    }
    rows = [(node, _mix(node.op, _attributes(node.attributes))) for node in nodes]
    for _ in range(3):
        for node, own in rows:
            seen = _mix(own, *(colour[name] for name in node.inputs))
            for place, name in enumerate(node.outputs):
                colour[name] = _mix(seen, place, name in delivered, colour.get(name, 0))
        for node, own in reversed(rows):
            seen = _mix(own, *(colour[name] for name in node.outputs))
            for place, name in enumerate(node.inputs):
                # A sum, so that the order of a tensor's readers does not matter.
                colour[name] = (colour[name] + _mix(seen, place)) & _MASK
    return tuple(sorted(outputs, key=lambda name: colour[name]))


_MASK = (1 << 64) - 1


def _mix(*parts: object) -> int:
    data = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def _source_text(graph: Graph, name: str) -> str:
    given = graph.types[name]
    shape = tuple(d if isinstance(d, int) else "?" for d in given.shape)
    value = graph.constants.get(name)
    known = "" if value is None else _value_text(value)
    return f"{name in graph.weights}{given.dtype}{shape}{known}"


class _Labels:
    """Canonical ids, given out in order of appearance."""

    def __init__(self) -> None:
        self.tensor: dict[str, str] = {}
        self.nodes: dict[str, str] = {}
        self.group: dict[str, str] = {}
        self.dim: dict[str, str] = {}

    def tensors(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.tensor:
                self.tensor[name] = f"t{len(self.tensor)}"

    def node(self, node: Node) -> None:
        self.nodes[node.name] = label = f"n{len(self.nodes)}"
        if node.composite:
            self.group.setdefault(node.composite, label)
        self.tensors(node.outputs)

    def dims(self, types: Iterable[TensorType]) -> None:
        for given in types:
            for extent in given.shape:
                if isinstance(extent, str) and extent not in self.dim:
                    self.dim[extent] = f"d{len(self.dim)}"

    def pattern(self, given: TensorType) -> str:
        """A type as text; symbols without an id are told apart by first place only."""
        fresh: dict[str, str] = {}
        shape = [
            str(extent)
            if isinstance(extent, int)
            else self.dim.get(extent) or fresh.setdefault(extent, f"?{len(fresh)}")
            for extent in given.shape
        ]
        return f"{given.dtype}{shape}"

    def type(self, given: TensorType) -> TensorType:
        if not self.dim or not given.symbols:
            return given
        shape = tuple(
            self.dim[extent] if isinstance(extent, str) else extent
            for extent in given.shape
        )
        return TensorType(dtype=given.dtype, shape=shape)

    def relabel(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        *,
        inputs: Iterable[str],
        sources: Iterable[str],
        outputs: Iterable[str],
    ) -> Graph:
        tensor, dim = self.tensor, self.dim
        renamed = tuple(
            Node(
                name=self.nodes[node.name],
                op=node.op,
                inputs=tuple([tensor[name] for name in node.inputs]),
                outputs=tuple([tensor[name] for name in node.outputs]),
                attributes=_rename_dims(node, dim) if dim else node.attributes,
                origins=node.origins,
                composite=self.group[node.composite] if node.composite else "",
            )
            for node in nodes
        )
        given = tuple(inputs)
        fixed = graph.constants
        mine = {tensor[name]: name for name in (*given, *sources)}
        mine.update((tensor[name], name) for node in nodes for name in node.outputs)
        order = sorted(mine, key=_number)
        chosen = {tensor[name] for name in given}
        sourced = sorted({tensor[name] for name in sources} - chosen, key=_number)
        return Graph(
            nodes=renamed,
            inputs=tuple(tensor[name] for name in given),
            weights=tuple(n for n in sourced if mine[n] not in fixed),
            constants=MappingProxyType(
                {name: fixed[mine[name]] for name in sourced if mine[name] in fixed}
            ),
            outputs=tuple(tensor[name] for name in outputs),
            types=MappingProxyType(
                {name: self.type(graph.types[mine[name]]) for name in order}
            ),
        )

    def names(self, nodes: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for node in nodes:
            found[self.nodes[node.name]] = node.origins or (node.name,)
        for name, label in self.tensor.items():
            found[label] = (name,)
        return MappingProxyType(found)


def _number(label: str) -> int:
    return int(label[1:])


def _rename_dims(node: Node, dim: Mapping[str, str]) -> Mapping[str, Attribute]:
    """Attributes with renamed symbols; only extents can hold any."""
    changed = {
        key: tuple([dim.get(v, v) if isinstance(v, str) else v for v in value])
        for key in ("shape", "sizes")
        if isinstance(value := node.attributes.get(key), tuple)
    }
    if not changed or node.op == "opaque":
        return node.attributes
    return MappingProxyType({**node.attributes, **changed})


def text(graph: Graph) -> str:
    """A graph as lines of text; equal exactly for equal graphs.

    Values of weights have no part in it, origins have none either.
    """
    given = [*graph.inputs, "|", *graph.weights]
    lines = [
        " ".join(given),
        *(f"{name} {_type_text(graph.types[name])}" for name in given if name != "|"),
    ]
    for name, value in graph.constants.items():
        lines.append(f"{name} {_type_text(graph.types[name])} {_value_text(value)}")
    for node in graph.nodes:
        made = " ".join(
            [f"{name} {_type_text(graph.types[name])}" for name in node.outputs]
        )
        reads = " ".join(node.inputs)
        attributes = _attributes(node.attributes)
        lines.append(f"{made} = {node.op} {reads} {attributes} {node.composite}")
    lines.append(" ".join(graph.outputs))
    return "\n".join(lines)


def _type_text(given: TensorType) -> str:
    return f"{given.dtype.value}{list(given.shape)}"


def _value_text(value: Array) -> str:
    if value.size == 1:
        return value.tobytes().hex()
    return hashlib.sha256(value.tobytes()).hexdigest()


def _attributes(attributes: Mapping[str, Attribute]) -> str:
    if not attributes:
        return ""
    items = [(key, attributes[key]) for key in sorted(attributes)]
    return " ".join([f"{key}={_attribute(value)}" for key, value in items])


def _attribute(value: Attribute) -> str:
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, str):
        return repr(str(value))
    if isinstance(value, tuple):
        return "(" + ",".join([_attribute(part) for part in value]) + ")"
    return repr(value)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n\n".join(texts).encode()).hexdigest()
