"""The schema of `fuseplan.graph/1`, as the OpenAPI document shows it.

It says what a schema can: which fields there are, and what stands in them. That names
are defined before they are read, and that operators take what they are given, is found
when the model is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuner.frontend.document import SCHEMA
from tuner.ir.types import DType

Json = Mapping[str, Any]


def _object(required: tuple[str, ...], properties: Json) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_NAMES: Final = {"type": "array", "items": {"type": "string"}}
_TYPED: Final[Json] = {
    "name": {"type": "string"},
    "dtype": {"type": "string", "enum": [one.value for one in DType]},
    "shape": {
        "type": "array",
        "items": {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "minLength": 1},
            ]
        },
        "description": "sizes, or names of open dimensions",
    },
}
_TENSOR: Final = _object(("name", "dtype", "shape"), _TYPED)
_CONSTANT: Final = _object(
    ("name", "dtype", "shape", "data"),
    {
        **_TYPED,
        "data": {
            "description": "numbers, nested or flat; NaN, Infinity, -Infinity as texts"
        },
    },
)
_NODE: Final = _object(
    ("op",),
    {
        "name": {"type": "string"},
        "op": {"type": "string", "description": "as ONNX calls it"},
        "domain": {"type": "string", "default": ""},
        "inputs": _NAMES,
        "outputs": _NAMES,
        "attributes": {
            "type": "object",
            "description": "as in ONNX: a number, a text, a tensor, a list of one kind",
        },
    },
)

GRAPH_SCHEMA: Final[dict[str, Any]] = {
    **_object(
        ("schema", "opset", "nodes", "outputs"),
        {
            "schema": {"const": SCHEMA},
            "opset": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "description": "version by domain",
            },
            "inputs": {"type": "array", "items": _TENSOR},
            "weights": {"type": "array", "items": _TENSOR},
            "constants": {"type": "array", "items": _CONSTANT},
            "nodes": {"type": "array", "items": _NODE},
            "outputs": {**_NAMES, "minItems": 1},
            "metadata": {"type": "object"},
        },
    ),
    "additionalProperties": False,
}
"""JSON Schema, 2020-12, of a graph."""

GRAPH_EXAMPLE: Final[dict[str, Any]] = {
    "schema": SCHEMA,
    "opset": {"": 18},
    "inputs": [{"name": "x", "dtype": "f32", "shape": [64, 256]}],
    "weights": [],
    "constants": [],
    "nodes": [
        {
            "name": "relu",
            "op": "Relu",
            "domain": "",
            "inputs": ["x"],
            "outputs": ["y"],
            "attributes": {},
        }
    ],
    "outputs": ["y"],
}
