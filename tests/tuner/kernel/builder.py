"""Small graphs by hand: each call adds a node and gives its result's name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.types import Array, DType, TensorType


class Builder:
    """A graph that grows node by node."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.inputs: list[str] = []
        self.constants: dict[str, Array] = {}

    def input(self, *shape: int, dtype: DType = DType.F32) -> str:
        """A tensor given at run time."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.types[name] = TensorType(dtype=dtype, shape=shape)
        return name

    def constant(self, value: float, dtype: DType = DType.F32) -> str:
        """A literal."""
        name = f"c{len(self.constants)}"
        if dtype is DType.BF16:
            bits = np.float32(value).view(np.uint32) >> np.uint32(16)
            self.constants[name] = np.asarray(bits, dtype=np.uint16)
        else:
            self.constants[name] = np.asarray(value, dtype=dtype.numpy)
        self.types[name] = TensorType(dtype=dtype, shape=())
        return name

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node."""
        infer = OPS[op].infer
        assert infer is not None
        name = f"t{len(self.nodes)}"
        kinds = [self.types[each] for each in inputs]
        self.types[name] = infer(kinds, attributes)[0]
        self.nodes.append(
            Node(
                name=f"n{len(self.nodes)}",
                op=op,
                inputs=inputs,
                outputs=(name,),
                attributes=MappingProxyType(attributes),
            )
        )
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """Static shape of a tensor."""
        return self.types[name].static_shape

    def graph(self, *outputs: str) -> Graph:
        """The graph that delivers some tensors."""
        return Graph(
            nodes=tuple(self.nodes),
            inputs=tuple(self.inputs),
            constants=MappingProxyType(dict(self.constants)),
            outputs=outputs,
            types=MappingProxyType(dict(self.types)),
        )


def softmax(rows: int, columns: int, axis: int = 1, dtype: DType = DType.F32) -> Graph:
    """Softmax of a matrix."""
    b = Builder()
    x = b.input(rows, columns, dtype=dtype)
    top = b.op("reduce_max", x, axes=(axis,), keepdims=1)
    e = b.op("exp", b.op("sub", x, top))
    total = b.op("reduce_sum", e, axes=(axis,), keepdims=1)
    return b.graph(b.op("div", e, total))


def add_layer_norm(rows: int, columns: int, dtype: DType = DType.F32) -> Graph:
    """A residual sum and its layer norm, both written."""
    b = Builder()
    x = b.op(
        "add", b.input(rows, columns, dtype=dtype), b.input(rows, columns, dtype=dtype)
    )
    count = b.constant(columns, dtype)
    mean = b.op("div", b.op("reduce_sum", x, axes=(1,), keepdims=1), count)
    d = b.op("sub", x, mean)
    square = b.op("reduce_sum", b.op("mul", d, d), axes=(1,), keepdims=1)
    spread = b.op("add", b.op("div", square, count), b.constant(1e-5, dtype))
    y = b.op("div", d, b.op("sqrt", spread))
    scaled = b.op("mul", y, b.input(columns, dtype=dtype))
    return b.graph(x, b.op("add", scaled, b.input(columns, dtype=dtype)))


def bias_gelu(rows: int, columns: int, dtype: DType = DType.F32) -> Graph:
    """A bias and the exact GELU."""
    b = Builder()
    t = b.op("add", b.input(rows, columns, dtype=dtype), b.input(columns, dtype=dtype))
    return b.graph(gelu(b, t))


def gelu(b: Builder, t: str) -> str:
    """The exact GELU of a tensor."""
    dtype = b.types[t].dtype
    e = b.op("erf", b.op("mul", t, b.constant(0.5**0.5, dtype)))
    half = b.op("mul", t, b.constant(0.5, dtype))
    return b.op("mul", half, b.op("add", e, b.constant(1, dtype)))


def conv(
    b: Builder,
    *operands: str,
    strides: int = 1,
    pads: int = 0,
    dilations: int = 1,
    group: int = 1,
) -> str:
    """A convolution with the same attributes along all axes."""
    rank = len(b.shape(operands[0])) - 2
    return b.op(
        "conv",
        *operands,
        strides=(strides,) * rank,
        pads=(pads,) * 2 * rank,
        dilations=(dilations,) * rank,
        group=group,
    )


def group_norm_silu(n: int, channels: int, side: int, groups: int) -> Graph:
    """GroupNorm with scale and shift per channel, then SiLU."""
    b = Builder()
    x = b.input(n, channels, side, side)
    size = channels // groups * side * side
    flat = b.op("reshape", x, shape=(n, groups, size))
    count = b.constant(size)
    mean = b.op("div", b.op("reduce_sum", flat, axes=(2,), keepdims=1), count)
    d = b.op("sub", flat, mean)
    square = b.op("reduce_sum", b.op("mul", d, d), axes=(2,), keepdims=1)
    spread = b.op("add", b.op("div", square, count), b.constant(1e-5))
    y = b.op("div", d, b.op("sqrt", spread))
    y = b.op("reshape", y, shape=(n, channels, side, side))
    y = b.op("mul", y, b.input(channels, 1, 1))
    y = b.op("add", y, b.input(channels, 1, 1))
    return b.graph(b.op("mul", y, b.op("sigmoid", y)))
