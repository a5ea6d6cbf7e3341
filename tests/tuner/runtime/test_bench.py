"""Verify, then time, on a real OpenCL device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.tuner.runtime.graphs import (
    GOOD,
    exp_add,
    graph_of,
    matmul_add,
    source,
    tensor,
)
from tuner.errors import CompileFailed, VerificationFailed
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.plan import Source
from tuner.runtime import wire
from tuner.runtime.backend import ResourcesExceeded
from tuner.runtime.bench import Bench, _case_key, make_case
from tuner.runtime.failures import failure_of
from tuner.runtime.opencl import OpenCLBackend
from tuner.runtime.requests import MeasureRequest


@pytest.fixture
def bench(opencl: OpenCLBackend) -> Bench:
    """A bench on the shared device."""
    return Bench(opencl)


def _request(graph: Graph, kernel: Source | None, **more: Any) -> MeasureRequest:
    given = {"repeats": 7, "budget_seconds": 0.05, **more}
    return MeasureRequest(graph=graph, source=kernel, **given)


def test_a_right_kernel_is_timed(bench: Bench) -> None:
    """Samples, an interval around the median, and a small error come back."""
    found = bench.measure(_request(exp_add(), GOOD))
    assert len(found.samples) >= 7
    assert 0 < found.low_seconds <= found.seconds <= found.high_seconds < math.inf
    assert 0 < found.max_rel_error < 1e-5


@pytest.mark.parametrize(
    "body",
    [
        "o[i] = exp(x[i]) - y[i];",
        "o[i] = native_exp(x[i]) * 1.001f + y[i];",
        "if (i % 1000 != 7) o[i] = exp(x[i]) + y[i];",
        "o[i ^ 1] = exp(x[i]) + y[i];",
        "o[i] = 1.0f;",
    ],
)
def test_a_wrong_kernel_is_refused(bench: Bench, body: str) -> None:
    """A kernel whose output differs from the reference is never timed.

    By how much is told in words and, if it is a number, to the last bit.
    """
    with pytest.raises(VerificationFailed, match="output: o") as refused:
        bench.measure(_request(exp_add(), source(body)))
    found = failure_of(refused.value)
    error = refused.value.max_abs_error
    assert f"error {error:.3g} at" in found.message
    if math.isnan(error):
        assert (found.max_abs_error, found.max_rel_error) == (0, 0)
    else:
        assert found.max_abs_error == error > found.max_rel_error > 0


def test_a_write_beyond_the_end_is_found(bench: Bench) -> None:
    """Right numbers do not excuse a byte that belongs to somebody else."""
    body = "o[i] = exp(x[i]) + y[i]; if (i == 7) o[4096 + i] = 1.0f;"
    with pytest.raises(VerificationFailed, match="beyond its end"):
        bench.measure(_request(exp_add(), source(body)))


def test_what_does_not_compile_says_why(bench: Bench) -> None:
    """The compiler's log is in the error."""
    with pytest.raises(CompileFailed, match="expp"):
        bench.measure(_request(exp_add(), source("o[i] = expp(x[i]) + y[i];")))


def test_what_does_not_fit_is_refused(bench: Bench) -> None:
    """A work-group beyond the limit is a matter of resources."""
    with pytest.raises(ResourcesExceeded):
        bench.measure(_request(exp_add(), source("o[i] = 0;", count=0, block=1 << 16)))


def test_a_library_call_is_measured_alike(bench: Bench) -> None:
    """Weights are packed by the library, and the result is verified too."""
    found = bench.measure(_request(matmul_add(), None))
    assert found.seconds > 0
    assert found.max_rel_error < 1e-5


def test_a_call_is_timed_in_company(bench: Bench) -> None:
    """A kernel beside it that cannot be compiled is a failure of the measurement."""
    company = (exp_add(), GOOD)
    found = bench.measure(_request(matmul_add(), None, company=company))
    assert 0 < found.low_seconds <= found.seconds < math.inf
    broken = (exp_add(), source("o[i] = nothing;"))
    with pytest.raises(CompileFailed):
        bench.measure(_request(matmul_add(), None, company=broken))


def test_two_are_timed_by_turns(bench: Bench) -> None:
    """A pair has two measurements of as many samples."""
    pair = [_request(exp_add(), GOOD), _request(exp_add(), None)]
    first, second = bench.measure_by_turns(pair)
    assert len(first.samples) == len(second.samples)


def test_references_are_computed_once(bench: Bench) -> None:
    """Trials of one kernel share inputs and references."""
    one = bench._case(_request(exp_add(), GOOD))
    other = bench._case(_request(exp_add(), None))
    assert one is other


