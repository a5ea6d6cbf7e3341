"""Steps of optimisers over many tensors, as exporters write them: node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
BLOCK: tuple[Shape, ...] = (
    (256, 256),
    (256,),
    (256, 1024),
    (1024,),
    (1024, 256),
    (256,),
    (256,),
    (3, 256, 256),
    (64, 32, 3, 3),
    (1000, 256),
)
"""Tensors of all sizes, like those of the layers of a network."""


def mixed(count: int) -> list[Shape]:
    """So many shapes, in turns."""
    return [BLOCK[k % len(BLOCK)] for k in range(count)]


class _Step:
    """A graph that grows by one tensor after the other."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.given: dict[str, Shape] = {}
        self.made: dict[str, Shape] = {}
        self.numbers: dict[str, float] = {}

    def op(self, name: str, *inputs: str | float) -> str:
        """A node; numbers become literals."""
        result = f"{name.lower()}_{len(self.nodes)}"
        names = [self._number(i) if isinstance(i, float) else i for i in inputs]
        self.nodes.append(helper.make_node(name, names, [result], name=result))
        return result

    def _number(self, value: float) -> str:
        name = f"number_{value}"
        self.numbers[name] = value
        return name

    def tensor(self, name: str, shape: Shape) -> str:
        """A tensor that is handed in."""
        self.given[name] = shape
        return name

    def deliver(self, name: str, shape: Shape) -> None:
        """A tensor that is handed out."""
        self.made[name] = shape

    def clipped(self, gradients: Sequence[str]) -> list[str]:
        """Gradients scaled down so that all together are no longer than 1."""
        squares = [
            self.op("ReduceSum", self.op("Mul", gradient, gradient))
            for gradient in gradients
        ]
        total = squares[0]
        for square in squares[1:]:
            total = self.op("Add", total, square)
        length = self.op("Add", self.op("Sqrt", total), 1e-6)
        share = self.op("Min", self.op("Div", 1.0, length), 1.0)
        return [self.op("Mul", gradient, share) for gradient in gradients]

    def model(self) -> ModelProto:
        """The whole step."""
        for node in self.nodes:
            if node.op_type == "ReduceSum":
                node.attribute.append(helper.make_attribute("keepdims", 0))
        held = [
            numpy_helper.from_array(np.array(value, dtype=np.float32), name)
            for name, value in self.numbers.items()
        ]
        graph = helper.make_graph(
            self.nodes, "step", _values(self.given), _values(self.made), held
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _values(shapes: dict[str, Shape]) -> list[object]:
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]


def sgd(shapes: Sequence[Shape], *, decay: float = 0.0, clip: bool = False) -> bytes:
    """Gradient descent with momentum.

    Source: I. Sutskever, J. Martens, G. Dahl, G. Hinton, "On the importance of
    initialization and momentum in deep learning", ICML 2013.

    Args:
        shapes: of the tensors.
        decay: of the weights; 0 for none.
        clip: whether gradients are clipped by their global norm.
    """
    step = _Step()
    gradients = [step.tensor(f"grad_{k}", shape) for k, shape in enumerate(shapes)]
    gradients = step.clipped(gradients) if clip else gradients
    for k, (shape, gradient) in enumerate(zip(shapes, gradients, strict=True)):
        held, speed = (step.tensor(f"{n}_{k}", shape) for n in ("param", "speed"))
        slope = gradient
        if decay:
            slope = step.op("Add", gradient, step.op("Mul", held, decay))
        after = step.op("Add", step.op("Mul", speed, 0.9), slope)
        step.deliver(after, shape)
        step.deliver(step.op("Sub", held, step.op("Mul", after, 0.1)), shape)
    return step.model().SerializeToString()


def adam(shapes: Sequence[Shape], *, decay: float = 0.0, clip: bool = False) -> bytes:
    """Adam, or with a decay of the weights AdamW.

    Source: D. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015;
    I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.

    Args:
        shapes: of the tensors.
        decay: of the weights; 0 for none.
        clip: whether gradients are clipped by their global norm.
    """
    step = _Step()
    count = step.tensor("count", ())
    rest = [step.op("Sub", 1.0, step.op("Pow", beta, count)) for beta in (0.9, 0.999)]
    gradients = [step.tensor(f"grad_{k}", shape) for k, shape in enumerate(shapes)]
    gradients = step.clipped(gradients) if clip else gradients
    for k, (shape, gradient) in enumerate(zip(shapes, gradients, strict=True)):
        held, mean, square = (
            step.tensor(f"{name}_{k}", shape) for name in ("param", "mean", "square")
        )
        mean = step.op("Add", step.op("Mul", mean, 0.9), step.op("Mul", gradient, 0.1))
        squared = step.op("Mul", step.op("Mul", gradient, 0.001), gradient)
        square = step.op("Add", step.op("Mul", square, 0.999), squared)
        length = step.op("Sqrt", step.op("Div", square, rest[1]))
        moved = step.op(
            "Div", step.op("Div", mean, rest[0]), step.op("Add", length, 1e-8)
        )
        if decay:
            held = step.op("Mul", held, 1.0 - 0.001 * decay)
        after = step.op("Sub", held, step.op("Mul", moved, 0.001))
        for name in (after, mean, square):
            step.deliver(name, shape)
    return step.model().SerializeToString()
