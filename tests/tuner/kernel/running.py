"""Running a kernel for real, and judging it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.ir.interpreter import evaluate, to_bf16
from tuner.ir.types import Array, DType
from tuner.kernel.lower import lower
from tuner.kernel.render import OPENCL, render
from tuner.runtime.kernels import bind_generated, typed
from tuner.runtime.verification import EPSILON, KERNEL_EPSILONS, widen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.ir.graph import Graph
    from tuner.plan import Schedule
    from tuner.runtime.opencl import OpenCLBackend

POISON = 0xA5


def random_feeds(graph: Graph, seed: int) -> dict[str, Array]:
    """Random arrays in storage dtype; whole numbers are small, and valid indices."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name in (*graph.inputs, *graph.weights):
        kind = graph.types[name]
        shape = kind.static_shape
        if kind.dtype.is_float:
            values = rng.standard_normal(shape)
            if kind.dtype is DType.BF16:
                feeds[name] = to_bf16(values.astype(np.float32))
            else:
                feeds[name] = values.astype(kind.dtype.numpy)
        elif kind.dtype is DType.BOOL:
            feeds[name] = rng.integers(0, 2, shape).astype(np.bool_)
        else:
            low = 0 if kind.dtype is DType.U8 else -5
            feeds[name] = rng.integers(low, 6, shape).astype(kind.dtype.numpy)
    return feeds


def run(
    backend: OpenCLBackend,
    graph: Graph,
    schedule: Schedule,
    feeds: Mapping[str, Array],
) -> dict[str, Array]:
    """Outputs of the generated kernel, computed over poisoned memory."""
    source = render(lower(graph), schedule, OPENCL)
    memories = {}
    for argument in source.touched:
        if argument.scratch is not None:
            continue
        memory = backend.allocate(graph.types[argument.tensor].bytes)
        backend.fill(memory, POISON)
        if not argument.is_output:
            backend.write(memory, feeds[argument.tensor])
        memories[argument.tensor] = memory
    launch = bind_generated(backend, source, memories)
    launch()
    backend.synchronise()
    found = {}
    for name in graph.outputs:
        kind = graph.types[name]
        array = np.empty(kind.static_shape, kind.dtype.numpy)
        backend.read(memories[name], array)
        found[name] = array
    return found


def complaint(
    graph: Graph, feeds: Mapping[str, Array], found: Mapping[str, Array]
) -> str:
    """What is wrong with a kernel's outputs; empty when nothing is.

    Source: the acceptance rule of `tuner.runtime.verification`, with the error of
    NumPy in the types' own precision for that of the library.
    """
    with np.errstate(all="ignore"):
        expected = evaluate(graph, feeds, precision="float64")
    for name, true in expected.items():
        kind = graph.types[name]
        ours: Any = widen(found[name], kind.dtype)
        if not kind.dtype.is_float:
            if not np.array_equal(ours, true):
                return f"{name}: {np.sum(ours != true)} elements differ"
            continue
        finite = np.isfinite(true)
        if not np.array_equal(np.isfinite(ours), finite):
            return f"{name}: other elements are finite"
        scale = np.max(np.abs(true[finite]), initial=0.0)
        error = np.max(np.abs(ours[finite] - true[finite]), initial=0.0)
        unit = max(
            EPSILON[graph.types[out].dtype]
            for node in graph.nodes
            for out in node.outputs
            if graph.types[out].dtype.is_float
        )
        if error > KERNEL_EPSILONS * unit * scale + 4 * _library_error(
            graph, feeds, name, true
        ):
            return f"{name}: error {error:.3g} at values up to {scale:.3g}"
    return ""


def _library_error(
    graph: Graph, feeds: Mapping[str, Array], name: str, true: Array
) -> float:
    with np.errstate(all="ignore"):
        native = evaluate(graph, feeds, precision="native")[name]
    theirs: Any = widen(native, graph.types[name].dtype)
    finite = np.isfinite(true) & np.isfinite(theirs)
    return float(np.max(np.abs(theirs[finite] - true[finite]), initial=0.0))


__all__ = ["complaint", "random_feeds", "run", "typed"]
