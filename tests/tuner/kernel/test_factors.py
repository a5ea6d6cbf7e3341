"""Many elements that are divided by one number are multiplied by its reciprocal."""

from __future__ import annotations

import numpy as np
import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import (
    Builder,
    add_layer_norm,
    group_norm_silu,
    softmax,
)
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")


def _text(graph: Graph) -> str:
    nest = lower(graph)
    return render(nest, default(nest, CPU), OPENCL).text


def _divided(below: float, *after: str, dtype: DType = DType.F32) -> Graph:
    b = Builder()
    x = b.input(40, 96, dtype=dtype)
    y = b.op("div", x, b.constant(below, dtype))
    for op in after:
        y = b.op(op, y)
    return b.graph(y)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_softmax_divides_once_a_row(axis: int, opencl: OpenCLBackend) -> None:
    """Along rows and along columns; its results keep the rule of every kernel."""
    graph = softmax(130, 100, axis=axis)
    text = _text(graph)
    assert text.count(" / v") == 1
    assert " = 1 / v" in text
    nest = lower(graph)
    assert " = 1 / v" in render(nest, default(nest, find("sm_90")), CUDA).text
    feeds = random_feeds(graph, axis)
    found = run(opencl, graph, default(nest, CPU), feeds)
    assert not complaint(graph, feeds, found)


def test_a_constant_divides_nothing() -> None:
    """Its reciprocal is known before the kernel runs."""
    assert "* 0.70710677f" in _text(_divided(2**0.5))
    assert "* 0.70710677f" in _text(_divided(2**0.5, "erf"))


@pytest.mark.parametrize("below", [0.0, np.inf, np.nan, 2.0**-128, 2.0**127])
def test_reciprocals_that_are_no_numbers_are_not_taken(below: float) -> None:
    """Where a quotient may be a number and the reciprocal is none, it is divided."""
    assert " / " in _text(_divided(below))


@pytest.mark.parametrize("op", ["rint", "floor", "ceil", "sign"])
def test_what_jumps_with_the_last_bit_is_divided(op: str) -> None:
    """A quotient in the middle between two steps must fall to the right one."""
    assert " / 0.3f" in _text(_divided(0.3, "abs", op))


def test_a_whole_number_of_a_quotient_is_divided() -> None:
    """Casts to whole numbers and comparisons jump too; whole numbers stay exact."""
    b = Builder()
    x = b.op("div", b.input(40, 96), b.constant(0.3))
    assert " / 0.3f" in _text(b.graph(b.op("cast", x, to="i32")))
    b = Builder()
    x = b.op("div", b.input(40, 96), b.constant(0.3))
    assert " / 0.3f" in _text(b.graph(b.op("where", b.op("less", x, x), x, x)))
    assert "divide_i32(v0, 3)" in _text(_divided(3, dtype=DType.I32))


def test_a_quotient_that_is_needed_once_is_divided() -> None:
    """A mean divides the sum of a row, not the elements: nothing is saved there."""
    b = Builder()
    total = b.op("reduce_sum", b.input(40, 96), axes=(1,), keepdims=1)
    count = b.op("reduce_max", b.input(40, 96), axes=(1,), keepdims=1)
    assert " = 1 / " not in _text(b.graph(b.op("div", total, count)))


def _normalised(by: str, dtype: DType = DType.F32) -> Graph:
    """Rows divided by their maximum, their length or their sum of magnitudes."""
    b = Builder()
    x = b.input(4, 96, dtype=dtype)
    size = b.op("mul" if by == "length" else "abs", *([x] * (1 + (by == "length"))))
    op = "reduce_max" if by == "maximum" else "reduce_sum"
    below = b.op(op, size, axes=(1,), keepdims=1)
    below = b.op("sqrt", below) if by == "length" else below
    return b.graph(b.op("div", x, below))


@pytest.mark.parametrize("by", ["maximum", "sum", "length"])
def test_rows_of_any_size_are_divided_rightly(by: str, opencl: OpenCLBackend) -> None:
    """The reciprocal of a tiny number is infinite, that of a huge one loses digits."""
    graph = _normalised(by)
    x = np.zeros((4, 96), np.float32)
    x[:3, 0] = 1e-39, 3e38, 2.0
    (found,) = run(opencl, graph, default(lower(graph), CPU), {"x0": x}).values()
    with np.errstate(all="ignore"):
        norm = {
            "maximum": lambda: np.abs(x).max(1, keepdims=True),
            "sum": lambda: np.abs(x).sum(1, keepdims=True),
            "length": lambda: np.sqrt((x * x).sum(1, keepdims=True)),
        }[by]()
        assert np.allclose(found, x / norm, rtol=1e-6, equal_nan=True)


def test_what_may_be_tiny_is_divided_by_and_a_root_is_not() -> None:
    """The root of any number is far from both ends of its type; a sum with one too."""
    for dtype in (DType.F32, DType.F16, DType.F64):
        assert " = 1 / v" not in _text(_normalised("maximum", dtype))
        assert " = 1 / v" not in _text(_normalised("sum", dtype))
        assert " = 1 / v" in _text(_normalised("length", dtype))
        assert " = 1 / v" in _text(softmax(130, 100, dtype=dtype))
        assert " = 1 / v" in _text(add_layer_norm(40, 96, dtype))
    assert " = 1 / v" in _text(group_norm_silu(2, 32, 16, 8))


def test_powers_that_may_all_be_tiny_are_summed_and_divided_by() -> None:
    """Without the row's own maximum taken off nothing keeps their sum from zero."""
    b = Builder()
    x = b.input(40, 96)
    e = b.op("exp", b.op("sub", x, b.constant(3.0)))
    total = b.op("reduce_sum", e, axes=(1,), keepdims=1)
    assert " = 1 / v" not in _text(b.graph(b.op("div", e, total)))


@pytest.mark.parametrize("op", ["log", "reciprocal", "pow", "div"])
def test_what_magnifies_the_last_bit_is_divided(op: str) -> None:
    """A logarithm next to one, a quotient next to a divisor of zero."""
    b = Builder()
    x = b.op("div", b.input(40, 96), b.constant(0.3))
    near = b.op("sub", x, b.constant(1.0))
    more = [b.input(40, 96)] if op in ("pow", "div") else []
    graph = b.graph(b.op(op, *([*more, near] if op == "div" else [near, *more])))
    assert " / 0.3f" in _text(graph)


def test_what_is_divided_again_stays_a_product() -> None:
    """Above the line a last bit stays one; names of operators are no functions."""
    b = Builder()
    x = b.op("div", b.input(40, 96), b.constant(0.3))
    y = b.op("sigmoid", b.op("div", x, b.input(40, 96)))
    assert " / 0.3f" not in _text(b.graph(y))


def test_scores_that_are_scaled_before_a_softmax_stay_products() -> None:
    """The softmax divides by a sum of powers, which is as exact as its terms."""
    b = Builder()
    x = b.op("div", b.input(40, 96), b.constant(128**0.5))
    top = b.op("reduce_max", x, axes=(1,), keepdims=1)
    e = b.op("exp", b.op("sub", x, top))
    total = b.op("reduce_sum", e, axes=(1,), keepdims=1)
    assert " / 11.3" not in _text(b.graph(b.op("div", e, total)))


@pytest.mark.parametrize("op", ["rint", "log", "reciprocal"])
def test_powers_of_two_divide_nothing(op: str) -> None:
    """Their reciprocals are exact, and so no last bit changes; three's is not."""
    assert " * 0.125f" in _text(_divided(8.0, op))
    assert " / 3.0f" in _text(_divided(3.0, op))
