"""Small graphs for the tests of the intermediate representation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.types import DType, TensorType


def kind(*shape: int | str, dtype: DType = DType.F32) -> TensorType:
    """A tensor type."""
    return TensorType(dtype=dtype, shape=shape)


def build(
    inputs: Mapping[str, TensorType],
    rows: list[tuple[str, str, dict[str, Any]]],
    outputs: str,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """A graph of rows `(op, "inputs -> output", attributes)`, types inferred."""
    types = dict(inputs)
    values = {name: np.asarray(v, np.float32) for name, v in (constants or {}).items()}
    types.update({name: kind(*array.shape) for name, array in values.items()})
    nodes = []
    for position, (op, text, attributes) in enumerate(rows):
        given, made = (part.split() for part in text.split("->"))
        infer = OPS[op].infer
        assert infer is not None
        (types[made[0]],) = infer([types[name] for name in given], attributes)
        nodes.append(
            Node(
                name=f"n{position}",
                op=op,
                inputs=tuple(given),
                outputs=tuple(made),
                attributes=attributes,
            )
        )
    return Graph(
        nodes=tuple(nodes),
        inputs=tuple(inputs),
        constants=MappingProxyType(values),
        outputs=tuple(outputs.split()),
        types=MappingProxyType(types),
    )


def softmax() -> Graph:
    """Softmax over rows, times a small constant."""
    rows = {"axes": (1,), "keepdims": 1}
    return build(
        {"x": kind(4, 8)},
        [
            ("reduce_max", "x -> m", rows),
            ("sub", "x m -> d", {}),
            ("exp", "d -> e", {}),
            ("reduce_sum", "e -> s", rows),
            ("div", "e s -> p", {}),
            ("mul", "p c -> y", {}),
        ],
        "y",
        {"c": 2.0},
    )
