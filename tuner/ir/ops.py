"""The operator table: one row per primitive, with everything that is known of it.

Attributes are normalised, so that a row never has to guess:

=============  =====================================================================
reshape        shape: the new extents, no -1
transpose      perm
slice          starts, steps, sizes: one entry per axis (sizes = output extents;
               steps may be negative)
expand         shape: the broadcast result
concat         axis (not negative)
pad            before, after: one entry per axis, not negative; value: the filler
gather         axis (not negative); inputs are table and indices; an index below
               zero counts from the end
cast           to: a `DType`
reduce_*       axes: sorted, not negative, tuple; keepdims: 0 or 1
matmul         none; NumPy's rules for batches and vectors
conv           strides, pads (all begins, then all ends), dilations, group;
               inputs are data, weights and, if there is one, bias
max_pool,      kernel, strides, pads, dilations, ceil (0 or 1); average_pool also
average_pool   count_pads (0 or 1)
opaque         domain, op_type, opset, proto: the serialised node without names;
               output types are given, not inferred
=============  =====================================================================

Element-wise rows broadcast their operands by NumPy's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from tuner.ir import references
from tuner.ir.graph import Attribute
from tuner.ir.inference import (
    Infer,
    as_cast,
    as_concat,
    as_conv,
    as_elementwise,
    as_expand,
    as_gather,
    as_matmul,
    as_pad,
    as_pool,
    as_predicate,
    as_reduction,
    as_reshape,
    as_select,
    as_slice,
    as_transpose,
)
from tuner.ir.types import Array


class Pattern(IntEnum):
    """How an operator behaves under fusion.

    Source: TVM's OpPatternKind (include/tvm/relax/op_attr_types.h), without the
    values that only its own passes use.
    """

    ELEMENTWISE = 0
    INJECTIVE = 2
    REDUCTION = 3
    CONTRACTION = 4
    WINDOW = 5
    OPAQUE = 8


Reference = Callable[[Sequence[Array], Mapping[str, Attribute]], tuple[Array, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One primitive operator.

    Attributes:
        pattern: behaviour under fusion.
        arity: least and greatest number of inputs.
        infer: output types from input types and attributes; None when they are given.
        reference: the meaning, in NumPy. 16-bit and narrower floats arrive as
            float32 or float64 arrays, bool as bool.
        expression: for element-wise rows, the same in the kernel language; for
            reductions, how two partial results join.
        identity: for reductions, what an empty reduction gives: 0, 1, or an infinity
            ("-inf", "inf" become the dtype's least and greatest value for integers).
    """

    pattern: Pattern
    arity: tuple[int, int]
    infer: Infer | None
    reference: Reference | None
    expression: str = ""
    identity: str = ""


def _elementwise(
    arity: int, expression: str, reference: Reference, infer: Infer = as_elementwise
) -> Op:
    return Op(
        pattern=Pattern.ELEMENTWISE,
        arity=(arity, arity),
        infer=infer,
        reference=reference,
        expression=expression,
    )


def _injective(arity: tuple[int, int], infer: Infer, reference: Reference) -> Op:
    return Op(pattern=Pattern.INJECTIVE, arity=arity, infer=infer, reference=reference)


def _reduction(expression: str, identity: str, reference: Reference) -> Op:
    return Op(
        pattern=Pattern.REDUCTION,
        arity=(1, 1),
        infer=as_reduction,
        reference=reference,
        expression=expression,
        identity=identity,
    )


_R = references

