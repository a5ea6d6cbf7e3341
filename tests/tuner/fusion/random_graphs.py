"""Small seeded graphs with everything that makes a partition hard."""

from __future__ import annotations

import random
from types import MappingProxyType

from tuner.ir.graph import Attribute, Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.types import DType, TensorType

ROWS, COLUMNS = 8, 16
MATRIX = (ROWS, COLUMNS)
_UNARY = ("exp", "neg", "tanh")
_BINARY = ("add", "mul", "sub")


class Builder:
    """Grows a graph node by node; every tensor has the name of its node."""

    def __init__(self) -> None:
        """Start empty."""
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.inputs: list[str] = []
        self.weights: list[str] = []

    def given(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DType = DType.F32,
        *,
        weight: bool = False,
    ) -> str:
        """A graph input or a weight."""
        self.types[name] = TensorType(dtype=dtype, shape=shape)
        (self.weights if weight else self.inputs).append(name)
        return name

    def node(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """A node; opaque ones keep the type of their first operand."""
        name = f"{op}{len(self.nodes)}"
        kinds = [self.types[i] for i in inputs]
        infer = OPS[op].infer
        self.types[name] = infer(kinds, attributes)[0] if infer else kinds[0]
        self.nodes.append(
            Node(
                name=name,
                op=op,
                inputs=inputs,
                outputs=(name,),
                attributes=MappingProxyType(attributes),
            )
        )
        return name

    def build(self, outputs: list[str]) -> Graph:
        """The graph that delivers these tensors."""
        return Graph(
            nodes=tuple(self.nodes),
            inputs=tuple(self.inputs),
            weights=tuple(self.weights),
            outputs=tuple(outputs),
            types=MappingProxyType(self.types),
        )


def random_graph(seed: int, most_nodes: int = 9) -> Graph:
    """Fan-out, reductions over both axes, anchors, opaque nodes, several outputs."""
    rng = random.Random(seed)
    builder = Builder()
    builder.given("x", MATRIX)
    builder.given("y", MATRIX, DType.BF16 if rng.random() < 0.3 else DType.F32)
    builder.given("w", (COLUMNS, COLUMNS), weight=True)
    for _ in range(rng.randint(3, most_nodes)):
        _add_node(rng, builder)
    read = {name for node in builder.nodes for name in node.inputs}
    made = [node.outputs[0] for node in builder.nodes]
    outputs = [name for name in made if name not in read or rng.random() < 0.12]
    return builder.build(outputs)


def _add_node(rng: random.Random, builder: Builder) -> None:
    names = [n for n in builder.types if n != "w"]
    recent = names[-4:] if rng.random() < 0.7 else names
    first = rng.choice(recent)
    kind = builder.types[first]
    draw = rng.random()
    if kind.dtype is DType.BF16:
        builder.node("cast", first, to="f32")
    elif draw < 0.25:
        builder.node(rng.choice(_UNARY), first)
    elif draw < 0.55:
        _add_binary(rng, builder, first)
    elif draw < 0.72 and kind.shape == MATRIX:
        axis = int(rng.random() < 0.75)
        builder.node("reduce_sum", first, axes=(axis,), keepdims=1)
    elif draw < 0.80:
        builder.node("cast", first, to="bf16")
    elif draw < 0.88 and kind.shape == MATRIX:
        builder.node("matmul", first, "w")
    elif draw < 0.94:
        builder.node("opaque", first)
    else:
        builder.node("reshape", first, shape=(1, *kind.static_shape))


def _add_binary(rng: random.Random, builder: Builder, first: str) -> None:
    shape = builder.types[first].shape
    fitting = [
        name
        for name, kind in builder.types.items()
        if name != "w" and kind.dtype is DType.F32 and _broadcasts(shape, kind.shape)
    ]
    builder.node(rng.choice(_BINARY), first, rng.choice(fitting))


def _broadcasts(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return len(a) == len(b) and all(
        p in (q, 1) or q == 1 for p, q in zip(a, b, strict=True)
    )
