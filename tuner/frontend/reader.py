"""Walks the nodes of a model, and keeps the user's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import onnx

from tuner.errors import InvalidModel, UnsupportedModel
from tuner.frontend.assemble import Plan, assemble
from tuner.frontend.builder import Builder, Ref
from tuner.frontend.call import Call, Results
from tuner.frontend.lowering import check, lower
from tuner.frontend.model import opsets_of
from tuner.frontend.opaque import captures
from tuner.frontend.order import names_of, sort_nodes
from tuner.frontend.protos import array_of, attribute_of, dtype_of, type_of
from tuner.ir.custom import RuleSet
from tuner.ir.graph import Graph
from tuner.ir.types import TensorType


class Reader:
    """Reads one model.

    Attributes:
        is_training: whether a node works in training mode.
        operators: the operator of each node of the user's, by its name.
        b: the graph so far.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        weights: Collection[str],
        rules: RuleSet | None = None,
        islands: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Take a model without functions of its own.

        Args:
            model: the model.
            weights: names of its weights.
            rules: operators of the user's own.
            islands: see `tuner.frontend.islands.Enclosed.members`.
        """
        self.b = Builder(rules)
        self.operators: dict[str, str] = {}
        self.is_training = False
        self._model = model
        self._weights = frozenset(weights)
        self._islands = islands
        self._opsets = opsets_of(model)
        self._env: dict[str, Ref] = {}
        self._labels: dict[Ref, str] = {}
        self._stated: dict[str, onnx.TypeProto] | None = None

    def read(self) -> Graph:
        """The graph of the model.

        Raises:
            InvalidModel: the model breaks the standard.
            UnsupportedModel: it uses what is refused on purpose.
        """
        graph = self._model.graph
        inputs = self._sources(graph)
        names = names_of(graph.node)
        self.operators = {
            name: f"{node.domain}::{node.op_type}".removeprefix("::")
            for name, node in zip(names, graph.node, strict=True)
        }
        makers: dict[str, int] = {}
        for index in sort_nodes(graph.node, names, self._env):
            self.b.user, self.b.where = index, names[index]
            self._node(graph.node[index])
            makers.update(dict.fromkeys(graph.node[index].output, index))
        _check_outputs(graph, self._env)
        users = self._with_members(names)
        plan = Plan(
            users=users,
            labels=self._labels,
            inputs=[ref for name, ref in inputs if name not in self._weights],
            weights={ref for name, ref in inputs if name in self._weights},
            outputs=[
                (value.name, self._env[value.name], makers.get(value.name, -1))
                for value in graph.output
            ],
        )
        return assemble(self.b, plan)

    def _with_members(self, names: Sequence[str]) -> list[str]:
        """Users, those inside of islands too; each is a guest of its island."""
        users = list(names)
        for output, members in self._islands.items():
            maker = self.b.makers[self._env[output]]
            rest = members[1:]
            if maker is not None:
                maker.guests.extend(range(len(users), len(users) + len(rest)))
            users.extend(rest)
        return users

    def unsized(self) -> list[str]:
        """Tensors with a symbolic extent."""
        return [name for name, ref in self._env.items() if self.b.types[ref].symbols]

    def _sources(self, graph: onnx.GraphProto) -> list[tuple[str, Ref]]:
        """Define initializers and inputs; give the inputs."""
        for tensor in graph.initializer:
            self._define(tensor.name, self._known(tensor))
        inputs = []
        given = {tensor.name for tensor in graph.initializer}
        for value in graph.input:
            if value.name in given:
                continue  # models before IR version 4 list initializers as inputs
            ref = self.b.source(type_of(value.type, value.name))
            self._define(value.name, ref)
            inputs.append((value.name, ref))
        return inputs

    def _known(self, tensor: onnx.TensorProto) -> Ref:
        array = array_of(tensor, tensor.name)
        dtype = dtype_of(tensor.data_type, tensor.name)
        return self.b.source(TensorType(dtype=dtype, shape=array.shape), array)

    def _define(self, name: str, ref: Ref) -> None:
        if name in self._env:
            raise InvalidModel(name, "is defined twice")
        self._env[name] = ref
        self._labels.setdefault(ref, name)

    def _node(self, node: onnx.NodeProto) -> None:
        refs = self._run(node, self._env)
        for name, ref in zip(node.output, refs, strict=False):
            if name and ref is None:
                raise InvalidModel(self.b.where, f"{name!r} cannot be made")
            if name and ref is not None:
                self._bind(name, ref)

    def _bind(self, name: str, ref: Ref) -> None:
        """Name a result; a node that only passed it on is listed with its maker."""
        self._env[name] = ref
        maker = self.b.makers[ref]
        if maker is not None and maker.user != self.b.user:
            maker.guests.append(self.b.user)
        elif maker is not None or self.b.values[ref] is not None:
            self._labels.setdefault(ref, name)

    def _run(self, node: onnx.NodeProto, scope: Mapping[str, Ref]) -> Results:
        call = self._call(node, scope)
        check(call, self.b.where)
        if call.whole("training_mode", 0):
            self.is_training = True
        branch = self._branch(call)
        if branch is not None:
            mark = len(self.b.drafts)
            try:
                return self._inside(branch, scope)
            except UnsupportedModel:  # a library may run it as it is
                del self.b.drafts[mark:]
        captured = {name: scope[name] for name in captures(node)}

        def find(position: int) -> onnx.TypeProto | None:
            return self._find(node, position)

        return lower(self.b, call, captured, find)

    def _branch(self, call: Call) -> onnx.GraphProto | None:
        """The branch that an If with a known condition takes."""
        if call.op != "If" or call.domain or self.b.values[call[0]] is None:
            return None
        if next(iter(call.proto.output), "") in self._islands:
            return None
        taken = "then_branch" if self.b.value(call[0]).any() else "else_branch"
        graph: onnx.GraphProto = call.attributes[taken]
        return graph

    def _inside(self, graph: onnx.GraphProto, around: Mapping[str, Ref]) -> Results:
        """Run through a subgraph without inputs in the place of its node."""
        scope = dict(around)
        for tensor in graph.initializer:
            scope[tensor.name] = self._known(tensor)
        for node in graph.node:
            refs = self._run(node, scope)
            made = zip(node.output, refs, strict=False)
            scope.update({name: ref for name, ref in made if ref is not None})
        _check_outputs(graph, scope)
        return [scope[value.name] for value in graph.output]

    def _call(self, node: onnx.NodeProto, scope: Mapping[str, Ref]) -> Call:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain not in self._opsets:
            raise InvalidModel(
                self.b.where, f"uses the domain {domain!r}, whose opset is not stated"
            )
        for name in node.input:
            if name and name not in scope:
                raise InvalidModel(self.b.where, f"reads {name!r}, which is not made")
        return Call(
            op=node.op_type,
            domain=domain,
            opset=self._opsets[domain],
            inputs=tuple([scope[name] if name else None for name in node.input]),
            outputs=tuple([bool(name) for name in node.output]),
            attributes={a.name: attribute_of(a) for a in node.attribute},
            proto=node,
        )

    def _forget_invented(self) -> None:
        """Take back the names that inference made up for extents it does not know."""
        graph = self._model.graph
        own = _dims_of((*graph.input, *graph.output, *graph.value_info))
        for kind in (self._stated or {}).values():
            for dim in kind.tensor_type.shape.dim:
                if dim.dim_param and dim.dim_param not in own:
                    dim.Clear()

    def _find(self, node: onnx.NodeProto, position: int) -> onnx.TypeProto | None:
        """The type that the model states or that inference over all of it finds."""
        if self._stated is None:
            try:
                whole = onnx.shape_inference.infer_shapes(self._model, data_prop=True)
            except onnx.shape_inference.InferenceError:
                whole = self._model
            self._stated = {
                value.name: value.type
                for value in (*whole.graph.value_info, *whole.graph.output)
            }
            self._forget_invented()
        if position >= len(node.output):
            return None
        return self._stated.get(node.output[position])


def _dims_of(values: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """Names of dimensions."""
    shapes = (value.type.tensor_type.shape for value in values)
    return {dim.dim_param for shape in shapes for dim in shape.dim}


def _check_outputs(graph: onnx.GraphProto, scope: Mapping[str, Ref]) -> None:
    if not graph.output:
        raise InvalidModel(
            graph.name, "has no outputs", hint="list what is wanted as graph outputs"
        )
    counts = Counter(value.name for value in graph.output)
    for name, count in counts.items():
        if count > 1:
            raise InvalidModel(
                name,
                "is listed twice among the outputs",
                hint="drop one, or copy it with an Identity node",
            )
        if name not in scope:
            raise InvalidModel(
                name, "is a graph output that nothing makes", hint="rename or drop it"
            )
