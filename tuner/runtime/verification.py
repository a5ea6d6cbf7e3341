"""When is a kernel right? The rule, and the references it is judged by.

A float output passes when its greatest error against the float64 reference is at most
four times the library's, or at most 16 epsilons of the greatest reference value (64
for a whole model). Integers and booleans are equal to the reference computed in
float64 or in the types' own precision. A check whose reference could not tell right
from wrong is void, and fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tuner.ir.graph import Graph
from tuner.ir.interpreter import load
from tuner.ir.types import Array, DType

KERNEL_EPSILONS: Final = 16.0
MODEL_EPSILONS: Final = 64.0
LIBRARY_FACTOR: Final = 4.0
EPSILON: Final[Mapping[DType, float]] = {
    DType.F64: 2.0**-52,
    DType.F32: 2.0**-23,
    DType.F16: 2.0**-10,
    DType.BF16: 2.0**-7,
}
_INFINITE_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Outcome of a comparison; `reason` is empty when it passed."""

    reason: str = ""
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0


def epsilon(graph: Graph) -> float:
    """The coarsest rounding among the floats that a graph computes."""
    made = (graph.types[out].dtype for node in graph.nodes for out in node.outputs)
    return max((EPSILON[dtype] for dtype in made if dtype.is_float), default=0.0)


def judge(
    name: str,
    ours: Array,
    reference: Array,
    *,
    bound: float,
    library_error: Callable[[], float],
    alternative: Callable[[], Array],
) -> Verdict:
    """Compare one output.

    Args:
        name: of the tensor, for the reason.
        ours: computed values, floats as float64.
        reference: true values, floats as float64.
        bound: epsilons times the rounding unit: allowed error per greatest value.
        library_error: the library's greatest error; asked only when it matters.
        alternative: a second answer that is right for a whole number or boolean.
    """
    if not np.issubdtype(reference.dtype, np.floating):
        return _judge_exact(name, ours, reference, alternative)
    finite = np.isfinite(reference)
    whole = bool(finite.all())
    if not whole and not np.array_equal(
        ours[~finite], reference[~finite], equal_nan=True
    ):
        return Verdict(reason=f"{name}: differs where the reference is infinite")
    true = reference if whole else reference[finite]
    got = ours if whole else ours[finite]
    if not true.size:
        return Verdict()
    error, scale = _greatest(got, true)
    relative = error / scale if scale else error
    if np.isnan(error) or (
        error > bound * scale and error > LIBRARY_FACTOR * library_error()
    ):
        reason = f"{name}: error {error:.3g} at values up to {scale:.3g}"
        return Verdict(reason=reason, max_abs_error=error, max_rel_error=relative)
    return Verdict(max_abs_error=error, max_rel_error=relative)


def _greatest(ours: Any, true: Any) -> tuple[float, float]:
    """Greatest absolute error (NaN if any value is), and greatest true magnitude."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.max(np.abs(ours - true))), float(np.max(np.abs(true)))


def _judge_exact(
    name: str, ours: Array, reference: Array, alternative: Callable[[], Array]
) -> Verdict:
    wrong = ours != reference
    if wrong.any():
        wrong &= ours != alternative()
    count = int(np.count_nonzero(wrong))
    if count:
        return Verdict(
            reason=f"{name}: {count} of {wrong.size} elements differ",
            max_abs_error=float(count),
            max_rel_error=count / wrong.size,
        )
    return Verdict()


def why_void(
    graph: Graph, first: Mapping[str, Array], second: Mapping[str, Array]
) -> str:
    """Why two references, of different inputs, could not tell right from wrong.

    Args:
        graph: whose outputs they are.
        first: reference outputs by name.
        second: likewise, of the other inputs.

    Returns:
        The reason, or an empty text when the check is sound.
    """
    varying = _varying(graph)
    allow_infinite = _knows_infinity(graph)
    for name in graph.outputs:
        values = first[name]
        if not values.size:
            continue
        reason = _why_flat(
            values, second[name], varies=name in varying, infinite=allow_infinite
        )
        if reason:
            return f"{name}: the reference {reason}"
    return ""


def _why_flat(first: Array, second: Array, *, varies: bool, infinite: bool) -> str:
    values: Any = first
    if np.issubdtype(values.dtype, np.floating):
        finite = np.isfinite(values)
        share = 1 - np.count_nonzero(finite) / values.size
        if np.isnan(values).any() or share > (_INFINITE_SHARE if infinite else 0):
            return "is not finite"
        values = values[finite]
    if not varies:
        return ""
    if first.size > 1 and values.size and bool((values == values.flat[0]).all()):
        return "is constant"
    if np.array_equal(first, second):
        return "does not depend on the inputs"
    return ""


def _varying(graph: Graph) -> set[str]:
    """Tensors that depend on an input."""
    found = {*graph.inputs, *graph.weights}
    for node in graph.nodes:
        if found.intersection(node.inputs):
            found.update(node.outputs)
    return found


def _knows_infinity(graph: Graph) -> bool:
    """Whether infinities come from the graph itself, as masks do."""
    literals = (array for array in graph.constants.values() if array.dtype.kind == "f")
    pads = (node.attributes["value"] for node in graph.nodes if node.op == "pad")
    return any(bool(np.isinf(array).any()) for array in literals) or any(
        isinstance(value, float) and bool(np.isinf(value)) for value in pads
    )


def widen(array: Array, dtype: DType) -> Array:
    """A stored array as the rule compares it: floats as float64."""
    return load(array, dtype, "float64")
