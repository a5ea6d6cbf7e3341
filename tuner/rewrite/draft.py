"""The graph while it is being rewritten: the only mutable thing of this package."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tuner.errors import InternalError
from tuner.ir.fingerprint import walk
from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.types import Array, TensorType
from tuner.rewrite.rule import Known, Make, Value

_Key = tuple[object, ...]
_Rope = tuple["str | _Rope", ...]
"""Names in order, written down in parts that are shared: joining two takes no time."""
_SHORT: Final = 64
"""Lists of origins of fewer parts are kept free of what adds nothing."""
_NEAR: Final = 3
"""How far downstream most rules see a change; a last full sweep finds the rest."""


class Draft:
    """A graph under rewriting. Implements `View`.

    Nothing here depends on names or on the order of the nodes handed in: work goes in
    the order of a depth-first walk from the outputs, so isomorphic graphs are
    rewritten to isomorphic graphs.
    """

    def __init__(self, graph: Graph) -> None:
        """Start from what the outputs of a graph need."""
        self._given = graph
        self._outputs = list(graph.outputs)
        self._types: dict[str, TensorType] = dict(graph.types)
        self._constants: dict[str, Array] = {}
        self._makers: dict[str, Node] = {}
        self._alive: dict[str, Node] = {}
        self._readers: dict[str, dict[str, Node]] = {}
        self._origins: dict[str, _Rope] = {}
        self._lost: dict[str, _Rope] = {}
        self._twins: dict[_Key, str] = {}
        self._names = {node.name for node in graph.nodes}
        self._weights = frozenset(graph.weights)
        self._static: dict[str, bool] = {}
        self.fresh: set[str] = set()
        self._touched: set[str] = set()
        nodes, sources = walk(graph.outputs, graph.producers.get)
        same: dict[str, str] = {}
        for name in sources:
            if name in graph.constants:
                known = Known(graph.types[name], graph.constants[name])
                same[name] = self._constant(known, name)
        self._outputs = [same.get(name, name) for name in self._outputs]
        for node in nodes:
            self._add(_reading(node, same) if same else node)
        self._touched.clear()

    # What rules may ask

    def maker(self, tensor: str) -> Node | None:
        """The node that makes a tensor; None for inputs, weights and constants."""
        return self._makers.get(tensor)

    def type(self, tensor: str) -> TensorType:
        """The type of a tensor."""
        return self._types[tensor]

    def constant(self, tensor: str) -> Array | None:
        """The value of a constant."""
        return self._constants.get(tensor)

    def is_static(self, tensor: str) -> bool:
        """Whether a tensor depends on weights and constants alone."""
        return (
            tensor in self._constants
            or tensor in self._weights
            or self._static.get(tensor, False)
        )

    def read_once(self, tensor: str) -> bool:
        """Whether a tensor has a single reader and is not delivered."""
        return len(self._readers.get(tensor, ())) == 1 and tensor not in self._outputs

    def only_read_by(self, tensor: str, op: str) -> bool:
        """Whether all readers of a tensor have an operator; it is not delivered."""
        readers = self._readers.get(tensor, {}).values()
        return all(node.op == op for node in readers) and tensor not in self._outputs

    def twin(self, node: Node) -> str | None:
        """The result of another node that does the same work on the same tensors."""
        key = self._key(node)
        name = self._twins.setdefault(key, node.outputs[0])
        if name == node.outputs[0]:
            return None
        other = self._makers.get(name)
        if other is not None and self._key(other) == key:
            return name
        self._twins[key] = node.outputs[0]
        return None

    # What the driver does

    def order(self) -> list[Node]:
        """The nodes that matter, in canonical order."""
        return walk(self._outputs, self._makers.get)[0]

    def take_touched(self) -> set[str]:
        """Nodes near what changed since the last call."""
        near = {node for node in self._touched if node in self._alive}
        for _ in range(_NEAR):
            near |= {
                reader
                for name in near
                for out in self._alive[name].outputs
                for reader in self._readers.get(out, ())
            }
        self._touched.clear()
        return near

    def rewrite(self, node: Node, value: Value, rule: str) -> None:
        """Put a value in the place of a node's result.

        User nodes that are gone with it are listed in the node that makes the value
        now; where no node does, in those that read it.

        Raises:
            InternalError: the value has another type than the node's result.
        """
        result = node.outputs[0]
        if isinstance(value, Make):
            root = self._root(node, value)
            self._demand(rule, node, self._infer(root))
            self._remove(node)
            self._add(root)
            self._credit(root.outputs[0], self._bury(node))
            return
        given = value.type if isinstance(value, Known) else self._types[value]
        self._demand(rule, node, given)
        self._remove(node)
        if isinstance(value, Known):
            free = self._unused(result) if result in self._outputs else result
            value = self._constant(value, free)
        readers = tuple(self._readers.get(result, ()))
        kept = self._redirect(result, value)
        gone = _joined(self._bury(node), self._origins_of(node))
        self._lost[result] = gone
        if kept in self._makers:
            self._credit(kept, gone)
            return
        for reader in readers:
            self._credit(self._readers[kept][reader].outputs[0], gone)

    def finish(self) -> Graph:
        """The rewritten graph.

        Each output has the name it came with and is made by a node of its own; where
        nothing else is left to make it, that node is a reshape to the same shape.
        """
        for place, wanted in enumerate(self._given.outputs):
            tensor = self._outputs[place]
            if tensor != wanted or tensor not in self._makers:
                self._outputs[place] = self._alias(wanted, tensor)
        return self._graph()

    def _alias(self, wanted: str, tensor: str) -> str:
        name = wanted if wanted not in self._taken() else self._unused(wanted)
        given = self._types[tensor]
        self._types[name] = given
        self._add(
            Node(
                name=self._new_name(f"{name}/output"),
                op="reshape",
                inputs=(tensor,),
                outputs=(name,),
                attributes=MappingProxyType({"shape": given.shape}),
                origins=_flat(self._lost.get(wanted, ())),
            )
        )
        return name

    def _taken(self) -> set[str]:
        given = self._given
        return {*given.inputs, *given.weights, *self._constants, *self._makers}

    def _graph(self) -> Graph:
        nodes, sources = walk(self._outputs, self._makers.get)
        used = set(sources)
        inputs = self._given.inputs
        weights = tuple(name for name in self._given.weights if name in used)
        constants = {n: self._constants[n] for n in sources if n in self._constants}
        names = (
            *inputs,
            *weights,
            *constants,
            *(out for node in nodes for out in node.outputs),
        )
        return Graph(
            nodes=tuple(map(self._told, nodes)),
            inputs=inputs,
            weights=weights,
            constants=MappingProxyType(constants),
            outputs=tuple(self._outputs),
            types=MappingProxyType({name: self._types[name] for name in names}),
        )

    def _told(self, node: Node) -> Node:
        """A node that lists all user nodes that it does work for."""
        origins = _flat(self._origins_of(node))
        return node if origins == node.origins else replace(node, origins=origins)

    # Parts of a rewrite

    def _root(self, node: Node, value: Make) -> Node:
        composite = node.composite if value.composite is None else value.composite
        self._origins[node.name] = self._origins_of(node)
        return Node(
            name=node.name,
            op=value.op,
            inputs=tuple(self._place(part, node) for part in value.inputs),
            outputs=node.outputs,
            attributes=value.attributes,
            composite=composite,
        )

    def _place(self, value: Value, node: Node) -> str:
        """The tensor that holds a value; nodes are made for it where needed."""
        if isinstance(value, str):
            return value
        if isinstance(value, Known):
            return self._constant(value, self._unused(node.name))
        draft = self._root(node, value)
        name = self._unused(node.name)
        made = replace(draft, name=self._new_name(name), outputs=(name,))
        self._origins[made.name] = self._origins[node.name]
        self._types[name] = self._infer(made)
        self.fresh.add(name)
        self._add(made)
        return name

    def _infer(self, node: Node) -> TensorType:
        infer = OPS[node.op].infer
        assert infer is not None
        types = [self._types[name] for name in node.inputs]
        return infer(types, node.attributes)[0]

    def _demand(self, rule: str, node: Node, found: TensorType) -> None:
        wanted = self._types[node.outputs[0]]
        if found != wanted:
            raise InternalError(
                node.name, f"rule {rule!r} gives {found}, and {wanted} is needed"
            )

    def _add(self, node: Node) -> None:
        self._alive[node.name] = node
        self._touched.add(node.name)
        for name in node.inputs:
            self._readers.setdefault(name, {})[node.name] = node
        is_static = all(map(self.is_static, node.inputs)) and node.op != "opaque"
        for name in node.outputs:
            self._makers[name] = node
            self._static[name] = is_static

    def _remove(self, node: Node) -> None:
        del self._alive[node.name]
        for name in node.outputs:
            del self._makers[name]
        for name in dict.fromkeys(node.inputs):
            del self._readers[name][node.name]
            self._touched.update(self._readers[name])

    def _swap(self, node: Node, other: Node) -> None:
        self._remove(node)
        self._add(other)

    def _redirect(self, result: str, value: str) -> str:
        """Let all readers of a result read a value; say what the value is called now.

        A delivered name outlives one that is not.
        """
        self._move_readers(result, value)
        if result not in self._outputs:
            return value
        maker = self._makers.get(value)
        if maker is None or value in self._outputs:
            self._outputs = [value if o == result else o for o in self._outputs]
            return value
        places = tuple(result if o == value else o for o in maker.outputs)
        self._swap(maker, replace(maker, outputs=places))
        self._move_readers(value, result)
        return result

    def _move_readers(self, old: str, new: str) -> None:
        for reader in tuple(self._readers.get(old, {}).values()):
            self._swap(reader, _reading(reader, {old: new}))

    def _origins_of(self, node: Node) -> _Rope:
        """User nodes that a node does work for, as far as is known by now."""
        return self._origins.get(node.name, node.origins)

    def _credit(self, tensor: str, origins: _Rope) -> None:
        """List user nodes in the node that makes a tensor."""
        maker = self._makers[tensor]
        own = self._origins_of(maker)
        if not _is_listed(origins, own):
            self._origins[maker.name] = _joined(origins, own)
            self._swap(maker, maker)

    def _bury(self, node: Node) -> _Rope:
        """Drop what only a removed node read; give the user nodes it stood for."""
        stack = list(node.inputs)
        gone: _Rope = ()
        while stack:
            maker = self._makers.get(stack.pop())
            if maker is None or any(self._is_wanted(out) for out in maker.outputs):
                continue
            self._remove(maker)
            gone = _joined(self._origins_of(maker), gone)
            stack.extend(maker.inputs)
        return gone

    def _is_wanted(self, tensor: str) -> bool:
        return bool(self._readers.get(tensor)) or tensor in self._outputs

    def _constant(self, known: Known, name: str) -> str:
        """The name of an equal constant, which is made where there is none."""
        value = known.value
        key = ("constant", known.type, value.tobytes())
        kept = self._twins.setdefault(key, name)
        if kept == name:
            self._constants[name] = value
            self._types[name] = known.type
        return kept

    @staticmethod
    def _key(node: Node) -> _Key:
        attributes = node.attributes
        if not attributes:
            return (node.op, node.inputs)
        return (node.op, node.inputs, repr(sorted(attributes.items())))

    def _unused(self, base: str) -> str:
        return _numbered(base, self._types)

    def _new_name(self, base: str) -> str:
        name = base if base not in self._names else _numbered(base, self._names)
        self._names.add(name)
        return name


def _joined(first: _Rope, second: _Rope) -> _Rope:
    return (first, second) if first and second else first or second


def _is_listed(names: _Rope, rope: _Rope) -> bool:
    """Whether a few names are all in a short list; of long ones it is not asked.

    A name that is listed twice only matters for the order, see `_flat`.
    """
    new = list(itertools.islice(_parts(names), _SHORT))
    known = list(itertools.islice(_parts(rope), _SHORT))
    return len(new) < _SHORT and {n for n in new if n} <= set(known)


def _flat(rope: _Rope) -> tuple[str, ...]:
    """Each name once, where it comes first."""
    return tuple(dict.fromkeys(filter(None, _parts(rope))))


def _parts(rope: _Rope) -> Iterator[str]:
    """Names in order, and "" for each place where a rope branches.

    A part that comes again is passed by: it has nothing to add.
    """
    seen: set[int] = set()
    stack: list[str | _Rope] = [rope]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            yield part
        elif id(part) not in seen:
            seen.add(id(part))
            stack.extend(reversed(part))
            yield ""


def _numbered(base: str, taken: Mapping[str, object] | set[str]) -> str:
    number = 0
    while f"{base}/{number}" in taken:
        number += 1
    return f"{base}/{number}"


def _reading(node: Node, names: Mapping[str, str]) -> Node:
    if not any(name in names for name in node.inputs):
        return node
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
