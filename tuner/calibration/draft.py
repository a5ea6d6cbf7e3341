"""Small graphs of our own, written node by node."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from tuner.ir.graph import Attribute, Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.types import Array, DType, TensorType


class Draft:
    """A graph in the making. Each call adds to it and gives a tensor's name."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._inputs: list[str] = []
        self._constants: dict[str, Array] = {}

    def input(self, *shape: int, dtype: DType = DType.F32) -> str:
        """A tensor given at run time."""
        name = f"x{len(self._inputs)}"
        self._inputs.append(name)
        self._types[name] = TensorType(dtype=dtype, shape=shape)
        return name

    def number(self, value: float) -> str:
        """A literal in float32."""
        name = f"c{len(self._constants)}"
        self._constants[name] = np.asarray(value, dtype=np.float32)
        self._types[name] = TensorType(dtype=DType.F32, shape=())
        return name

    def op(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """The first output of a new node."""
        infer = OPS[op].infer
        assert infer is not None, f"{op} has no rule for its output type"
        name = f"t{len(self._nodes)}"
        kinds = [self._types[each] for each in inputs]
        self._types[name] = infer(kinds, attributes)[0]
        node = Node(
            name=f"n{len(self._nodes)}",
            op=op,
            inputs=inputs,
            outputs=(name,),
            attributes=MappingProxyType(attributes),
        )
        self._nodes.append(node)
        return name

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Extents of a tensor."""
        return self._types[tensor].static_shape

    def graph(self, *outputs: str) -> Graph:
        """The finished graph."""
        return Graph(
            nodes=tuple(self._nodes),
            inputs=tuple(self._inputs),
            constants=MappingProxyType(dict(self._constants)),
            outputs=outputs,
            types=MappingProxyType(dict(self._types)),
        )
