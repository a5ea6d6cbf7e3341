"""Graph JSON to ONNX."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, helper

from tuner.errors import InvalidModel, TunerError, UnsupportedModel
from tuner.frontend.document import METADATA, SCHEMA, SPECIAL, Json, repeated_name
from tuner.frontend.model import MOST, write_metadata
from tuner.frontend.protos import (
    proto_of,
    tensor_of,
)
from tuner.frontend.schemas import signature
from tuner.ir.interpreter import store
from tuner.ir.types import Dim, DType, TensorType

_KEYS: Final = frozenset(
    {"schema", "opset", "inputs", "weights", "constants", "nodes", "outputs"}
)
_OPTIONAL: Final = frozenset({"metadata"})
_SHOWN: Final = 40


def decode(source: str | bytes | Mapping[str, Json]) -> Mapping[str, Json]:
    """The JSON document as Python values.

    Raises:
        InvalidModel: the text is not JSON, or not an object, or an object in it has a
            name twice (RFC 8259, 4), of whose values one would be lost unsaid.
    """
    if isinstance(source, Mapping):
        return source
    repeating: list[tuple[Json, list[tuple[str, Json]]]] = []

    def keep(pairs: list[tuple[str, Json]]) -> Json:
        found = dict(pairs)
        if len(found) < len(pairs):
            # Objects come from the inside out: the last one is in none that lost it.
            repeating[:] = [(found, pairs)]
        return found

    try:
        document = json.loads(source, object_pairs_hook=keep)
    except (ValueError, RecursionError) as error:
        raise InvalidModel("$", f"is not JSON: {error}") from error
    for part, pairs in repeating:
        raise InvalidModel(
            _path_of(part, document),
            f"has the name {repeated_name(pairs)!r} twice",
            hint="give each name of an object once",
        )
    if not isinstance(document, dict):
        raise _wrong("$", "an object", document)
    return document


def _path_of(wanted: Json, document: Json) -> str:
    """Where in a document an object of it is."""
    left = [("$", document)]
    while left:
        path, value = left.pop()
        if value is wanted:
            return path
        parts: Iterable[tuple[str, Json]] = ()
        if isinstance(value, dict):
            parts = ((f".{name}", part) for name, part in value.items())
        elif isinstance(value, list):
            parts = ((f"[{i}]", part) for i, part in enumerate(value))
        left += [(path + at, one) for at, one in parts if isinstance(one, dict | list)]
    return "$"


def to_onnx(document: Mapping[str, Json]) -> bytes:
    """The ONNX form of a JSON document.

    Raises:
        InvalidModel: the document is not in the form; the message has the JSON path.
        UnsupportedModel: an attribute holds a subgraph.
    """
    try:
        return _to_onnx(document)
    except (ValueError, OverflowError, TunerError) as error:
        found = _unstorable(document, "$")
        if found is None and isinstance(error, TunerError):
            raise
        where, problem = found or ("$", f"holds what no model can hold: {error}")
        raise InvalidModel(
            where, problem, hint="numbers have 64 bits, texts are Unicode"
        ) from error


def _unstorable(value: Json, path: str) -> tuple[str, str] | None:
    """Path and fault of the first value that a message cannot hold."""
    if isinstance(value, int) and not -MOST - 1 <= value <= MOST:
        return path, "exceeds 64 bits"
    if isinstance(value, str):
        broken = value != value.encode(errors="replace").decode()
        return (path, f"{value!r} is not Unicode text") if broken else None
    parts: Iterable[tuple[str, Json]] = ()
    if isinstance(value, Mapping):
        for key in value:
            if _unstorable(key, path):
                return path, f"the key {key!r} is not Unicode text"
        parts = ((f"{path}.{key}", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{path}[{i}]", part) for i, part in enumerate(value))
    found = (_unstorable(part, where) for where, part in parts)
    return next((each for each in found if each), None)


def _to_onnx(document: Mapping[str, Json]) -> bytes:
    _check_keys(document)
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION, producer_name="fuseplan")
    opsets = _opsets(document["opset"])
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    graph = model.graph
    graph.name = "graph"
    _add_inputs(graph, document.get("inputs", ()), "$.inputs")
    weights = _add_inputs(graph, document.get("weights", ()), "$.weights")
    for path, row in _rows(document.get("constants", ()), "$.constants"):
        graph.initializer.append(_tensor(row, path, _text(row, path, "name")))
    for path, row in _rows(document["nodes"], "$.nodes"):
        graph.node.append(_node(row, path, opsets))
    for output in _names(document["outputs"], "$.outputs"):
        graph.output.add(name=output)
    write_metadata(model, "weights", weights)
    metadata = _dict(document.get("metadata", {}), "$.metadata")
    for key in METADATA:
        if key in metadata:
            write_metadata(model, key, metadata[key])
    return bytes(model.SerializeToString())


def _add_inputs(graph: onnx.GraphProto, rows: Json, path: str) -> list[str]:
    names: list[str] = []
    for where, row in _rows(rows, path):
        name, kind = _text(row, where, "name"), _type(row, where)
        graph.input.add(name=name).type.CopyFrom(proto_of(kind))
        names.append(name)
    return names


def _check_keys(document: Mapping[str, Json]) -> None:
    if document.get("schema") != SCHEMA:
        raise InvalidModel(
            "$.schema", f"is {document.get('schema')!r}", hint=f"use {SCHEMA!r}"
        )
    for key in ("opset", "nodes", "outputs"):
        if key not in document:
            raise InvalidModel("$", f"lacks the key {key!r}")
    for key in document:
        if key not in _KEYS | _OPTIONAL:
            known = ", ".join(sorted(_KEYS | _OPTIONAL))
            raise InvalidModel(f"$.{key}", "is not a known key", hint=f"keys: {known}")


def _opsets(value: Json) -> dict[str, int]:
    opsets = {}
    for domain, version in _dict(value, "$.opset").items():
        if not isinstance(version, int) or isinstance(version, bool):
            raise _wrong(f"$.opset[{domain!r}]", "a version number", version)
        opsets[domain] = version
    return opsets


def _node(row: Mapping[str, Json], path: str, opsets: Mapping[str, int]) -> Json:
    domain = _text(row, path, "domain", "")
    node = onnx.NodeProto(
        name=_text(row, path, "name", ""),
        op_type=_text(row, path, "op"),
        domain=domain,
    )
    node.input.extend(_names(row.get("inputs", ()), f"{path}.inputs"))
    node.output.extend(_names(row.get("outputs", ()), f"{path}.outputs"))
    known = signature(node.op_type, domain, opsets.get(domain, 0))
    types = {} if known is None else known.types
    attributes = _dict(row.get("attributes", {}), f"{path}.attributes")
    for name, value in attributes.items():
        where = f"{path}.attributes.{name}"
        node.attribute.append(_attribute(name, value, where, types.get(name)))
    return node


def _attribute(name: str, value: Json, path: str, wanted: int | None) -> Json:
    if isinstance(value, Mapping):
        if "nodes" in value:
            raise UnsupportedModel(
                path, "holds a subgraph", hint="hand in control flow as ONNX"
            )
        return helper.make_attribute(name, _tensor(value, path))
    made = _numbers(value, path)
    many = isinstance(made, list)
    if wanted in (AttributeProto.FLOAT, AttributeProto.FLOATS):
        made = [float(v) for v in made] if many else float(made)
    try:
        return helper.make_attribute(name, made, attr_type=wanted)
    except (TypeError, ValueError) as error:
        raise InvalidModel(path, f"has the wrong type: {error}") from error


def _numbers(value: Json, path: str) -> Json:
    """An attribute as ONNX wants it: a number, a text, or a list of one kind."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, list | tuple):
        kinds = {type(v) for v in value}
        if kinds <= {int, bool} or kinds <= {str}:
            return list(value)
        if kinds <= {int, float}:
            return [float(v) for v in value]
    raise _wrong(path, "a number, a text, a tensor or a list of one kind", value)