def test_a_void_check_fails(bench: Bench) -> None:
    """If no kind of input makes the reference telling, nothing is timed."""
    graph = graph_of([("o", "sub", ["x", "x"], {})], {"x": tensor(64)}, ["o"])
    kernel = source("o[i] = 0;", reads=["x"], count=64)
    with pytest.raises(VerificationFailed, match="void"):
        bench.measure(_request(graph, kernel))


def test_other_inputs_are_tried_before_giving_up() -> None:
    """A test for NaN needs some: the kinds of values are tried until one tells."""
    graph = graph_of(
        [("s", "isnan", ["x"], {}), ("o", "cast", ["s"], {"to": "f32"})],
        {"x": tensor(256)},
        ["o"],
    )
    case = make_case(_request(graph, None))
    assert not case.void
    assert np.isnan(case.feeds[0]["x"]).any()


def test_known_values_are_used(bench: Bench) -> None:
    """An input whose values the plan knows has them in every run."""
    index = np.array([1, 0, 1, 2], np.int64)
    graph = graph_of(
        [("o", "gather", ["t", "i"], {"axis": 0})],
        {"t": tensor(3, 4), "i": tensor(4, dtype=DType.I64)},
        ["o"],
    )
    request = _request(graph, None, values={"i": index})
    case = bench._case(request)
    for feed in case.feeds:
        np.testing.assert_array_equal(feed["i"], index)
    assert bench.measure(request).seconds > 0


def test_weights_stay_and_inputs_change(bench: Bench) -> None:
    """Between the two seeds only run-time inputs differ."""
    first, second = bench._case(_request(matmul_add(), None)).feeds
    np.testing.assert_array_equal(first["w"], second["w"])
    assert not np.array_equal(first["x"], second["x"])


def test_what_is_only_verified_is_verified_once(bench: Bench) -> None:
    """A check without samples is remembered for the life of the process."""
    request = _request(exp_add(), GOOD, timed=False)
    found = bench.measure(request)
    assert not found.samples
    assert not found.failure
    assert found.max_rel_error > 0
    assert bench.measure(request) == found
    assert len(bench._verified) == 1


@pytest.mark.parametrize(
    ("graph", "kernel"),
    [(exp_add(), GOOD), (exp_add(), None), (matmul_add(), None)],
    ids=["generated", "library", "library with weights"],
)
def test_whoever_is_called_can_be_verified_without_timing(
    opencl: OpenCLBackend, graph: Graph, kernel: Source | None
) -> None:
    """What an earlier process measured is checked by a new one, library calls too."""
    request = _request(graph, kernel)
    Bench(opencl).measure(request)
    again = Bench(opencl)
    checked = again.measure(replace(request, timed=False))
    assert not checked.failure
    assert not checked.samples
    assert len(again._verified) == len(again._cases) == 1
    again.measure(request)
    assert len(again._verified) == len(again._cases) == 1


def test_equal_questions_have_equal_names() -> None:
    """Neither what a graph remembers of itself nor who made it is part of a name."""
    request = _request(matmul_add(), None, values={"b": np.arange(16.0)})
    name = _case_key(request)
    assert request.graph.by_name
    assert request.graph.consumers
    assert _case_key(request) == name
    assert _case_key(wire.decode(wire.encode(request))) == name
    for other in (
        replace(request, values={"b": np.arange(16.0) + 1}),
        replace(request, weights=("w",)),
        replace(request, seeds=(2, 3)),
        replace(request, ranges={"x": (0.0, 1.0)}),
        replace(request, graph=exp_add()),
    ):
        assert _case_key(other) != name


def test_a_long_chain_of_products_is_verified(bench: Bench) -> None:
    """Inputs are drawn so that no result is greater than its type can hold."""
    chain = [
        (f"h{n}", "matmul", [f"h{n - 1}" if n else "x", "w"], {}) for n in range(60)
    ]
    kinds = {"x": tensor(8, 64), "w": tensor(64, 64)}
    graph = graph_of(chain, kinds, ["h59"], weights=("w",))
    request = _request(graph, None)
    case = make_case(request)
    assert not case.void
    assert 0 < case.references[0]["h59"].scale < 1e6
    assert bench.measure(request).seconds > 0


def test_a_timed_run_counts_as_verified(bench: Bench) -> None:
    """What was verified before it was timed is not verified again."""
    bench.measure(_request(exp_add(), GOOD))
    assert len(bench._verified) == 1
    bench.measure(_request(exp_add(), GOOD, timed=False))
    assert len(bench._verified) == 1


def test_a_wrong_kernel_is_refused_without_timing_too(bench: Bench) -> None:
    """A check alone fails as a measurement would."""
    wrong = _request(exp_add(), source("o[i] = x[i];"), timed=False)
    with pytest.raises(VerificationFailed, match="output: o"):
        bench.measure(wrong)
