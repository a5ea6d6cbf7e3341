"""Many elements that are divided by one number are multiplied by its reciprocal."""

from __future__ import annotations

import numpy as np
import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder, softmax
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