def _tensor(row: Mapping[str, Json], path: str, name: str = "") -> onnx.TensorProto:
    kind = _type(row, path)
    if kind.symbols:
        raise InvalidModel(f"{path}.shape", "names a dimension; a constant has sizes")
    if "data" not in row:
        raise InvalidModel(path, "lacks the key 'data'")
    data = row["data"] if isinstance(row["data"], list | tuple) else [row["data"]]
    try:
        values = np.asarray(_plain(data), dtype=_compute(kind.dtype)).reshape(-1)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidModel(f"{path}.data", f"is not numbers: {error}") from error
    if values.size != kind.elements:
        raise InvalidModel(
            f"{path}.data", f"holds {values.size} numbers for {list(kind.shape)}"
        )
    return tensor_of(
        store(values.reshape(kind.static_shape), kind.dtype), kind.dtype, name
    )


def _plain(data: Sequence[Json]) -> list[Json]:
    return [
        _plain(v)
        if isinstance(v, list | tuple)
        else SPECIAL[v]
        if isinstance(v, str) and v in SPECIAL
        else v
        for v in data
    ]


def _compute(dtype: DType) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype is DType.BF16 else np.dtype(dtype.numpy)


def _type(row: Mapping[str, Json], path: str) -> TensorType:
    text = _text(row, path, "dtype")
    try:
        dtype = DType(text)
    except ValueError as error:
        known = ", ".join(d.value for d in DType)
        raise UnsupportedModel(
            f"{path}.dtype", f"{text!r} is not supported", hint=f"one of {known}"
        ) from error
    if "shape" not in row:
        raise InvalidModel(path, "lacks the key 'shape'")
    shape: list[Dim] = []
    for axis, dim in enumerate(_list(row["shape"], f"{path}.shape")):
        is_size = isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0
        if not is_size and not (isinstance(dim, str) and dim):
            raise _wrong(f"{path}.shape[{axis}]", "a size or a name", dim)
        shape.append(dim)
    return TensorType(dtype=dtype, shape=tuple(shape))


def _rows(value: Json, path: str) -> list[tuple[str, Mapping[str, Json]]]:
    return [
        (f"{path}[{i}]", _dict(row, f"{path}[{i}]"))
        for i, row in enumerate(_list(value, path))
    ]


def _names(value: Json, path: str) -> list[str]:
    for position, name in enumerate(_list(value, path)):
        if not isinstance(name, str):
            raise _wrong(f"{path}[{position}]", "a name", name)
    return list(value)


def _list(value: Json, path: str) -> Sequence[Json]:
    if not isinstance(value, list | tuple):
        raise _wrong(path, "a list", value)
    return value


def _dict(value: Json, path: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise _wrong(path, "an object", value)
    return value


def _text(
    row: Mapping[str, Json], path: str, key: str, default: str | None = None
) -> str:
    value = row.get(key, default)
    if not isinstance(value, str):
        if key not in row:
            raise InvalidModel(path, f"lacks the key {key!r}")
        raise _wrong(f"{path}.{key}", "a text", value)
    return value


def _wrong(path: str, wanted: str, value: object) -> InvalidModel:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    return InvalidModel(path, f"should be {wanted}, is {shown}")
