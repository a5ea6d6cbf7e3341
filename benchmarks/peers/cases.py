"""The memory-bound suite: twelve computations in three sizes, as ONNX models.

Where the standard has an operator for the whole, the model uses it, so that a library
with a kernel of its own for it may take that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

OPSET: Final = 23
SIZES: Final = ("cache", "large", "odd")
"""256 KiB a tensor, 64 MiB a tensor, and prime dimensions near 4 MiB a tensor."""
EPSILON: Final = 1e-5
GROUPS: Final = MappingProxyType({"cache": 32, "large": 32, "odd": 2})
ADAM: Final = MappingProxyType(
    {
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "correct1": 1 - 0.9**10,
        "correct2": 1 - 0.999**10,
    }
)
"""Of the tenth step."""
SCALE: Final = 0.05
ZERO_POINT: Final = 128

Shape = tuple[int, ...]
Arrays = Mapping[str, np.ndarray[Any, Any]]

_PLANE: Final[Mapping[str, Shape]] = MappingProxyType(
    {"cache": (128, 512), "large": (16384, 1024), "odd": (1021, 1031)}
)
_SQUARE: Final[Mapping[str, Shape]] = MappingProxyType(
    {"cache": (256, 256), "large": (4096, 4096), "odd": (1021, 1031)}
)
_HEADS: Final[Mapping[str, Shape]] = MappingProxyType(
    {"cache": (4, 128, 128), "large": (16, 1024, 1024), "odd": (7, 389, 389)}
)
_IMAGE: Final[Mapping[str, Shape]] = MappingProxyType(
    {"cache": (1, 64, 32, 32), "large": (4, 256, 128, 128), "odd": (3, 34, 101, 101)}
)
_ROTARY: Final[Mapping[str, Shape]] = MappingProxyType(
    {"cache": (1, 8, 128, 64), "large": (4, 16, 2048, 128), "odd": (1, 13, 983, 82)}
)
_LOGITS: Final[Mapping[str, Shape]] = MappingProxyType(
    {"cache": (16, 4096), "large": (512, 32768), "odd": (31, 33791)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One computation in one size.

    Attributes:
        name, size: rows of the suite.
        shape: of the tensor that gives the case its size.
        note: what the row must say about the arithmetic.
        steps: of outputs that are rounded to a grid, how far apart its points are: a
            tie may fall to either side.
    """

    name: str
    size: str
    shape: Shape
    note: str
    steps: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        """Name and size."""
        return f"{self.name}/{self.size}"

    def inputs(self, seed: int = 0) -> Arrays:
        """Seeded inputs by name."""
        return MappingProxyType(
            _FORMS[self.name].inputs(np.random.default_rng(seed), self.shape)
        )

    def weights(self, seed: int = 1) -> Arrays:
        """Seeded initialisers by name; no peer may write to them."""
        form = _FORMS[self.name]
        chance = np.random.default_rng(seed)
        return MappingProxyType(form.weights(chance, self.shape, self.size))

    def model(self) -> ModelProto:
        """The computation as ONNX, with its weights as initialisers."""
        form = _FORMS[self.name]
        return _model(self, form.nodes(self.size), self.weights())

    def plain_model(self) -> ModelProto:
        """The same in older operators, for a reader that knows no newer ones."""
        form = _FORMS[self.name]
        if not form.plain:
            return self.model()
        weights = {**self.weights(), **form.plain_weights}
        return _model(self, form.plain, weights)

    def moved_bytes(self) -> int:
        """Each input read once and each output written once: the least traffic."""
        given = (*self.inputs().values(), *self.weights().values())
        read = sum(array.nbytes for array in given)
        return read + sum(
            math.prod(shape) * np.dtype(kind).itemsize
            for _, shape, kind in _FORMS[self.name].outputs(self.shape)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A computation, whatever its size."""

    shapes: Mapping[str, Shape]
    inputs: Callable[[np.random.Generator, Shape], dict[str, Any]]
    weights: Callable[[np.random.Generator, Shape, str], dict[str, Any]]
    nodes: Callable[[str], Sequence[tuple[Any, ...]]]
    outputs: Callable[[Shape], Sequence[tuple[str, Shape, str]]]
    note: str = ""
    steps: tuple[float, ...] = ()
    plain: Sequence[tuple[Any, ...]] = ()
    plain_weights: Arrays = field(default_factory=lambda: MappingProxyType({}))


def suite(sizes: Sequence[str] = SIZES, names: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases of some sizes, of all computations or some."""
    return tuple(
        Case(
            name=name,
            size=size,
            shape=form.shapes[size],
            note=form.note,
            steps=form.steps,
        )
        for size in sizes
        for name, form in _FORMS.items()
        if not names or name in names
    )


def settings(case: Case) -> dict[str, Any]:
    """Constants that the other libraries' functions need."""
    return {
        "epsilon": EPSILON,
        "groups": GROUPS[case.size],
        "adam": dict(ADAM),
        "step": SCALE,
        "zero": ZERO_POINT,
    }


def copy_model(total_bytes: int) -> ModelProto:
    """One stream read and one written, of so many bytes together."""
    count = max(total_bytes // 8, 1)
    node = helper.make_node("Neg", ["x"], ["y"])
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [count])
        for name in ("x", "y")
    ]
    graph = helper.make_graph([node], "copy", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def _model(case: Case, steps: Sequence[tuple[Any, ...]], weights: Arrays) -> ModelProto:
    form = _FORMS[case.name]
    nodes = []
    for operator, given, made, *rest in steps:
        attributes = rest[0] if rest else {}
        nodes.append(
            helper.make_node(operator, given.split(), made.split(), **attributes)
        )
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in case.inputs().items()
    ]
    made = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape
        )
        for name, shape, kind in form.outputs(case.shape)
    ]
    fixed = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "case", given, made, fixed)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
    )