_UNARY: Final[Mapping[str, str]] = {
    "neg": "-a0",
    "abs": "abs(a0)",
    "sign": "sign(a0)",
    "floor": "floor(a0)",
    "ceil": "ceil(a0)",
    "rint": "rint(a0)",
    "sqrt": "sqrt(a0)",
    "reciprocal": "reciprocal(a0)",
    "exp": "exp(a0)",
    "log": "log(a0)",
    "sin": "sin(a0)",
    "cos": "cos(a0)",
    "tan": "tan(a0)",
    "asin": "asin(a0)",
    "acos": "acos(a0)",
    "atan": "atan(a0)",
    "sinh": "sinh(a0)",
    "cosh": "cosh(a0)",
    "tanh": "tanh(a0)",
    "asinh": "asinh(a0)",
    "acosh": "acosh(a0)",
    "atanh": "atanh(a0)",
    "erf": "erf(a0)",
    "bit_not": "bit_not(a0)",
    "relu": "max(a0, 0)",
    "sigmoid": "1 / (1 + exp(0 - a0))",
}
_BINARY: Final[Mapping[str, str]] = {
    "add": "a0 + a1",
    "sub": "a0 - a1",
    "mul": "a0 * a1",
    "div": "a0 / a1",
    "pow": "pow(a0, a1)",
    "minimum": "min(a0, a1)",
    "maximum": "max(a0, a1)",
    "fmod": "fmod(a0, a1)",
    "floor_mod": "floor_mod(a0, a1)",
    "shift_left": "shift_left(a0, a1)",
    "shift_right": "shift_right(a0, a1)",
    "bit_and": "bit_and(a0, a1)",
    "bit_or": "bit_or(a0, a1)",
    "bit_xor": "bit_xor(a0, a1)",
}
_PREDICATE: Final[Mapping[str, tuple[int, str]]] = {
    "less": (2, "a0 < a1"),
    "less_equal": (2, "a0 <= a1"),
    "greater": (2, "a0 > a1"),
    "greater_equal": (2, "a0 >= a1"),
    "equal": (2, "a0 == a1"),
    "logical_and": (2, "and_(a0, a1)"),
    "logical_or": (2, "or_(a0, a1)"),
    "logical_xor": (2, "xor_(a0, a1)"),
    "logical_not": (1, "not_(a0)"),
    "isnan": (1, "isnan(a0)"),
    "isinf": (1, "isinf(a0)"),
}

OPS: Final[Mapping[str, Op]] = MappingProxyType(
    {
        **{n: _elementwise(1, e, _R.elementwise(n)) for n, e in _UNARY.items()},
        **{n: _elementwise(2, e, _R.elementwise(n)) for n, e in _BINARY.items()},
        **{
            n: _elementwise(k, e, _R.elementwise(n), as_predicate)
            for n, (k, e) in _PREDICATE.items()
        },
        "where": _elementwise(3, "where(a0, a1, a2)", _R.where, as_select),
        "cast": _elementwise(1, "a0", _R.cast, as_cast),
        "reshape": _injective((1, 1), as_reshape, _R.reshape),
        "transpose": _injective((1, 1), as_transpose, _R.transpose),
        "slice": _injective((1, 1), as_slice, _R.slice_),
        "expand": _injective((1, 1), as_expand, _R.expand),
        "concat": _injective((1, 1 << 16), as_concat, _R.concat),
        "pad": _injective((1, 1), as_pad, _R.pad),
        "gather": _injective((2, 2), as_gather, _R.gather),
        "reduce_sum": _reduction("a0 + a1", "0", _R.reduction("reduce_sum")),
        "reduce_prod": _reduction("a0 * a1", "1", _R.reduction("reduce_prod")),
        "reduce_max": _reduction("max(a0, a1)", "-inf", _R.reduction("reduce_max")),
        "reduce_min": _reduction("min(a0, a1)", "inf", _R.reduction("reduce_min")),
        "matmul": Op(
            pattern=Pattern.CONTRACTION,
            arity=(2, 2),
            infer=as_matmul,
            reference=_R.matmul,
        ),
        "conv": Op(
            pattern=Pattern.CONTRACTION,
            arity=(2, 3),
            infer=as_conv,
            reference=_R.conv,
        ),
        "max_pool": Op(
            pattern=Pattern.WINDOW,
            arity=(1, 1),
            infer=as_pool,
            reference=_R.max_pool,
        ),
        "average_pool": Op(
            pattern=Pattern.WINDOW,
            arity=(1, 1),
            infer=as_pool,
            reference=_R.average_pool,
        ),
        "opaque": Op(
            pattern=Pattern.OPAQUE, arity=(0, 1 << 16), infer=None, reference=None
        ),
    }
)
