"""Every element-wise operator, in every dtype, on ordinary and on special values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.interpreter import evaluate, from_bf16, to_bf16
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import Array, DType
from tuner.kernel.lower import lower
from tuner.kernel.schedule import default, space

if TYPE_CHECKING:
    from tuner.ir.graph import Graph
    from tuner.runtime.opencl import OpenCLBackend

FLOATS = (DType.F64, DType.F32, DType.F16, DType.BF16)
WHOLES = (DType.I64, DType.I32, DType.I8, DType.U8)
BITS = ("bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right")
TRUTH = ("logical_and", "logical_or", "logical_xor", "logical_not")
REAL_ONLY = (
    *("sqrt", "reciprocal", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid"),
    *("isnan", "isinf", "floor", "ceil", "rint"),
)
SPECIAL = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.1, -7.25, 30.0, -30.0),
    *(np.inf, -np.inf, np.nan),
)
EPSILONS = {
    DType.F64: 2.0**-52,
    DType.F32: 2.0**-23,
    DType.F16: 2.0**-10,
    DType.BF16: 2.0**-7,
}


def rows(dtype: DType) -> list[str]:
    """Element-wise rows that take operands of a dtype."""
    names = [n for n, op in OPS.items() if op.pattern is Pattern.ELEMENTWISE]
    names.remove("cast")
    if dtype.is_float:
        return [n for n in names if n not in (*BITS, *TRUTH)]
    if dtype is DType.BOOL:
        return [*TRUTH, "equal", "where"]
    return [n for n in names if n not in (*REAL_ONLY, *TRUTH)]


def all_rows(dtype: DType, count: int) -> tuple[Graph, list[str]]:
    """One kernel with an output for every row of the operator table."""
    b = Builder()
    operands = [b.input(count, dtype=dtype) for _ in range(2)]
    choice = b.input(count, dtype=DType.BOOL)
    names = rows(dtype)
    outputs = []
    for name in names:
        arity = OPS[name].arity[0]
        chosen = [choice, *operands] if name == "where" else operands[:arity]
        outputs.append(b.op(name, *chosen))
    return b.graph(*outputs), names


def pairs(values: Any) -> tuple[Array, Array]:
    """Every value against every value."""
    left, right = np.meshgrid(values, values)
    return left.ravel(), right.ravel()


def compute(backend: OpenCLBackend, graph: Graph, feeds: dict[str, Array]) -> Any:
    """What the default schedule computes."""
    schedule = default(lower(graph), find("cpu"))
    return run(backend, graph, schedule, feeds)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operators_agree_with_the_reference(
    opencl: OpenCLBackend, dtype: DType
) -> None:
    """Special values are special in the same places; others differ by rounding."""
    rng = np.random.default_rng(7)
    left, right = pairs(np.array(SPECIAL))
    left = np.concatenate([left, rng.standard_normal(500) * 4])
    right = np.concatenate([right, rng.standard_normal(500) * 4])
    graph, names = all_rows(dtype, left.size)
    feeds = random_feeds(graph, 1)
    for name, values in zip(graph.inputs, (left, right), strict=False):
        narrow = values.astype(np.float32)
        is_bf16 = dtype is DType.BF16
        feeds[name] = to_bf16(narrow) if is_bf16 else values.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        expected = evaluate(graph, feeds, precision="float64")
    found = compute(opencl, graph, feeds)
    for output, name in zip(graph.outputs, names, strict=True):
        kind = graph.types[output].dtype
        assert not disagreement(found[output], expected[output], kind), name


def disagreement(ours: Any, true: Any, dtype: DType) -> str:
    """Where two results differ by more than some rounding errors."""
    if not dtype.is_float:
        return "" if np.array_equal(ours, true) else "differs"
    with np.errstate(all="ignore"):
        if dtype is DType.BF16:
            ours, true = from_bf16(ours), from_bf16(to_bf16(true.astype(np.float32)))
        else:
            true = true.astype(dtype.numpy)
        ours, true = ours.astype(np.float64), true.astype(np.float64)
        close = np.abs(ours - true) <= 32 * EPSILONS[dtype] * (np.abs(true) + 1e-2)
    same = close | (ours == true) | (np.isnan(ours) & np.isnan(true))
    wrong = np.flatnonzero(~same)
    return "" if not wrong.size else f"{ours[wrong[:5]]} for {true[wrong[:5]]}"


@pytest.mark.parametrize("dtype", [*WHOLES, DType.BOOL])
def test_whole_number_operators_are_exact(opencl: OpenCLBackend, dtype: DType) -> None:
    """Wrapping, truncating division and remainders are those of the reference."""
    if dtype is DType.BOOL:
        values = np.array([False, True])
    else:
        info = np.iinfo(dtype.numpy.name)
        edges = [info.min, info.max, info.max - 1]
        values = np.array([0, 1, 2, 3, 7, 100, *edges], dtype=dtype.numpy)
        if info.min < 0:
            values = np.append(values, np.array([-1, -2, -3, -7], dtype=dtype.numpy))
    left, right = pairs(values)
    graph, names = all_rows(dtype, left.size)
    feeds = random_feeds(graph, 1)
    feeds[graph.inputs[0]], feeds[graph.inputs[1]] = left, right
    with np.errstate(all="ignore"):
        expected = evaluate(graph, feeds, precision="native")
    found = compute(opencl, graph, feeds)
    for output, name in zip(graph.outputs, names, strict=True):
        usable = defined(name, left, right)
        ours, true = found[output][usable], expected[output][usable]
        assert np.array_equal(ours, true), name


def defined(name: str, left: Any, right: Any) -> Any:
    """Operands for which the standard says what the result is."""
    if name in ("shift_left", "shift_right"):
        return (right >= 0) & (right < 8 * right.itemsize) & (left >= 0)
    if name in ("div", "fmod", "floor_mod"):
        least = np.iinfo(left.dtype).min  # its absolute value does not exist
        return (right != 0) & ((least == 0) | ((left != least) & (right != least)))
    if name == "pow":
        return (np.abs(left.astype(np.float64)) < 8) & (right >= 0) & (right < 8)
    return np.ones(left.shape, dtype=bool)


@pytest.mark.parametrize("source", list(DType))
def test_casts_are_those_of_numpy(opencl: OpenCLBackend, source: DType) -> None:
    """A cast between any two dtypes keeps values that both can hold."""
    b = Builder()
    x = b.input(64, dtype=source)
    targets = [t for t in DType if t is not source]
    graph = b.graph(*(b.op("cast", x, to=str(target)) for target in targets))
    values = np.arange(64) % 2 if source is DType.BOOL else np.arange(64) * 1.5
    if source is DType.BF16:
        feeds = {x: to_bf16(values.astype(np.float32))}
    else:
        feeds = {x: values.astype(source.numpy)}
    expected = evaluate(graph, feeds, precision="native")
    found = compute(opencl, graph, feeds)
    for output, target in zip(graph.outputs, targets, strict=True):
        assert not disagreement(
            found[output], as_float(expected[output], target), target
        ), target


def as_float(array: Array, dtype: DType) -> Array:
    """Stored bf16 values as float64; others as they are."""
    return from_bf16(array).astype(np.float64) if dtype is DType.BF16 else array


def test_stored_half_floats_round_to_nearest_even(opencl: OpenCLBackend) -> None:
    """f32 to f16 and to bf16 rounds ties to even, like NumPy and the reference."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2**31, 4096, dtype=np.int64).astype(np.uint32)
    ties = (values & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    bits = np.concatenate([values, ties]).view(np.float32)
    bits = np.where(np.abs(bits) < 6e4, bits, np.float32(1.0))
    b = Builder()
    x = b.input(bits.size)
    graph = b.graph(b.op("cast", x, to="f16"), b.op("cast", x, to="bf16"))
    found = compute(opencl, graph, {x: bits})
    half, brain = (found[name] for name in graph.outputs)
    normal = np.abs(bits) > 2.0**-14
    assert np.array_equal(half[normal], bits.astype(np.float16)[normal])
    assert np.array_equal(brain[normal], to_bf16(bits)[normal])


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min", "reduce_sum"])
@pytest.mark.parametrize("axis", [0, 1])
def test_not_a_number_survives_a_reduction(
    opencl: OpenCLBackend, op: str, axis: int
) -> None:
    """A row that holds a NaN anywhere gives NaN; its neighbours do not."""
    b = Builder()
    x = b.input(70, 70)
    graph = b.graph(b.op(op, x, axes=(axis,), keepdims=0))
    values = np.random.default_rng(0).standard_normal((70, 70)).astype(np.float32)
    values[33, 33] = np.nan
    found = compute(opencl, graph, {x: values})[graph.outputs[0]]
    assert np.flatnonzero(np.isnan(found)).tolist() == [33]


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLES, DType.BOOL])
def test_the_reduction_of_nothing_is_its_identity(
    opencl: OpenCLBackend, dtype: DType
) -> None:
    """The least and greatest value are those of the dtype, however it is held."""
    b = Builder()
    x = b.input(3, 0, dtype=dtype)
    ops = ("reduce_max", "reduce_min")
    graph = b.graph(*(b.op(op, x, axes=(1,), keepdims=0) for op in ops))
    feeds = random_feeds(graph, 0)
    found = compute(opencl, graph, feeds)
    for name, wanted in evaluate(graph, feeds).items():
        np.testing.assert_array_equal(found[name], wanted)


