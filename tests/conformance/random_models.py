"""Random ONNX models: many operators, element types and awkward shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

_Any = npt.NDArray[Any]
OPSET: Final = 18
EXTENTS: Final = (0, 1, 1, 2, 3, 5, 8, 17, 33)
LARGEST: Final = 1 << 13
FLOATS: Final = (np.float32, np.float32, np.float32, np.float16, np.float64)
WHOLES: Final = (np.int64, np.int32, np.int8, np.uint8)
_SMOOTH: Final = ("Tanh", "Sigmoid", "Erf", "Neg", "Abs", "Relu", "Softplus", "Sin")
_PLAIN: Final = ("Neg", "Abs", "Identity", "Sign")
_REAL_PAIRS: Final = ("Add", "Sub", "Mul", "Max", "Min")
_WHOLE_PAIRS: Final = ("Add", "Sub", "Mul")
_TESTS: Final = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
_TRUTHS: Final = ("And", "Or", "Xor")


class RandomModel:
    """A model that grows by one random node at a time.

    Args:
        seed: decides everything.
        nodes: how many are tried.
    """

    def __init__(self, seed: int, nodes: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: dict[str, _Any] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []
        self._known: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        for _ in range(self._one_of((1, 2, 3))):
            self._input()
        for _ in range(nodes):
            self._one_of(_STEPS)(self)

    def proto(self) -> onnx.ModelProto:
        """The model; what nothing reads is an output, up to three tensors."""
        read = {name for node in self._nodes for name in node.input}
        made = [node.output[0] for node in self._nodes if node.output[0] not in read]
        inputs = [_value(name, *self._known[name]) for name in self.inputs]
        outputs = [_value(name, *self._known[name]) for name in made[-3:]]
        graph = helper.make_graph(
            self._nodes, "random", inputs, outputs, self._constants
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets)

    def _one_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def _input(self) -> None:
        rank = int(self.rng.integers(0, 5))
        shape = tuple(int(self._one_of(EXTENTS)) for _ in range(rank))
        while np.prod(shape, dtype=np.int64) > LARGEST:
            shape = shape[1:]
        kind = self._one_of((*FLOATS, *FLOATS, *WHOLES, np.bool_))
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self._array(np.dtype(kind), shape)
        self._known[name] = (np.dtype(kind), shape)

    def _array(self, kind: np.dtype[Any], shape: tuple[int, ...]) -> _Any:
        if kind.kind == "f":
            return np.asarray(self.rng.standard_normal(shape)).astype(kind)
        if kind.kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        info = np.iinfo(kind)
        values = self.rng.integers(max(info.min, -9), 10, shape)
        extreme = self.rng.random(shape) < 0.1
        return np.where(extreme, info.min, values).astype(kind)

    def _pick(self, kinds: str, rank: int = 0) -> str | None:
        """A tensor of one of the kinds (NumPy's letters), of at least some rank."""
        fitting = [
            name
            for name, (kind, shape) in self._known.items()
            if kind.kind in kinds and len(shape) >= rank
        ]
        return self._one_of(fitting[-6:]) if fitting else None

    def _add(
        self,
        op: str,
        inputs: list[str],
        kind: np.dtype[Any],
        shape: tuple[int, ...],
        **attributes: Any,
    ) -> None:
        if np.prod(shape, dtype=np.int64) > LARGEST:
            return
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self._known[name] = (np.dtype(kind), tuple(int(n) for n in shape))

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _matching(self, name: str) -> str:
        """An operand that broadcasts with a tensor: known, or one of ours."""
        kind, shape = self._known[name]
        fitting = [
            other
            for other, (theirs, extents) in self._known.items()
            if theirs == kind and _broadcasts(shape, extents)
        ]
        if self.rng.random() < 0.7:
            return str(self._one_of(fitting))
        cut = shape[int(self.rng.integers(0, len(shape) + 1)) :]
        thin = tuple(1 if self.rng.random() < 0.5 else n for n in cut)
        return self._constant(self._array(kind, thin))

    # One random node each

    def _unary(self) -> None:
        name = self._pick("fiu")
        if name is None:
            return
        kind, shape = self._known[name]
        names = _SMOOTH if kind.kind == "f" else _PLAIN
        op = self._one_of(names if kind.kind != "u" else ("Identity", "Sign"))
        self._add(op, [name], kind, shape)

    def _binary(self) -> None:
        name = self._pick("fiu")
        if name is None:
            return
        kind, shape = self._known[name]
        other = self._matching(name)
        theirs = self._shape(other)
        op = self._one_of(_REAL_PAIRS if kind.kind == "f" else _WHOLE_PAIRS)
        self._add(op, [name, other], kind, np.broadcast_shapes(shape, theirs))

    def _divide(self) -> None:
        name = self._pick("iu")
        if name is not None:
            kind, shape = self._known[name]
            divisor = self._constant(
                np.asarray(self._one_of((-3, -1, 2, 7)), kind)
                if kind.kind == "i"
                else np.asarray(3, kind)
            )
            self._add(self._one_of(("Div", "Mod")), [name, divisor], kind, shape)

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self._known:
            return self._known[name][1]
        return next(tuple(c.dims) for c in self._constants if c.name == name)

    def _test(self) -> None:
        name = self._pick("i")
        if name is not None:
            other = self._matching(name)
            shape = np.broadcast_shapes(self._shape(name), self._shape(other))
            op = self._one_of(_TESTS)
            self._add(op, [name, other], np.dtype(np.bool_), shape)

    def _truth(self) -> None:
        name = self._pick("b")
        if name is not None:
            other = self._matching(name)
            shape = np.broadcast_shapes(self._shape(name), self._shape(other))
            self._add(self._one_of(_TRUTHS), [name, other], np.dtype(np.bool_), shape)

    def _where(self) -> None:
        condition, name = self._pick("b"), self._pick("fiu")
        if condition is None or name is None:
            return
        kind, shape = self._known[name]
        other = self._matching(name)
        shapes = (self._shape(condition), shape, self._shape(other))
        if not _broadcasts(*shapes):
            return
        self._add("Where", [condition, name, other], kind, np.broadcast_shapes(*shapes))

    def _cast(self) -> None:
        name = self._pick("fiub")
        if name is None:
            return
        kind, shape = self._known[name]
        to = np.dtype(self._one_of(FLOATS if kind.kind == "f" else (*FLOATS, *WHOLES)))
        proto = helper.np_dtype_to_tensor_dtype(to)
        self._add("Cast", [name], to, shape, to=proto)

    def _transpose(self) -> None:
        name = self._pick("fiub", 2)
        if name is not None:
            kind, shape = self._known[name]
            perm = [int(axis) for axis in self.rng.permutation(len(shape))]
            moved = tuple(shape[axis] for axis in perm)
            self._add("Transpose", [name], kind, moved, perm=perm)

    def _reshape(self) -> None:
        name = self._pick("fiub", 1)
        if name is not None:
            kind, shape = self._known[name]
            place = int(self.rng.integers(0, len(shape)))
            merged = (int(np.prod(shape[: place + 1])), *shape[place + 1 :], 1)
            target = self._constant(np.asarray(merged, np.int64))
            self._add("Reshape", [name, target], kind, merged, allowzero=1)

    def _slice(self) -> None:
        name = self._pick("fiub", 1)
        if name is None:
            return
        kind, shape = self._known[name]
        axis = int(self.rng.integers(0, len(shape)))
        step = self._one_of((-2, -1, 1, 2, 3))
        start = int(self.rng.integers(0, shape[axis] + 1))
        end = -(1 << 40) if step < 0 else 1 << 40
        size = len(range(shape[axis])[start::step])
        parts = [self._constant(np.asarray([v])) for v in (start, end, axis, step)]
        kept = (*shape[:axis], size, *shape[axis + 1 :])
        self._add("Slice", [name, *parts], kind, kept)

    def _concat(self) -> None:
        name = self._pick("fiub", 1)
        if name is not None:
            kind, shape = self._known[name]
            axis = int(self.rng.integers(0, len(shape)))
            other = self._constant(self._array(kind, shape))
            grown = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
            self._add("Concat", [name, other], kind, grown, axis=axis)

    def _pad(self) -> None:
        name = self._pick("fi", 1)
        if name is not None:
            kind, shape = self._known[name]
            widths = self.rng.integers(0, 3, (2, len(shape)))
            grown = tuple(int(n) for n in np.asarray(shape) + widths.sum(axis=0))
            value = self._constant(np.asarray(self._one_of((0, 1, -2)), kind))
            pads = self._constant(widths.reshape(-1).astype(np.int64))
            self._add("Pad", [name, pads, value], kind, grown)

    def _gather(self) -> None:
        name = self._pick("fiub", 1)
        if name is None:
            return
        kind, shape = self._known[name]
        axis = int(self.rng.integers(0, len(shape)))
        if not shape[axis]:
            return
        index = self.rng.integers(-shape[axis], shape[axis], (2, 3))
        kept = (*shape[:axis], 2, 3, *shape[axis + 1 :])
        self._add("Gather", [name, self._constant(index)], kind, kept, axis=axis)

    def _reduce(self) -> None:
        name = self._pick("f", 1)
        if name is None:
            return
        kind, shape = self._known[name]
        axis = int(self.rng.integers(0, len(shape)))
        if not shape[axis]:
            return
        keep = int(self.rng.integers(0, 2))
        kept = (*shape[:axis], *[1] * keep, *shape[axis + 1 :])
        op = self._one_of(("ReduceSum", "ReduceMax", "ReduceMean", "ReduceMin"))
        axes = self._constant(np.asarray([axis]))
        self._add(op, [name, axes], kind, kept, keepdims=keep)

    def _softmax(self) -> None:
        name = self._pick("f", 1)
        if name is not None:
            kind, shape = self._known[name]
            axis = int(self.rng.integers(0, len(shape)))
            self._add("Softmax", [name], kind, shape, axis=axis)

    def _matmul(self) -> None:
        name = self._pick("f", 2)
        if name is None or self._known[name][0] == np.float16:
            return
        kind, shape = self._known[name]
        columns = int(self._one_of((1, 4, 19)))
        weights = self._array(kind, (shape[-1], columns)) / max(shape[-1], 1)
        other = self._constant(weights.astype(kind))
        self._add("MatMul", [name, other], kind, (*shape[:-1], columns))

    def _pool(self) -> None:
        name = self._pick("f", 4)
        if name is None or self._known[name][0] == np.float16:
            return
        kind, shape = self._known[name]
        if len(shape) != 4 or 0 in shape:
            return
        op = self._one_of(("MaxPool", "AveragePool"))
        size = tuple((extent + 1) // 2 for extent in shape[2:])
        form = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        self._add(op, [name], kind, (*shape[:2], *size), **form)


_STEPS: Final[tuple[Callable[[RandomModel], None], ...]] = (
    *(RandomModel._unary, RandomModel._unary, RandomModel._binary),
    *(RandomModel._binary, RandomModel._binary, RandomModel._divide),
    *(RandomModel._test, RandomModel._truth, RandomModel._where, RandomModel._cast),
    *(RandomModel._transpose, RandomModel._reshape, RandomModel._slice),
    *(RandomModel._concat, RandomModel._pad, RandomModel._gather),
    *(RandomModel._reduce, RandomModel._softmax, RandomModel._matmul),
    RandomModel._pool,
)


def _broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _value(
    name: str, kind: np.dtype[Any], shape: tuple[int, ...]
) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(kind)
    return helper.make_tensor_value_info(name, element, list(shape))
