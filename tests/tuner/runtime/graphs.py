"""Small graphs and hand-written kernels for the tests of the run-time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.types import DType, TensorType
from tuner.plan import Argument, Source

COUNT = 1 << 12
BLOCK = 64


def tensor(*shape: int, dtype: DType = DType.F32) -> TensorType:
    """A type."""
    return TensorType(dtype=dtype, shape=shape)


def graph_of(
    nodes: Sequence[tuple[str, str, Sequence[str], Mapping[str, Any]]],
    inputs: Mapping[str, TensorType],
    outputs: Sequence[str],
    **more: Any,
) -> Graph:
    """A graph from (output, op, inputs, attributes) rows; types are inferred."""
    constants = more.pop("constants", {})
    types = {**inputs, **more.pop("constant_types", {})}
    made = []
    for out, op, operands, attributes in nodes:
        infer = OPS[op].infer
        assert infer is not None
        types[out] = infer([types[name] for name in operands], attributes)[0]
        made.append(
            Node(
                name=f"n_{out}",
                op=op,
                inputs=tuple(operands),
                outputs=(out,),
                attributes=attributes,
            )
        )
    weights = more.pop("weights", ())
    return Graph(
        nodes=tuple(made),
        inputs=tuple(name for name in inputs if name not in weights),
        weights=tuple(weights),
        constants=constants,
        outputs=tuple(outputs),
        types=types,
    )


def exp_add(count: int = COUNT) -> Graph:
    """O = exp(x) + y."""
    kind = tensor(count)
    return graph_of(
        [("h", "exp", ["x"], {}), ("o", "add", ["h", "y"], {})],
        {"x": kind, "y": kind},
        ["o"],
    )


def matmul_add() -> Graph:
    """O = x @ w + b, with w and b as weights."""
    return graph_of(
        [("h", "matmul", ["x", "w"], {}), ("o", "add", ["h", "b"], {})],
        {"x": tensor(8, 32), "w": tensor(32, 16), "b": tensor(16)},
        ["o"],
        weights=("w", "b"),
    )


def source(
    body: str,
    *,
    reads: Sequence[str] = ("x", "y"),
    writes: Sequence[str] = ("o",),
    count: int = COUNT,
    block: int = BLOCK,
    entry: str = "kernel_under_test",
) -> Source:
    """An OpenCL kernel over float pointers; `i` is the work-item."""
    parameters = [f"global const float* {name}" for name in reads]
    parameters += [f"global float* {name}" for name in writes]
    text = (
        f"kernel void {entry}({', '.join(parameters)}) {{\n"
        f"  const int i = get_global_id(0);\n  {body}\n}}\n"
    )
    arguments = [Argument(tensor=name, is_output=False) for name in reads]
    arguments += [Argument(tensor=name, is_output=True) for name in writes]
    return Source(
        language="opencl",
        text=text,
        entry=entry,
        arguments=tuple(arguments),
        grid=(count // block, 1, 1),
        block=(block, 1, 1),
    )


GOOD = source("o[i] = exp(x[i]) + y[i];")
