"""When is a kernel right? The rule, and the references it is judged by.

A float output passes when its greatest error against the float64 reference is at most
four times the library's, or at most 16 epsilons of the greatest reference value (64
for a whole model). Integers and booleans are equal to the reference computed in
float64 or in the types' own precision. A check whose reference could not tell right
from wrong is void, and fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
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
GREATEST: Final[Mapping[DType, float]] = {
    DType.F64: float(np.finfo(np.float64).max),
    DType.F32: float(np.finfo(np.float32).max),
    DType.F16: float(np.finfo(np.float16).max),
    DType.BF16: 255 * 2.0**120,
}
"""Largest finite number of each type."""
_INFINITE_SHARE: Final = 0.9
_CHUNK: Final = 1 << 15


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A reference output, and what the rule asks of it again and again.

    Attributes:
        values: floats as float64.
        scale: greatest finite magnitude.
        is_finite: whether all values are finite.
    """

    values: Array
    scale: float
    is_finite: bool

    @classmethod
    def of(cls, values: Array) -> Truth:
        """Measure a reference output."""
        if not np.issubdtype(values.dtype, np.floating):
            return cls(values=values, scale=0.0, is_finite=True)
        scale, is_finite = 0.0, True
        for part in _chunks(values):
            finite = np.isfinite(part)
            if not finite.all():
                is_finite = False
                part = part[finite]  # noqa: PLW2901
            scale = max(scale, float(np.max(np.abs(part), initial=0.0)))
        return cls(values=values, scale=scale, is_finite=is_finite)


def judge(
    name: str,
    ours: Array,
    truth: Truth,
    *,
    bound: float,
    library_error: Callable[[], float],
    alternative: Callable[[], Array],
) -> Verdict:
    """Compare one output.

    Args:
        name: of the tensor, for the reason.
        ours: computed values, floats as float32 or float64.
        truth: what they should be.
        bound: epsilons times the rounding unit: allowed error per greatest value.
        library_error: the library's greatest error; asked only when it matters.
        alternative: a second answer that is right for a whole number or boolean.
    """
    if not np.issubdtype(truth.values.dtype, np.floating):
        return _judge_exact(name, ours, truth.values, alternative)
    error = greatest_error(ours, truth)
    if np.isinf(error) and not truth.is_finite:
        return Verdict(reason=f"{name}: differs where the reference is infinite")
    relative = error / truth.scale if truth.scale else error
    if np.isnan(error) or (
        error > bound * truth.scale and error > LIBRARY_FACTOR * library_error()
    ):
        reason = f"{name}: error {error:.3g} at values up to {truth.scale:.3g}"
        return Verdict(reason=reason, max_abs_error=error, max_rel_error=relative)
    return Verdict(max_abs_error=error, max_rel_error=relative)


def greatest_error(ours: Array, truth: Truth) -> float:
    """Greatest absolute difference; NaN if any of ours is NaN where the truth is not.

    Where the truth is infinite or NaN, ours must be the same, else the error is
    infinite.
    """
    worst = 0.0
    for got, true in zip(_chunks(ours), _chunks(truth.values), strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(got - true)
        if not truth.is_finite:
            strange = ~np.isfinite(true)
            error[strange] = 0.0
            if not np.array_equal(got[strange], true[strange], equal_nan=True):
                return float("inf")
        part = float(np.max(error, initial=0.0))
        if np.isnan(part):
            return part
        worst = max(worst, part)
    return worst


def _chunks(array: Any) -> Iterator[Any]:
    """Parts that stay in the cache, so that no large temporary is made."""
    flat = array.reshape(-1)
    yield from (flat[at : at + _CHUNK] for at in range(0, flat.size, _CHUNK))


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
        ) or _why_large(values, second[name], graph.types[name].dtype)
        if reason:
            return f"{name}: the reference {reason}"
    return ""


def _why_flat(first: Array, second: Array, *, varies: bool, infinite: bool) -> str:
    values: Any = first
    if np.issubdtype(values.dtype, np.floating):
        finite = np.isfinite(values)
        count = np.count_nonzero(finite)
        share = 1 - count / values.size
        if share > (_INFINITE_SHARE if infinite else 0) or np.isnan(values).any():
            return "is not finite"
        values = values if count == values.size else values[finite]
    if not varies:
        return ""
    if first.size > 1 and values.size and bool((values == values.flat[0]).all()):
        return "is constant"
    if np.array_equal(first, second):
        return "does not depend on the inputs"
    return ""


def _why_large(first: Array, second: Array, dtype: DType) -> str:
    """No kernel can be right where the result has no place in its own type."""
    most = GREATEST.get(dtype, math.inf)
    for values in (first, second):
        if not np.issubdtype(values.dtype, np.floating):
            continue
        finite = np.abs(values[np.isfinite(values)])
        if float(np.max(finite, initial=0.0)) > most:
            return f"is greater than any {dtype.value}"
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
    """A stored array as the rule compares it: 16-bit floats as float32."""
    return load(array, dtype)
