"""Reads ONNX models into graphs of primitive operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx

from tuner.errors import InvalidModel, UnsupportedModel
from tuner.frontend.assemble import Plan, assemble
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results
from tuner.frontend.imported import Imported
from tuner.frontend.model import (
    Limits,
    Metadata,
    bind,
    inline,
    lighten,
    metadata_of,
    opsets_of,
    parse,
    symbols_of,
    write_metadata,
)
from tuner.frontend.opaque import as_opaque, captures
from tuner.frontend.order import names_of, sort_nodes
from tuner.frontend.protos import array_of, attribute_of, dtype_of, proto_of, type_of
from tuner.frontend.rules.table import RULES
from tuner.frontend.schemas import Body, body, signature
from tuner.ir.types import Array, DType, TensorType
from tuner.ir.verify import verify

_DEPTH: Final = 8
"""Bodies within bodies: the deepest in the standard is three."""
_MISFITS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""What NumPy and Python raise where lists of extents have the wrong length."""


def read_onnx(
    data: bytes,
    *,
    dims: Mapping[str, int] = MappingProxyType({}),
    use_defaults: bool = False,
    limits: Limits | None = None,
) -> Imported:
    """Read a model.

    Args:
        data: the serialised model.
        dims: sizes of symbolic dimensions.
        use_defaults: whether the model's own `dim_defaults` bind what `dims` does not.
        limits: what is read at most.

    Raises:
        InvalidModel: the bytes are not a model, or it breaks its own standard.
        UnsupportedModel: it uses what is refused on purpose.
        ModelTooLarge: it exceeds the limits.
        InvalidOption: `dims` names a dimension that the model does not have.
    """
    model = parse(data, limits)
    metadata = metadata_of(model)
    values = lighten(model)
    bound = _bound(model, metadata, dims, use_defaults=use_defaults)
    bind(model, bound)
    listed = {value.name for value in model.graph.input}
    given = {tensor.name for tensor in model.graph.initializer}
    weights = [n for n in metadata.weights if n in listed and n not in given]
    weights += [n for n in values if n not in metadata.weights]
    write_metadata(model, "weights", weights)
    reader = _Reader(inline(model), set(weights))
    graph = verify(reader.read())
    return Imported(
        graph=graph,
        values=MappingProxyType(values),
        input_ranges=MappingProxyType(dict(metadata.input_ranges)),
        dim_defaults=MappingProxyType(dict(metadata.dim_defaults)),
        gain=metadata.gain,
        dims=MappingProxyType(bound),
        symbols=symbols_of(model.graph),
        assumptions=tuple(reader.b.assumptions),
        is_training=reader.is_training,
        onnx=model.SerializeToString(),
    )


def _bound(
    model: onnx.ModelProto,
    metadata: Metadata,
    dims: Mapping[str, int],
    *,
    use_defaults: bool,
) -> dict[str, int]:
    if not use_defaults:
        return dict(dims)
    known = symbols_of(model.graph)
    defaults = {k: v for k, v in metadata.dim_defaults.items() if k in known}
    return {**defaults, **dims}


