"""Runs a graph by the NumPy references: the judge of every kernel and rewrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tuner.errors import InternalError, UnsupportedModel
from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.references import round_to_bf16
from tuner.ir.types import Array, DType

Precision = Literal["native", "float64"]
RunOpaque = Callable[[Node, Sequence[Array]], Sequence[Array]]
"""Runs an opaque node on stored arrays and gives stored arrays."""

_Any = npt.NDArray[Any]


def from_bf16(array: Array) -> Array:
    """Float32 values of bf16 bit patterns."""
    wide = np.ascontiguousarray(array, dtype=np.uint16).astype(np.uint32) << 16
    return wide.view(np.float32).reshape(np.shape(array))


def to_bf16(array: Array) -> Array:
    """Bf16 bit patterns (uint16) of the nearest values."""
    bits = np.ascontiguousarray(round_to_bf16(array)).view(np.uint32)
    return (bits >> 16).astype(np.uint16).reshape(np.shape(array))


def load(array: Array, dtype: DType, precision: Precision = "native") -> Array:
    """Stored array -> the array that references compute with.

    16-bit floats become float32; with precision "float64" every float becomes
    float64.
    """
    if dtype is DType.BF16:
        array = from_bf16(array)
    if not dtype.is_float:
        return array
    if precision == "float64":
        return array.astype(np.float64, copy=False)
    return array.astype(np.float32, copy=False) if dtype is DType.F16 else array


def store(array: Array, dtype: DType) -> Array:
    """Computed array -> stored array, rounded to the element type."""
    if dtype is DType.BF16:
        return to_bf16(array)
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy, copy=False)


def apply(
    op: str,
    arrays: Sequence[Array],
    attributes: Mapping[str, Any],
    dtypes: tuple[Sequence[DType], Sequence[DType]],
) -> tuple[Array, ...]:
    """One operator on stored arrays, in the precision of its types.

    Args:
        op: row of the operator table that has a reference.
        arrays: stored inputs.
        attributes: as the row says.
        dtypes: element types of the inputs and of the outputs.
    """
    reference = OPS[op].reference
    if reference is None:
        raise InternalError(op, "has no reference")
    loaded = [load(a, d) for a, d in zip(arrays, dtypes[0], strict=True)]
    results = reference(loaded, attributes)
    return tuple(store(r, d) for r, d in zip(results, dtypes[1], strict=True))


def evaluate(
    graph: Graph,
    feeds: Mapping[str, Array],
    *,
    precision: Precision = "native",
    opaque: RunOpaque | None = None,
) -> dict[str, Array]:
    """Compute the outputs of a graph.

    Args:
        graph: a graph without symbolic dimensions.
        feeds: stored arrays of the inputs and weights (bf16 as uint16).
        precision: "native" rounds each result to its type; "float64" computes all
            floats in float64, rounds nothing, and returns float64.
        opaque: runs opaque nodes.

    Raises:
        InternalError: an input is missing.
        UnsupportedModel: there is an opaque node and nothing to run it.
    """
    values: dict[str, Array] = {}
    for name in (*graph.inputs, *graph.weights):
        if name not in feeds:
            raise InternalError(name, "no array was given for this input")
        values[name] = load(feeds[name], graph.types[name].dtype, precision)
    for name, array in graph.constants.items():
        values[name] = load(array, graph.types[name].dtype, precision)
    last = _last_uses(graph)
    for index, node in enumerate(graph.nodes):
        arrays = [values[name] for name in node.inputs]
        results = _run(graph, node, arrays, precision, opaque)
        values.update(zip(node.outputs, results, strict=True))
        for name in last.get(index, ()):
            del values[name]
    if precision == "float64":
        return {name: values[name] for name in graph.outputs}
    return {
        name: store(values[name], graph.types[name].dtype) for name in graph.outputs
    }


def _last_uses(graph: Graph) -> dict[int, list[str]]:
    """Tensors that nothing needs after the node of each position."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        last.update(dict.fromkeys((*node.inputs, *node.outputs), index))
    freed: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in graph.outputs:
            freed.setdefault(index, []).append(name)
    return freed


def _run(
    graph: Graph,
    node: Node,
    arrays: Sequence[Array],
    precision: Precision,
    opaque: RunOpaque | None,
) -> list[Array]:
    wanted = [graph.types[name].dtype for name in node.outputs]
    reference = OPS[node.op].reference
    if reference is not None:
        results = _reference(node, reference, arrays, precision)
    elif opaque is not None:
        given = [graph.types[name].dtype for name in node.inputs]
        stored = [store(a, d) for a, d in zip(arrays, given, strict=True)]
        return [
            load(np.asarray(r), d, precision)
            for r, d in zip(opaque(node, stored), wanted, strict=True)
        ]
    else:
        raise UnsupportedModel(
            node.name,
            f"operator {node.attributes.get('op_type', node.op)!s} has no reference",
            hint="give evaluate() a function that runs opaque nodes",
        )
    if precision == "float64":
        return list(results)
    return [load(store(r, d), d) for r, d in zip(results, wanted, strict=True)]


def _reference(
    node: Node,
    reference: Callable[..., tuple[Array, ...]],
    arrays: Sequence[Array],
    precision: Precision,
) -> Sequence[Array]:
    if precision == "float64" and node.op == "cast":
        to = DType(str(node.attributes["to"]))
        if to.is_float:
            return [arrays[0].astype(np.float64, copy=False)]
    return reference(arrays, node.attributes)
