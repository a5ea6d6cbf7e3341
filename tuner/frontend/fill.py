"""Random weights and inputs, for models that came without values.

The rule is that of the zoo's `materialize.py`: a value depends on the tensor's name,
shape and first use and on the seed, not on the machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx

from tuner.errors import UnboundDimensions
from tuner.frontend.imported import Imported
from tuner.frontend.protos import tensor_of
from tuner.ir.interpreter import store
from tuner.ir.types import Array, DType, TensorType

_VIEWS: Final = frozenset(
    {"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
)
_Consumers = Mapping[str, onnx.NodeProto]
_Use = tuple[str, int, onnx.NodeProto | None]
_Values = npt.NDArray[Any]


def random_weights(imported: Imported, seed: int) -> dict[str, Array]:
    """Values for every weight of a model: its own where they came along, else random.

    Args:
        imported: the model.
        seed: of the random values.

    Returns:
        Stored arrays (bf16 as uint16) by name.

    Raises:
        UnboundDimensions: a weight has a symbolic shape.
    """
    nodes = onnx.ModelProto.FromString(imported.onnx).graph.node
    consumers = {name: node for node in reversed(nodes) for name in node.input}
    weights: dict[str, Array] = {}
    for name in imported.graph.weights:
        known = imported.values.get(name)
        if known is None:
            kind = imported.graph.types[name]
            values = _values(
                _static(name, kind),
                _use(name, consumers),
                imported.gain,
                _generator(name, seed),
            )
            known = store(values, kind.dtype)
        weights[name] = known
    return weights


def random_inputs(imported: Imported, seed: int) -> dict[str, Array]:
    """Valid inputs of a model.

    A mask keeps the first half to three quarters of its last axis; an input with a
    range is uniform in it; other integers and bools are 0 or 1, or 1 or 2 where an
    operator divides by them; other floats are normal.

    Args:
        imported: the model, with every dimension bound.
        seed: of the random values.

    Returns:
        Stored arrays (bf16 as uint16) by name.

    Raises:
        UnboundDimensions: an input has a symbolic shape.
    """
    divisors = dict.fromkeys(_divisors(imported), (1.0, 2.0))
    whole = {n: r for n, r in divisors.items() if _is_whole(imported.graph.types, n)}
    ranges = {**whole, **imported.input_ranges}
    return {
        name: _input(name, imported.graph.types[name], ranges, seed)
        for name in imported.graph.inputs
    }


def _divisors(imported: Imported) -> frozenset[str]:
    """Tensors by which an operator divides, seen through views."""
    found: set[str] = set()
    for node in reversed(onnx.ModelProto.FromString(imported.onnx).graph.node):
        if node.op_type in ("Div", "Mod"):
            found.add(node.input[1])
        elif node.op_type in _VIEWS and node.output[0] in found:
            found.add(node.input[0])
    return frozenset(found)


def _is_whole(types: Mapping[str, TensorType], name: str) -> bool:
    kind = types.get(name)
    return kind is not None and not (kind.dtype.is_float or kind.dtype is DType.BOOL)


def full_model(imported: Imported, weights: Mapping[str, Array]) -> bytes:
    """The ONNX model with its dimensions bound and these weights as initializers."""
    model = onnx.ModelProto.FromString(imported.onnx)
    graph = model.graph
    rest = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(rest)
    for name, array in weights.items():
        dtype = imported.graph.types[name].dtype
        graph.initializer.append(tensor_of(array, dtype, name))
    return bytes(model.SerializeToString())


def _generator(name: str, seed: int) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def _static(name: str, kind: TensorType) -> tuple[int, ...]:
    if kind.symbols:
        names = ", ".join(kind.symbols)
        raise UnboundDimensions(
            name,
            f"has the symbolic dimensions {names}",
            hint="give them sizes, such as --shape "
            + " ".join(f"{s}=2" for s in kind.symbols),
        )
    return kind.static_shape


def _use(name: str, consumers: _Consumers) -> _Use:
    """First operator that computes with a tensor, seen through views."""
    node = consumers.get(name)
    while node is not None and node.op_type in _VIEWS:
        name = node.output[0]
        node = consumers.get(name)
    return (
        ("", 0, None)
        if node is None
        else (
            node.op_type,
            list(node.input).index(name),
            node,
        )
    )


def _values(
    shape: tuple[int, ...], use: _Use, gain: float, rng: np.random.Generator
) -> _Values:
    op, position, node = use
    if math.prod(shape) == max(shape, default=1):  # a vector
        is_scale = op in ("Mul", "Div")
        is_spread = op.endswith("Normalization") and position in (1, 4)
        if is_scale or is_spread:
            return rng.uniform(0.8, 1.2, shape)
        return rng.uniform(-0.05, 0.05, shape)
    if op == "Conv":
        return gain * rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
    return rng.standard_normal(shape) / math.sqrt(_fan_in(shape, op, node))


def _fan_in(shape: tuple[int, ...], op: str, node: onnx.NodeProto | None) -> int:
    """Inputs of one output: rows of a product's matrix, else the last axis."""
    if op == "ConvTranspose":
        return shape[0] * math.prod(shape[2:])
    is_transposed = node is not None and any(
        a.name == "transB" and a.i for a in node.attribute
    )
    is_product = op in ("MatMul", "Gemm") and not is_transposed
    return shape[-2] if is_product else shape[-1]


def _input(
    name: str,
    kind: TensorType,
    ranges: Mapping[str, tuple[float, float]],
    seed: int,
) -> Array:
    rng, shape = _generator(name, seed), _static(name, kind)
    is_whole = not kind.dtype.is_float
    bounds = ranges.get(name)
    values: _Values
    if "mask" in name and shape:
        kept = rng.uniform(0.5, 0.75, (*shape[:-1], 1))
        values = np.arange(shape[-1]) < kept * shape[-1]
    elif is_whole:
        low, high = bounds or (0, 1)
        values = rng.integers(int(low), int(high), shape, endpoint=True)
    elif bounds:
        values = rng.uniform(bounds[0], bounds[1], shape)
    else:
        values = rng.standard_normal(shape)
    return store(np.asarray(values), kind.dtype)