def _normal(chance: np.random.Generator, shape: Shape) -> np.ndarray[Any, Any]:
    return chance.standard_normal(shape, dtype=np.float32)


def _streams(*names: str) -> Callable[[np.random.Generator, Shape], dict[str, Any]]:
    """Normal inputs, all of the case's shape."""

    def make(chance: np.random.Generator, shape: Shape) -> dict[str, Any]:
        return {name: _normal(chance, shape) for name in names}

    return make


def _vectors(
    axis: int, *names: str
) -> Callable[[np.random.Generator, Shape, str], dict[str, Any]]:
    """Weights along one axis; those named `variance` are positive."""

    def make(chance: np.random.Generator, shape: Shape, size: str) -> dict[str, Any]:
        del size
        found = {name: _normal(chance, (shape[axis],)) for name in names}
        return {
            name: np.abs(array) + np.float32(0.5) if name == "variance" else array
            for name, array in found.items()
        }

    return make


def _none(chance: np.random.Generator, shape: Shape, size: str) -> dict[str, Any]:
    del chance, shape, size
    return {}


def _same(*names: str) -> Callable[[Shape], Sequence[tuple[str, Shape, str]]]:
    """Outputs of the case's shape."""
    return lambda shape: [(name, shape, "float32") for name in names]


def _scalars(**values: float) -> dict[str, Any]:
    return {name: np.float32(value) for name, value in values.items()}


def _softmax_inputs(chance: np.random.Generator, shape: Shape) -> dict[str, Any]:
    """Scores, and a mask that bars what lies more than half a row ahead."""
    rows, columns = shape[-2:]
    ahead = np.arange(columns)[None, :] > np.arange(rows)[:, None] + columns // 2
    mask = np.where(ahead, np.float32(-1e4), np.float32(0))
    return {"x": _normal(chance, shape), "mask": mask}


def _rotary_weights(
    chance: np.random.Generator, shape: Shape, size: str
) -> dict[str, Any]:
    del chance, size
    half = shape[-1] // 2
    rates = 10000.0 ** (-np.arange(half) / half)
    angles = np.arange(shape[-2])[:, None] * rates[None, :]
    return {
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
        "positions": np.arange(shape[-2], dtype=np.int64)[None].repeat(shape[0], 0),
    }