@pytest.mark.parametrize("op", ["neg", "sigmoid"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_negated_values_stay_each_lanes_own(
    opencl: OpenCLBackend, op: str, dtype: DType
) -> None:
    """Also behind a barrier, where a compiler took them for the same in all lanes."""
    b = Builder()
    value = b.op(op, b.input(4, 256, dtype=dtype))
    total = b.op("reduce_sum", value, axes=(1,), keepdims=1)
    graph = b.graph(b.op("add", value, total), b.op("exp", value))
    nest, feeds = lower(graph), random_feeds(graph, 3)
    spaces = (space(nest, find(name)) for name in ("cpu", "a100-80"))
    kept = [s for found in spaces for s in found if s.as_dict.get("persistent")]
    chosen = [s for s in kept if s.as_dict["lanes"] in (32, 64, 128)]
    assert chosen
    for schedule in chosen[:: len(chosen) // 6 or 1]:
        found = run(opencl, graph, schedule, feeds)
        assert not complaint(graph, feeds, found), schedule


def test_a_negated_zero_has_the_other_sign(opencl: OpenCLBackend) -> None:
    """And so have infinities; what is no number stays none."""
    b = Builder()
    graph = b.graph(b.op("neg", b.input(5)))
    given = np.asarray([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    schedule = default(lower(graph), find("cpu"))
    (found,) = run(opencl, graph, schedule, {graph.inputs[0]: given}).values()
    np.testing.assert_array_equal(found, -given)
    signs = np.signbit(np.asarray(found)[:4])
    np.testing.assert_array_equal(signs, np.signbit(-given[:4]))