class _Reader:
    """Walks the nodes of one model, in order."""

    def __init__(self, model: onnx.ModelProto, weights: set[str]) -> None:
        self.model = model
        self.weights = weights
        self.b = Builder()
        self.opsets = opsets_of(model)
        self.env: dict[str, Ref] = {}
        self.labels: dict[Ref, str] = {}
        self.is_training = False
        self._stated: dict[str, onnx.TypeProto] | None = None

    def read(self) -> Any:
        """The graph of the model."""
        graph = self.model.graph
        inputs = self._sources(graph)
        names = names_of(graph.node)
        makers: dict[str, int] = {}
        for index in sort_nodes(graph.node, names, self.env):
            self.b.user, self.b.where = index, names[index]
            self._node(graph.node[index])
            makers.update(dict.fromkeys(graph.node[index].output, index))
        twice = [n for n, k in Counter(v.name for v in graph.output).items() if k > 1]
        if twice:
            raise InvalidModel(twice[0], "is listed twice among the outputs")
        outputs = [
            (value.name, self._result(value.name), makers.get(value.name, -1))
            for value in graph.output
        ]
        plan = Plan(
            users=names,
            labels=self.labels,
            inputs=[ref for name, ref in inputs if name not in self.weights],
            weights={ref for name, ref in inputs if name in self.weights},
            outputs=outputs,
        )
        return assemble(self.b, plan)

    def _result(self, name: str) -> Ref:
        if name not in self.env:
            raise InvalidModel(
                name, "is a graph output that nothing makes", hint="rename or drop it"
            )
        return self.env[name]

    def _sources(self, graph: onnx.GraphProto) -> list[tuple[str, Ref]]:
        for tensor in graph.initializer:
            array = array_of(tensor, tensor.name)
            dtype = dtype_of(tensor.data_type, tensor.name)
            self._define(tensor.name, self._known(array, dtype))
        if graph.sparse_initializer:
            raise UnsupportedModel(
                graph.sparse_initializer[0].values.name,
                "is a sparse initializer",
                hint="store it as an ordinary one",
            )
        inputs = []
        given = {tensor.name for tensor in graph.initializer}
        for value in graph.input:
            if value.name in given:
                continue  # models before IR version 4 list initializers as inputs
            ref = self.b.source(type_of(value.type, value.name))
            self._define(value.name, ref)
            inputs.append((value.name, ref))
        return inputs

    def _known(self, array: Array, dtype: DType) -> Ref:
        return self.b.source(TensorType(dtype=dtype, shape=array.shape), array)

    def _define(self, name: str, ref: Ref) -> None:
        if name in self.env:
            raise InvalidModel(name, "is defined twice")
        self.env[name] = ref
        self.labels.setdefault(ref, name)

    def _node(self, node: onnx.NodeProto) -> None:
        call = self._call(node)
        _check(call, self.b.where)
        captured = {name: self.env[name] for name in captures(node)}
        refs = self._lower(call, captured, 0)
        for name, ref in zip(node.output, refs, strict=False):
            if name:
                if ref is None:
                    raise InvalidModel(self.b.where, f"{name!r} cannot be made")
                self._bind(name, ref)
        if call.whole("training_mode", 0):
            self.is_training = True

    def _bind(self, name: str, ref: Ref) -> None:
        self.env[name] = ref
        maker = self.b.makers[ref]
        if maker is None:
            if self.b.values[ref] is not None:
                self.labels.setdefault(ref, name)
            return
        if maker.user == self.b.user:
            self.labels.setdefault(ref, name)
        else:
            maker.guests.append(self.b.user)

    def _call(self, node: onnx.NodeProto) -> Call:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain not in self.opsets:
            raise InvalidModel(
                self.b.where, f"uses the domain {domain!r}, whose opset is not stated"
            )
        try:
            inputs = tuple(self.env[name] if name else None for name in node.input)
        except KeyError as error:
            raise InvalidModel(self.b.where, f"reads {error}, not made") from error
        return Call(
            op=node.op_type,
            domain=domain,
            opset=self.opsets[domain],
            inputs=inputs,
            outputs=tuple(bool(name) for name in node.output),
            attributes={a.name: attribute_of(a) for a in node.attribute},
            proto=node,
        )

    def _lower(self, call: Call, captured: Mapping[str, Ref], depth: int) -> Results:
        """Try our rule, then the standard's body, then an opaque node."""
        mark = len(self.b.drafts)
        if not call.domain:
            constant = self._constant(call)
            if constant is not None:
                return (constant,)
            rule = RULES.get(call.op)
            if rule is not None:
                try:
                    return rule(self.b, call)
                except Decline:
                    del self.b.drafts[mark:]
                except _MISFITS as error:
                    raise InvalidModel(
                        self.b.where, f"its attributes do not fit: {error}"
                    ) from error
        if depth < _DEPTH and not captured:
            text = self._body(call)
            if text is not None:
                try:
                    return self._expand(call, text, depth)
                except (Decline, UnsupportedModel):
                    del self.b.drafts[mark:]
        return as_opaque(self.b, call, captured, lambda k: self._find(call, k))

    def _constant(self, call: Call) -> Ref | None:
        if call.op == "Constant":
            for name, value in call.attributes.items():
                if name == "value":
                    dtype = dtype_of(value.data_type, self.b.where)
                    return self._known(array_of(value, self.b.where), dtype)
                if name in ("value_float", "value_floats"):
                    return self.b.constant(np.asarray(value, np.float32), DType.F32)
                if name in ("value_int", "value_ints"):
                    return self.b.constant(np.asarray(value, np.int64), DType.I64)
        return None

    def _body(self, call: Call) -> Body | None:
        node = call.proto
        types = tuple(
            b"" if ref is None else proto_of(self.b.types[ref]).SerializeToString()
            for ref in call.inputs
        )
        plain = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
        plain.attribute.extend(node.attribute)
        plain.input.extend(
            "" if r is None else f"i{k}" for k, r in enumerate(call.inputs)
        )
        plain.output.extend(f"o{k}" if a else "" for k, a in enumerate(call.outputs))
        return body(plain.SerializeToString(), call.domain, call.opset, types)

    def _expand(self, call: Call, text: Body, depth: int) -> Results:
        """Run through a function body with the inputs of the call."""
        scope: dict[str, Ref | None] = dict.fromkeys(text.inputs)
        scope.update(zip(text.inputs, call.inputs, strict=False))
        scope[""] = None
        for line in text.lines:
            inner = Call(
                op=line.op,
                domain=line.domain,
                opset=line.opset,
                inputs=tuple(scope[name] for name in line.inputs),
                outputs=tuple(bool(name) for name in line.outputs),
                attributes=line.attributes,
                proto=line.proto,
            )
            refs = self._lower(inner, {}, depth + 1)
            scope.update(zip(line.outputs, refs, strict=False))
        return [scope.get(name) for name in text.outputs]

    def _find(self, call: Call, position: int) -> onnx.TypeProto | None:
        """The type that the model states or that inference over all of it finds."""
        if self._stated is None:
            try:
                whole = onnx.shape_inference.infer_shapes(self.model, data_prop=True)
            except onnx.shape_inference.InferenceError:
                whole = self.model
            self._stated = {
                value.name: value.type
                for value in (*whole.graph.value_info, *whole.graph.output)
            }
        if position >= len(call.proto.output):
            return None
        return self._stated.get(call.proto.output[position])


def _check(call: Call, where: str) -> None:
    """Compare a node of the standard with its signature."""
    known = signature(call.op, call.domain, call.opset)
    if known is None:
        return
    least, most = known.inputs
    if not least <= len(call.inputs) <= most:
        raise InvalidModel(
            where, f"{call.op} takes {least} to {most} inputs, has {len(call.inputs)}"
        )
    for attribute in call.proto.attribute:
        wanted = known.types.get(attribute.name)
        if attribute.type != wanted:
            problem = "has the wrong type" if wanted else f"is none of {call.op}'s"
            raise InvalidModel(where, f"its attribute {attribute.name!r} {problem}")
    for name in known.required:
        if name not in call.attributes:
            raise InvalidModel(where, f"{call.op} lacks its attribute {name!r}")