def _adam_inputs(chance: np.random.Generator, shape: Shape) -> dict[str, Any]:
    found = {name: _normal(chance, shape) for name in ("p", "g", "m")}
    return {**found, "v": _normal(chance, shape) ** 2}


def _adam_weights(
    chance: np.random.Generator, shape: Shape, size: str
) -> dict[str, Any]:
    del chance, shape, size
    return _scalars(
        beta1=ADAM["beta1"],
        rest1=1 - ADAM["beta1"],
        beta2=ADAM["beta2"],
        rest2=1 - ADAM["beta2"],
        correct2=ADAM["correct2"],
        step=ADAM["lr"] / ADAM["correct1"],
        eps=ADAM["eps"],
    )


def _adam_nodes(size: str) -> Sequence[tuple[Any, ...]]:
    del size
    return [
        ("Mul", "m beta1", "m1"),
        ("Mul", "g rest1", "g1"),
        ("Add", "m1 g1", "new_m"),
        ("Mul", "v beta2", "v1"),
        ("Mul", "g g", "gg"),
        ("Mul", "gg rest2", "g2"),
        ("Add", "v1 g2", "new_v"),
        ("Div", "new_v correct2", "v_hat"),
        ("Sqrt", "v_hat", "root"),
        ("Add", "root eps", "below"),
        ("Mul", "new_m step", "above"),
        ("Div", "above below", "change"),
        ("Sub", "p change", "new_p"),
    ]


def _entropy_inputs(chance: np.random.Generator, shape: Shape) -> dict[str, Any]:
    labels = chance.integers(0, shape[1], shape[0], dtype=np.int64)
    return {"x": _normal(chance, shape), "labels": labels}


def _group_norm(size: str) -> Sequence[tuple[Any, ...]]:
    settings = {"num_groups": GROUPS[size], "epsilon": EPSILON}
    return [
        ("GroupNormalization", "x scale bias", "n", settings),
        ("Sigmoid", "n", "s"),
        ("Mul", "n s", "y"),
    ]


def _fixed_nodes(*nodes: tuple[Any, ...]) -> Callable[[str], Sequence[Any]]:
    return lambda _: nodes


def _factor(chance: np.random.Generator, shape: Shape, size: str) -> dict[str, Any]:
    del chance, shape, size
    return _scalars(factor=0.125)


def _grid(chance: np.random.Generator, shape: Shape, size: str) -> dict[str, Any]:
    del chance, shape, size
    return {**_scalars(step=SCALE), "zero": np.uint8(ZERO_POINT)}


