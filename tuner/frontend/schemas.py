"""What the ONNX standard says of an operator: signature, defaults, function body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import onnx
from onnx import AttributeProto, defs

from tuner.frontend.protos import attribute_of

# These operators kept their meaning when the standard gave them a body, so older
# versions may use the body of the version named here.
_BODY_OF: Final[Mapping[str, int]] = MappingProxyType({"LeakyRelu": 16, "PRelu": 16})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What an operator accepts.

    Attributes:
        schema: the standard's own description.
        inputs: least and greatest number of inputs.
        types: attribute type (a number of AttributeProto) by name.
        defaults: value of the attributes that have one.
        required: attributes that must be there.
        has_body: whether the standard defines it by other operators.
    """

    schema: defs.OpSchema
    inputs: tuple[int, int]
    types: Mapping[str, int]
    defaults: Mapping[str, AttributeProto]
    required: tuple[str, ...]
    has_body: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One node of a function body; attributes are literal."""

    op: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A function body."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lines: tuple[Line, ...]


@lru_cache(maxsize=4096)
def signature(op: str, domain: str, opset: int) -> Signature | None:
    """The standard's description of an operator, or None if it has none."""
    try:
        schema = defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return None
    attributes = schema.attributes
    return Signature(
        schema=schema,
        inputs=(schema.min_input, schema.max_input),
        types={name: _number(a.type) for name, a in attributes.items()},
        defaults={
            name: a.default_value
            for name, a in attributes.items()
            if a.default_value.name
        },
        required=tuple(name for name, a in attributes.items() if a.required),
        has_body=_has_body(schema) or (op in _BODY_OF and not domain),
    )


def _has_body(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


def _number(kind: Any) -> int:
    return int(kind.value)


@lru_cache(maxsize=4096)
def body(node: bytes, domain: str, opset: int, types: tuple[bytes, ...]) -> Body | None:
    """The body that the standard gives to a node, or None.

    Args:
        node: the serialised node; names of tensors matter only as presence.
        domain: its domain.
        opset: version of the domain.
        types: serialised types of the inputs; empty where absent.
    """
    proto = onnx.NodeProto.FromString(node)
    known = signature(proto.op_type, domain, opset)
    if known is None:
        return None
    text = _text(known.schema, opset, node, types)
    if text is None and proto.op_type in _BODY_OF and not domain:
        later = defs.get_schema(proto.op_type, _BODY_OF[proto.op_type])
        text = _text(later, opset, node, types)
    if text is None:
        return None
    function = onnx.FunctionProto.FromString(text)
    return body_of(function, proto, (domain, opset), known.defaults)


def body_of(
    function: onnx.FunctionProto,
    proto: onnx.NodeProto,
    origin: tuple[str, int],
    defaults: Mapping[str, AttributeProto] = MappingProxyType({}),
) -> Body | None:
    """The body that a function gives to a node, or None where it holds control flow.

    Args:
        function: what the operator is.
        proto: the node; its attributes win.
        origin: domain and opset of the node.
        defaults: attributes that neither states.
    """
    values = {a.name: a for a in function.attribute_proto}
    values.update(defaults)
    values.update({a.name: a for a in proto.attribute})
    return _body(function, values, origin)


def _text(
    schema: Any, opset: int, node: bytes, types: tuple[bytes, ...]
) -> bytes | None:
    """Serialised function of a schema: the newest not above the opset, else any."""
    if schema.has_context_dependent_function:
        version = _choose(schema.context_dependent_function_opset_versions, opset)
        text = schema.get_context_dependent_function_with_opset_version(
            version, node, list(types)
        )
        if text:
            return bytes(text)
    if schema.has_function:
        version = _choose(schema.function_opset_versions, opset)
        return bytes(schema.get_function_with_opset_version(version))
    return None


def _choose(versions: list[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=min(versions))


def _body(
    function: onnx.FunctionProto,
    values: Mapping[str, AttributeProto],
    origin: tuple[str, int],
) -> Body | None:
    opsets = {entry.domain: entry.version for entry in function.opset_import}
    opsets.setdefault(*origin)
    lines: list[Line] = []
    for node in function.node:
        resolved = _resolve(node, values)
        attributes = {a.name: attribute_of(a) for a in resolved.attribute}
        if any(a.HasField("g") for a in resolved.attribute):
            return None  # control flow inside: the whole node stays as it is
        line = Line(
            op=node.op_type,
            domain=node.domain,
            opset=opsets.get(node.domain, origin[1]),
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attributes=attributes,
            proto=resolved,
        )
        lines.append(line)
    return Body(
        inputs=tuple(function.input),
        outputs=tuple(function.output),
        lines=tuple(lines),
    )


def _resolve(
    node: onnx.NodeProto, values: Mapping[str, AttributeProto]
) -> onnx.NodeProto:
    """Put the caller's attributes where the body refers to them."""
    result = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    result.input.extend(node.input)
    result.output.extend(node.output)
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            result.attribute.add().CopyFrom(attribute)
        elif attribute.ref_attr_name in values:
            entry = result.attribute.add()
            entry.CopyFrom(values[attribute.ref_attr_name])
            entry.name = attribute.name
    return result
