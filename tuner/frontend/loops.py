"""Types of what a Loop gives, where its body keeps the shapes that it carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import onnx
from onnx import TensorProto, checker, shape_inference

from tuner.frontend.builder import Builder, Ref
from tuner.frontend.call import Call
from tuner.frontend.protos import proto_of

_ROUNDS: Final = 8
_OWN: Final = 2
"""Inputs of a Loop before the carried ones: trip count and condition."""


def loop_types(
    b: Builder, call: Call, captured: Mapping[str, Ref]
) -> dict[str, onnx.TypeProto]:
    """Types of the outputs, by position as ``o0``, ``o1``; none if not a Loop.

    A carried value has the type with which it starts, as far as the body gives it back
    with the same; extents that change are unknown, and so is the number of rounds.
    """
    if call.op != "Loop" or call.domain:
        return {}
    body: onnx.GraphProto = call.attributes["body"]
    around = {name: proto_of(b.types[ref]) for name, ref in captured.items()}
    carried = [proto_of(b.types[ref]) for ref in call.inputs[_OWN:] if ref is not None]
    if len(body.input) != _OWN + len(carried) or len(body.output) <= len(carried):
        return {}
    for _ in range(_ROUNDS):
        made = _through(body, carried, around, call.opset)
        kept = [_common(a, c) for a, c in zip(carried, made, strict=False)]
        if kept == carried:
            scanned = map(_stacked, made[len(carried) :])
            return {f"o{k}": kind for k, kind in enumerate((*kept, *scanned))}
        if len(kept) < len(carried):
            break
        carried = kept
    return {}


def _through(
    body: onnx.GraphProto,
    carried: Sequence[onnx.TypeProto],
    around: Mapping[str, onnx.TypeProto],
    opset: int,
) -> list[onnx.TypeProto]:
    """Types of the body's results, the condition left out, for types of its inputs."""
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    for value, kind in zip(graph.input[_OWN:], carried, strict=True):
        value.type.CopyFrom(kind)
    for value, element in zip(
        graph.input[:_OWN], (TensorProto.INT64, TensorProto.BOOL), strict=True
    ):
        value.type.tensor_type.elem_type = element
        value.type.tensor_type.shape.SetInParent()
    for name, kind in around.items():
        graph.input.add(name=name).type.CopyFrom(kind)
    alone = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph)
    alone.opset_import.add(domain="", version=opset)
    try:
        whole = shape_inference.infer_shapes(alone, data_prop=True)
    except (shape_inference.InferenceError, checker.ValidationError):
        return []
    return [value.type for value in whole.graph.output[1:]]


def _common(before: onnx.TypeProto, after: onnx.TypeProto) -> onnx.TypeProto:
    """What holds before the first round as well as after each."""
    kind = onnx.TypeProto()
    kind.tensor_type.elem_type = before.tensor_type.elem_type
    left, right = before.tensor_type, after.tensor_type
    known = left.HasField("shape") and right.HasField("shape")
    if not known or len(left.shape.dim) != len(right.shape.dim):
        return kind
    kind.tensor_type.shape.SetInParent()
    for one, other in zip(left.shape.dim, right.shape.dim, strict=True):
        entry = kind.tensor_type.shape.dim.add()
        if one == other:
            entry.CopyFrom(one)
    return kind


def _stacked(each: onnx.TypeProto) -> onnx.TypeProto:
    """One result of every round, joined on a new first axis."""
    kind = onnx.TypeProto()
    kind.tensor_type.elem_type = each.tensor_type.elem_type
    if each.tensor_type.HasField("shape"):
        kind.tensor_type.shape.dim.add()
        kind.tensor_type.shape.dim.extend(each.tensor_type.shape.dim)
    return kind
