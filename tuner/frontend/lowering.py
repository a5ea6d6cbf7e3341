"""One node becomes primitives: by our rule, the standard's body, or as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx

from tuner.errors import InvalidModel, UnsupportedModel
from tuner.frontend import contrib
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results
from tuner.frontend.custom import expand
from tuner.frontend.opaque import FindType, as_opaque
from tuner.frontend.protos import proto_of
from tuner.frontend.rules.table import RULES
from tuner.frontend.schemas import Body, body, signature

_DEPTH: Final = 8
"""Bodies within bodies: the deepest in the standard is three."""
_MISFITS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""What NumPy and Python raise where lists of extents have the wrong length."""


def check(call: Call, where: str) -> None:
    """Compare a node of the standard with its signature.

    Raises:
        InvalidModel: inputs or attributes are not those of the operator.
    """
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


def lower(
    b: Builder,
    call: Call,
    captured: Mapping[str, Ref],
    find: FindType,
    depth: int = 0,
) -> Results:
    """Add the primitives of a node.

    Args:
        b: the graph so far.
        call: the node.
        captured: what its subgraphs read from around it.
        find: types that the model states.
        depth: how many function bodies the node lies in.

    Raises:
        InvalidModel: the node breaks the standard.
        UnsupportedModel: it uses what is refused on purpose.
    """
    mark = len(b.drafts)
    try:
        return _by_rule(b, call)
    except Decline:
        del b.drafts[mark:]
    try:
        if depth < _DEPTH and not captured:
            return _by_body(b, call, find, depth)
    except (Decline, UnsupportedModel):
        del b.drafts[mark:]
    return as_opaque(b, call, captured, find)


def _by_rule(b: Builder, call: Call) -> Results:
    operator = b.rules.by_key.get((call.domain, call.op))
    if operator is not None:
        return [expand(b, call, operator)]
    rule = None if call.domain else RULES.get(call.op)
    if rule is None:
        raise Decline("no rule")
    try:
        return rule(b, call)
    except _MISFITS as error:
        raise InvalidModel(b.where, _misfit(error)) from error


def _misfit(error: Exception) -> str:
    """What a rule stumbled over, without Python's own words for it."""
    if isinstance(error, KeyError):
        return f"an attribute has the unknown value {error}"
    if isinstance(error, IndexError):
        return "a list among its attributes or inputs is too short"
    return f"its attributes do not fit: {error}"


def _by_body(b: Builder, call: Call, find: FindType, depth: int) -> Results:
    """Run through the standard's function body with the inputs of the call."""
    text = _body(b, call)
    if text is None:
        raise Decline("no body")
    scope: dict[str, Ref | None] = dict.fromkeys(text.inputs)
    scope.update(zip(text.inputs, call.inputs, strict=False))
    scope[""] = None
    for line in text.lines:
        inner = Call(
            op=line.op,
            domain=line.domain,
            opset=line.opset,
            inputs=tuple([scope[name] for name in line.inputs]),
            outputs=tuple([bool(name) for name in line.outputs]),
            attributes=line.attributes,
            proto=line.proto,
        )
        refs = lower(b, inner, {}, find, depth + 1)
        scope.update(zip(line.outputs, refs, strict=False))
    return [scope.get(name) for name in text.outputs]


def _body(b: Builder, call: Call) -> Body | None:
    known = signature(call.op, call.domain, call.opset)
    if known is None:
        return contrib.body(b, call)
    if not known.has_body:
        return None
    types = tuple(
        b"" if ref is None else proto_of(b.types[ref]).SerializeToString()
        for ref in call.inputs
    )
    plain = onnx.NodeProto(op_type=call.op, domain=call.domain)
    plain.attribute.extend(call.proto.attribute)
    plain.input.extend("" if r is None else f"i{k}" for k, r in enumerate(call.inputs))
    plain.output.extend(f"o{k}" if a else "" for k, a in enumerate(call.outputs))
    return body(plain.SerializeToString(), call.domain, call.opset, types)
