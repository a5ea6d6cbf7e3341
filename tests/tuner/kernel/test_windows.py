"""Pooling kernels against the reference, at the edges of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.types import DType
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.schedule import default
from tuner.plan import Family

if TYPE_CHECKING:
    from tuner.ir.graph import Graph
    from tuner.runtime.opencl import OpenCLBackend

FORMS: list[dict[str, Any]] = [
    {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel": (2, 3), "strides": (1, 2), "pads": (0, 2, 1, 0), "dilations": (2, 1)},
    {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 0, 0), "ceil": 1},
    {"kernel": (3, 2), "strides": (3, 3), "pads": (1, 1, 1, 1), "ceil": 1},
    {"kernel": (1, 1), "strides": (1, 1), "pads": (1, 0, 0, 1)},
]


def _pool(op: str, dtype: DType, form: dict[str, Any], **more: int) -> Graph:
    b = Builder()
    data = b.input(2, 3, 9, 8, dtype=dtype)
    whole = {"dilations": (1, 1), "ceil": 0, **form, **more}
    pooled = b.op(op, data, **whole)
    return b.graph(b.op("neg", b.op("relu", pooled)) if dtype.is_float else pooled)


def _check(backend: OpenCLBackend, graph: Graph) -> None:
    nest = lower(graph)
    assert nest.family is Family.WINDOW
    feeds = random_feeds(graph, 7)
    found = run(backend, graph, default(nest, find("cpu")), feeds)
    assert not complaint(graph, feeds, found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I8, DType.U8])
def test_the_largest_of_a_window_never_comes_from_the_padding(
    opencl: OpenCLBackend, form: dict[str, Any], dtype: DType
) -> None:
    """Also when the window lies in the padding alone."""
    _check(opencl, _pool("max_pool", dtype, form))


@pytest.mark.parametrize("form", FORMS[:4])
@pytest.mark.parametrize("count_pads", [0, 1])
def test_a_mean_counts_what_it_is_told_to_count(
    opencl: OpenCLBackend, form: dict[str, Any], count_pads: int
) -> None:
    """Padding counts if asked; what lies behind the padding never does."""
    _check(opencl, _pool("average_pool", DType.F32, form, count_pads=count_pads))


def test_a_large_window_is_left_to_the_library() -> None:
    """The text of a kernel stays of bearable size."""
    form = {"kernel": (9, 8), "strides": (1, 1), "pads": (0, 0, 0, 0)}
    with pytest.raises(CannotLower, match="a window of 72 elements"):
        lower(_pool("max_pool", DType.F32, form))
