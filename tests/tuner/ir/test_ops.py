"""The operator table is complete, and its parts say the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest

from tests.tuner.ir.graphs import kind
from tuner.ir.erf import erf
from tuner.ir.expr import FUNCTIONS, Call, Expr, Literal, Operand, operations, parse
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import DType

EVALUATE: Final[Mapping[str, Callable[..., Any]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": lambda a, b: np.trunc(a / b) if a.dtype.kind == "i" else a / b,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "where": np.where,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "and_": np.logical_and,
    "or_": np.logical_or,
    "xor_": np.logical_xor,
    "not_": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "reciprocal": lambda a: 1 / a,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "pow": np.power,
    "fmod": np.fmod,
    "floor_mod": lambda a, b: a - np.floor(a / b) * b,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.invert,
}
BITS: Final = {n for n in OPS if n.startswith(("bit_", "shift_"))}
TRUTHS: Final = {n for n in OPS if n.startswith("logical_")}
POINTWISE: Final = [n for n, op in OPS.items() if op.pattern is Pattern.ELEMENTWISE]
REDUCTIONS: Final = [n for n, op in OPS.items() if op.pattern is Pattern.REDUCTION]


def _evaluate(expr: Expr, operands: list[Any]) -> Any:
    match expr:
        case Operand(index):
            return operands[index]
        case Literal(number):
            return np.asarray(number)
        case Call(function, args):
            return EVALUATE[function](*(_evaluate(a, operands) for a in args))


def _operands(name: str, count: int) -> list[Any]:
    rng = np.random.default_rng(7)
    if name in BITS:
        return [rng.integers(0, 7, 200) for _ in range(count)]
    if name in TRUTHS:
        return [rng.random(200) < 0.5 for _ in range(count)]
    floats = [rng.uniform(-3, 3, 200) for _ in range(count)]
    if name == "pow":
        floats[0] = np.abs(floats[0])
    if name == "where":
        floats[0] = floats[0] < 0
    if name in ("isnan", "isinf"):
        floats[0][:3] = np.nan, np.inf, -np.inf
    if name.endswith("equal"):
        floats[1][:50] = floats[0][:50]
    return floats


def test_every_row_has_every_part() -> None:
    """Only opaque nodes have no rule and no reference."""
    missing = [
        name
        for name, op in OPS.items()
        if name != "opaque" and (op.infer is None or op.reference is None)
    ]
    missing += [n for n in (*POINTWISE, *REDUCTIONS) if not OPS[n].expression]
    missing += [
        n for n in REDUCTIONS if OPS[n].identity not in {"0", "1", "inf", "-inf"}
    ]
    assert not missing
    assert set(EVALUATE) == set(FUNCTIONS)


@pytest.mark.parametrize("name", POINTWISE)
def test_expression_and_reference_agree(name: str) -> None:
    """An element-wise row means the same in the kernel language and in NumPy."""
    op = OPS[name]
    operands = _operands(name, op.arity[0])
    attributes = {"to": "f64"} if name == "cast" else {}
    assert op.reference is not None
    (expected,) = op.reference(operands, attributes)
    with np.errstate(all="ignore"):
        found = _evaluate(parse(op.expression), operands)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert (np.asarray(found).dtype == bool) == (expected.dtype == bool)


@pytest.mark.parametrize("name", POINTWISE)
def test_broadcast_type_and_reference_agree(name: str) -> None:
    """The reference gives the shape that the type rule promises."""
    op = OPS[name]
    shapes = [(3, 1), (1, 4), (4,)][: op.arity[0]]
    operands = [
        np.resize(a, shape)
        for a, shape in zip(_operands(name, op.arity[0]), shapes, strict=True)
    ]
    names = {"bool": DType.BOOL, "int64": DType.I64, "float64": DType.F64}
    types = [kind(*a.shape, dtype=names[str(a.dtype)]) for a in operands]
    attributes = {"to": "f64"} if name == "cast" else {}
    assert op.infer is not None
    assert op.reference is not None
    (stated,) = op.infer(types, attributes)
    (result,) = op.reference(operands, attributes)
    assert result.shape == stated.shape
    assert result.dtype == stated.dtype.numpy


@pytest.mark.parametrize("name", REDUCTIONS)
def test_joining_partial_results_reduces(name: str) -> None:
    """Starting at the identity and joining element by element is the reduction."""
    op = OPS[name]
    data = np.random.default_rng(3).uniform(0.5, 2, (4, 6))
    join = parse(op.expression)
    total: Any = np.full(4, float(op.identity))
    for column in data.T:
        total = _evaluate(join, [total, column])
    assert op.reference is not None
    (expected,) = op.reference([data], {"axes": (1,), "keepdims": 0})
    np.testing.assert_allclose(total, expected, rtol=1e-12)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_])
def test_an_empty_reduction_gives_the_identity(
    name: str, dtype: type[np.generic]
) -> None:
    """Whatever the element type."""
    op = OPS[name]
    assert op.reference is not None
    (result,) = op.reference([np.ones((2, 0), dtype)], {"axes": (1,), "keepdims": 1})
    assert result.shape == (2, 1)
    assert result.dtype == dtype
    limit = float(op.identity)
    if math.isinf(limit) and dtype is np.bool_:
        limit = float(limit > 0)
    elif math.isinf(limit) and dtype is not np.float32:
        info = np.iinfo(dtype)  # type: ignore[arg-type]
        limit = float(info.max if limit > 0 else info.min)
    assert result.tolist() == [[limit], [limit]]


def test_integer_division_rounds_towards_zero() -> None:
    """As C and ONNX have it; a division by zero does not end the program."""
    op = OPS["div"]
    assert op.reference is not None
    (result,) = op.reference([np.array([7, -7, 7, 1]), np.array([2, 2, -2, 0])], {})
    assert result[:3].tolist() == [3, -3, -3]


def test_every_expression_costs_something() -> None:
    """Counting an operator never gives nothing, but for a cast."""
    free = [n for n in POINTWISE if not operations(parse(OPS[n].expression))]
    assert free == ["cast"]


def test_erf_is_that_of_the_c_library() -> None:
    """Within 1 ulp everywhere, special values included."""
    x = np.concatenate(
        [np.linspace(-7, 7, 20_001), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300]]
    )
    wanted = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), wanted, rtol=4e-16, atol=0)
    assert np.signbit(erf(np.array(-0.0)))


@pytest.mark.parametrize("name", ["int8", "int32", "int64"])
def test_integers_divide_and_raise_as_c_does_at_the_edges_of_their_range(
    name: str,
) -> None:
    """Towards zero, wrapping; division by 0 gives 0, what is below 1 is 0."""
    least = np.iinfo(name).min
    a = np.array([least, least, least, -7, 7, 5], name)
    b = np.array([-1, 2, 1, 2, -2, 0], name)
    (quotient,) = OPS["div"].reference([a, b], {})  # type: ignore[misc]
    assert quotient.tolist() == [least, least // 2, least, -3, -3, 0]
    base = np.array([-1, 1, 2, 3, -2], name)
    exponent = np.array([-3, -2, -1, 0, 3], name)
    (raised,) = OPS["pow"].reference([base, exponent], {})  # type: ignore[misc]
    assert raised.tolist() == [-1, 1, 0, 1, -8]