_FORMS: Final[Mapping[str, _Form]] = MappingProxyType(
    {
        "add_layer_norm": _Form(
            shapes=_PLANE,
            inputs=_streams("x", "r"),
            weights=_vectors(-1, "scale", "bias"),
            nodes=_fixed_nodes(
                ("Add", "x r", "s"),
                ("LayerNormalization", "s scale bias", "y", {"epsilon": EPSILON}),
            ),
            outputs=_same("y"),
        ),
        "rms_norm_residual": _Form(
            shapes=_PLANE,
            inputs=_streams("x", "r"),
            weights=_vectors(-1, "scale"),
            nodes=_fixed_nodes(
                ("Add", "x r", "s"),
                ("RMSNormalization", "s scale", "y", {"epsilon": EPSILON}),
            ),
            outputs=_same("s", "y"),
        ),
        "bias_gelu": _Form(
            shapes=_PLANE,
            inputs=_streams("x"),
            weights=_vectors(-1, "bias"),
            nodes=_fixed_nodes(("Add", "x bias", "s"), ("Gelu", "s", "y")),
            outputs=_same("y"),
            note="GELU by erf on all sides",
        ),
        "swiglu": _Form(
            shapes=_PLANE,
            inputs=_streams("gate", "up"),
            weights=_none,
            nodes=_fixed_nodes(
                ("Sigmoid", "gate", "s"),
                ("Mul", "gate s", "a"),
                ("Mul", "a up", "y"),
            ),
            outputs=_same("y"),
        ),
        "masked_softmax": _Form(
            shapes=_HEADS,
            inputs=_softmax_inputs,
            weights=_factor,
            nodes=_fixed_nodes(
                ("Mul", "x factor", "a"),
                ("Add", "a mask", "b"),
                ("Softmax", "b", "y", {"axis": -1}),
            ),
            outputs=_same("y"),
        ),
        "group_norm_silu": _Form(
            shapes=_IMAGE,
            inputs=_streams("x"),
            weights=_vectors(1, "scale", "bias"),
            nodes=_group_norm,
            outputs=_same("y"),
            note="odd: channels are twice a prime, for two groups",
        ),
        "bn_relu_add": _Form(
            shapes=_IMAGE,
            inputs=_streams("x", "r"),
            weights=_vectors(1, "scale", "bias", "mean", "variance"),
            nodes=_fixed_nodes(
                (
                    "BatchNormalization",
                    "x scale bias mean variance",
                    "n",
                    {"epsilon": EPSILON},
                ),
                ("Relu", "n", "a"),
                ("Add", "a r", "y"),
            ),
            outputs=_same("y"),
            note="a side may fold the running statistics at load",
        ),
        "rotary": _Form(
            shapes=_ROTARY,
            inputs=_streams("x"),
            weights=_rotary_weights,
            nodes=_fixed_nodes(("RotaryEmbedding", "x cos sin positions", "y")),
            outputs=_same("y"),
            plain=(
                ("Split", "x", "a b", {"axis": -1, "num_outputs": 2}),
                ("Mul", "a cos", "ac"),
                ("Mul", "b sin", "bs"),
                ("Mul", "b cos", "bc"),
                ("Mul", "a sin", "as"),
                ("Sub", "ac bs", "left"),
                ("Add", "bc as", "right"),
                ("Concat", "left right", "y", {"axis": -1}),
            ),
            note="odd: the head is twice a prime; some sides take positions in order",
        ),
        "adam_step": _Form(
            shapes=_SQUARE,
            inputs=_adam_inputs,
            weights=_adam_weights,
            nodes=_adam_nodes,
            outputs=_same("new_p", "new_m", "new_v"),
        ),
        "cross_entropy": _Form(
            shapes=_LOGITS,
            inputs=_entropy_inputs,
            weights=_none,
            nodes=_fixed_nodes(
                ("SoftmaxCrossEntropyLoss", "x labels", "y", {"reduction": "mean"})
            ),
            outputs=lambda _: [("y", (), "float32")],
            plain=(
                ("LogSoftmax", "x", "p", {"axis": 1}),
                ("Unsqueeze", "labels last", "places"),
                ("GatherElements", "p places", "chosen", {"axis": 1}),
                ("ReduceMean", "chosen", "mean", {"keepdims": 0}),
                ("Neg", "mean", "y"),
            ),
            plain_weights=MappingProxyType({"last": np.array([1], np.int64)}),
        ),
        "quantise_dequantise": _Form(
            shapes=_SQUARE,
            inputs=_streams("x"),
            weights=_grid,
            nodes=_fixed_nodes(
                ("QuantizeLinear", "x step zero", "q"),
                ("DequantizeLinear", "q step zero", "y"),
            ),
            outputs=lambda shape: [("q", shape, "uint8"), ("y", shape, "float32")],
            note="both the uint8 tensor and the float one are results",
            steps=(1.0, SCALE * 1.001),
        ),
        "transposed_add": _Form(
            shapes=_SQUARE,
            inputs=lambda chance, shape: {
                "a": _normal(chance, shape[::-1]),
                "b": _normal(chance, shape),
            },
            weights=_none,
            nodes=_fixed_nodes(
                ("Transpose", "a", "t", {"perm": [1, 0]}), ("Add", "t b", "y")
            ),
            outputs=_same("y"),
        ),
    }
)
