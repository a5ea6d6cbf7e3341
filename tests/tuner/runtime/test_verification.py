"""The rule that tells a right kernel from a wrong one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tuner.runtime.graphs import exp_add, graph_of, tensor
from tuner.ir.types import Array, DType
from tuner.plan import MemoryPlan
from tuner.runtime.requests import Program, Step
from tuner.runtime.verification import EPSILON, Truth, Verdict, epsilon, judge, why_void
from tuner.runtime.whole import compare

BOUND = 16 * EPSILON[DType.F32]


def _judge(ours: Array, truth: Array, library: float = 0.0) -> Verdict:
    return judge(
        "o",
        ours,
        Truth.of(truth),
        bound=BOUND,
        library_error=lambda: library,
        alternative=lambda: truth,
    )


def test_rounding_passes_and_errors_do_not() -> None:
    """Sixteen epsilons of the greatest value are allowed, more is not."""
    truth = np.array([1.0, -100.0])
    assert not _judge(truth + 0.9 * BOUND * 100, truth).reason
    assert "error" in _judge(truth + 1.1 * BOUND * 100, truth).reason


def test_the_library_may_widen_the_bound() -> None:
    """Four times the library's own error is allowed."""
    truth = np.array([1.0, 2.0])
    assert not _judge(truth + 0.9e-2, truth, library=0.25e-2).reason
    assert _judge(truth + 1.1e-2, truth, library=0.25e-2).reason


def test_nan_is_never_right() -> None:
    """An output that was not written, or went wrong, is refused."""
    truth = np.array([1.0, 2.0])
    assert _judge(np.array([1.0, np.nan]), truth, library=1e9).reason


def test_infinities_must_be_in_their_places() -> None:
    """Masked values are infinite exactly where the reference is."""
    truth = np.array([1.0, -np.inf])
    assert not _judge(truth.copy(), truth).reason
    assert _judge(np.array([-np.inf, 1.0]), truth).reason


def test_whole_numbers_are_equal() -> None:
    """One wrong integer or boolean is one too many."""
    truth = np.array([1, 2, 3])
    assert not _judge(truth.copy(), truth).reason
    assert "1 of 3" in _judge(np.array([1, 2, 4]), truth).reason


def test_whole_numbers_may_follow_the_rounded_reference() -> None:
    """A count that rounding moved is right when the own precision says so."""
    truth = np.array([1, 2])
    found = judge(
        "o",
        np.array([1, 3]),
        Truth.of(truth),
        bound=0.0,
        library_error=lambda: 0.0,
        alternative=lambda: np.array([1, 3]),
    )
    assert not found.reason


def test_the_coarsest_float_sets_the_bound() -> None:
    """A graph that rounds to bf16 on the way is judged by bf16."""
    graph = graph_of(
        [("h", "cast", ["x"], {"to": "bf16"}), ("o", "cast", ["h"], {"to": "f32"})],
        {"x": tensor(4)},
        ["o"],
    )
    assert epsilon(graph) == EPSILON[DType.BF16]
    assert epsilon(exp_add()) == EPSILON[DType.F32]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ([1.0, 1.0], [2.0, 2.0], "constant"),
        ([1.0, 2.0], [1.0, 2.0], "does not depend"),
        ([1.0, np.nan], [1.0, 2.0], "not finite"),
        ([1.0, np.inf], [1.0, 2.0], "not finite"),
        ([1.0, 2.0], [2.0, 3.0], ""),
    ],
)
def test_void_checks_are_found(
    first: list[float], second: list[float], reason: str
) -> None:
    """A reference that is flat, stuck or not finite proves nothing."""
    found = why_void(exp_add(2), {"o": np.array(first)}, {"o": np.array(second)})
    assert reason in found
    assert bool(reason) == bool(found)


@pytest.mark.parametrize(
    ("dtype", "most"), [(DType.F16, 65504.0), (DType.BF16, 3.3e38), (DType.F32, 3.4e38)]
)
def test_what_no_type_can_hold_proves_nothing(dtype: DType, most: float) -> None:
    """A reference beyond its own type is void: every kernel's answer is infinite."""
    kind = tensor(2, dtype=dtype)
    graph = graph_of([("o", "neg", ["x"], {})], {"x": kind}, ["o"])
    fits = {"o": np.array([1.0, -most])}
    other = {"o": np.array([2.0, most])}
    assert not why_void(graph, fits, other)
    beyond = {"o": np.array([1.0, -1.1 * most])}
    assert f"greater than any {dtype.value}" in why_void(graph, fits, beyond)


def test_a_graph_may_know_infinity() -> None:
    """A mask's own infinities do not make a check void, as long as numbers remain."""
    graph = graph_of(
        [("o", "where", ["c", "x", "inf"], {})],
        {"c": tensor(4, dtype=DType.BOOL), "x": tensor(4)},
        ["o"],
        constants={"inf": np.array(-np.inf, np.float32)},
        constant_types={"inf": tensor()},
    )
    first = {"o": np.array([1.0, -np.inf, 2.0, 3.0])}
    second = {"o": np.array([1.0, 4.0, -np.inf, 3.0])}
    assert not why_void(graph, first, second)


def test_what_depends_on_nothing_need_not_vary() -> None:
    """An output made of constants alone is compared, and that is all."""
    graph = graph_of(
        [("o", "expand", ["c"], {"shape": (4,)})],
        {},
        ["o"],
        constants={"c": np.array(2.0, np.float32)},
        constant_types={"c": tensor()},
    )
    flat = {"o": np.full(4, 2.0)}
    assert not why_void(graph, flat, flat)


def _reduced(op: str, count: int, dtype: DType) -> Program:
    x = tensor(2, count, dtype=dtype)
    row = ("o", op, ["x"], {"axes": (1,), "keepdims": 0})
    graph = graph_of([row], {"x": x}, ["o"])
    return Program(
        steps=(Step(name="k0", graph=graph),),
        inputs=("x",),
        outputs=("o",),
        types=graph.types,
        memory=MemoryPlan(buffers=(), aliases={}, arena_bytes=0, peak_bytes=0),
    )


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
def test_zeros_are_never_a_long_sum(dtype: DType) -> None:
    """16-bit numbers are added up in 32 bits: their check can fail at any length."""
    program = _reduced("reduce_sum", 1 << 24, dtype)
    bits = {DType.BF16: 0x3F80, DType.F16: 0x3C00, DType.F32: 0x3F800000}[dtype]
    ones = np.full(2, bits, f"u{dtype.bytes}").view(dtype.numpy)
    assert compare(program, "o", np.zeros_like(ones), ones).reason
    assert not compare(program, "o", ones, ones).reason


def test_only_long_sums_may_be_off_by_the_root_of_their_length() -> None:
    """A maximum is exact however long; sums of 2^20 numbers may lose ten bits."""
    ones = np.ones(2, np.float32)
    wrong = (ones * (1 + 1000 * EPSILON[DType.F32])).astype(np.float32)
    assert not compare(
        _reduced("reduce_sum", 1 << 20, DType.F32), "o", wrong, ones
    ).reason
    assert compare(_reduced("reduce_max", 1 << 20, DType.F32), "o", wrong, ones).reason
    assert compare(_reduced("reduce_sum", 1 << 10, DType.F32), "o", wrong, ones).reason
