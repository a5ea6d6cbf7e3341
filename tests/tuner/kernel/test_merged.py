"""Products that share an operand, side by side in one generated kernel."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.types import DType
from tuner.kernel.count import work
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.nest import Kind
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default, is_legal, space
from tuner.plan import Family, Options
from tuner.pricing import price
from tuner.runtime import nvrtc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.ir.graph import Graph
    from tuner.runtime.opencl import OpenCLBackend

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_available(), reason="no NVRTC: pip install cupy-cuda13x"
)


def merged(
    left: tuple[int, ...],
    widths: Sequence[int],
    dtype: DType = DType.F32,
    epilogues: Sequence[str] = (),
) -> Graph:
    """Products of one tensor with matrices, each with an epilogue of its own.

    Args:
        left: shape of the operand that they share.
        widths: columns of each matrix.
        dtype: of everything.
        epilogues: of each product: "" for none, "bias", or a unary operator.
    """
    b = Builder()
    x = b.input(*left, dtype=dtype)
    outputs = []
    for number, width in enumerate(widths):
        y = b.op("matmul", x, b.input(left[-1], width, dtype=dtype))
        ending = epilogues[number] if epilogues else ""
        if ending == "bias":
            y = b.op("add", y, b.input(width, dtype=dtype))
        elif ending:
            y = b.op(ending, y)
        outputs.append(y)
    return b.graph(*outputs)


CASES = (
    merged((37, 53), (70, 19, 8), epilogues=("relu", "", "bias")),
    merged((2, 19, 33), (40, 41), epilogues=("tanh", "exp")),
    merged((3, 20), (17, 40), epilogues=("bias", "")),
    merged((20, 40), (24, 33, 9), DType.F16, ("bias", "relu", "")),
)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_each_product_gets_its_own_columns(opencl: OpenCLBackend, number: int) -> None:
    """Unequal widths and epilogues, tails, rows in batches: as the interpreter has."""
    graph, device = CASES[number], find("cpu")
    nest = lower(graph)
    assert len(nest.groups) == len(graph.outputs)
    feeds = random_feeds(graph, number)
    drawn = Random(number).choice(space(nest, device))
    for schedule in (default(nest, device), drawn):
        found = run(opencl, graph, schedule, feeds)
        assert not complaint(graph, feeds, found), schedule


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_default_schedule_compiles_and_does_not_spill(architecture: str) -> None:
    """With the memory on chip of the largest part, on tensor cores and without."""
    device = find(architecture)
    for graph in (CASES[0], merged((128, 256), (256, 64, 64), DType.F16)):
        nest = lower(graph)
        schedule = default(nest, device)
        source = render(nest, schedule, CUDA)
        resources = nvrtc.compile_cubin(source, architecture).resources
        assert resources.spill_store_bytes == 0
        counted = work(nest, schedule, device)
        assert resources.shared_bytes == counted.shared_bytes_per_block
        assert counted.blocks <= source.grid[0]


def test_both_languages_have_the_same_grid_of_all_column_tiles() -> None:
    """One after the other: as many blocks as the kernels apart have together."""
    graph = merged((64, 48), (96, 40), epilogues=("bias", "relu"))
    nest, device = lower(graph), find("sm_90")
    schedule = default(nest, device)
    texts = [render(nest, schedule, dialect) for dialect in (OPENCL, CUDA)]
    assert texts[0].grid == texts[1].grid
    apart = [lower(merged((64, 48), (width,))) for width in (96, 40)]
    blocks = [render(one, schedule, CUDA).grid[0] for one in apart]
    assert texts[1].grid[0] == sum(blocks)
    assert {group.kind for group in nest.groups} == {Kind.TILE}


def test_the_shared_operand_is_read_from_memory_once() -> None:
    """Its bytes count once however many products read it, and a launch is saved."""
    device, options = find("sm_90"), Options()
    graph = merged((128, 768), (768, 768, 768))
    together = price(graph, Family.CONTRACTION, device, options)
    alone = price(merged((128, 768), (768,)), Family.CONTRACTION, device, options)
    assert together is not None
    assert alone is not None
    done = work(lower(graph), together.schedule, device)
    shared = next(a for a in done.accesses if a.tensor == graph.inputs[0])
    assert shared.unique_bytes == 128 * 768 * 4
    assert together.estimate.launch_seconds == alone.estimate.launch_seconds
    assert alone.estimate.seconds < together.estimate.seconds
    assert together.estimate.seconds < 3 * alone.estimate.seconds


def test_registers_and_memory_on_chip_are_those_of_the_largest_part() -> None:
    """Blocks of all parts are equally large, whatever each needs."""
    device = find("sm_80")
    graph = merged((128, 96), (64, 64), epilogues=("", "tanh"))
    nest = lower(graph)
    schedule = default(nest, device)
    together = work(nest, schedule, device)
    parts = [
        work(lower(merged((128, 96), (64,), epilogues=(e,))), schedule, device)
        for e in ("", "tanh")
    ]
    most = max(part.registers_per_thread for part in parts)
    assert together.registers_per_thread == most
    most = max(part.shared_bytes_per_block for part in parts)
    assert together.shared_bytes_per_block == most


def test_a_schedule_must_suit_all_parts() -> None:
    """Tensor cores multiply all products of a kernel or none."""
    b = Builder()
    x = b.input(64, 64, dtype=DType.F16)
    weights = b.input(64, 64, dtype=DType.F16)
    computed = b.op("exp", weights)
    graph = b.graph(b.op("matmul", x, weights), b.op("matmul", x, computed))
    nest, device = lower(graph), find("sm_90")
    plain = lower(merged((64, 64), (64, 64), DType.F16))
    asked = default(plain, device)
    assert asked["tensor"] == 1
    assert is_legal(plain, asked, device)
    assert not is_legal(nest, asked, device)


def test_a_product_of_a_product_is_refused() -> None:
    """One tile holds the result of one product."""
    b = Builder()
    x = b.input(16, 16)
    first = b.op("matmul", x, b.input(16, 16))
    with pytest.raises(CannotLower, match="follows 2 contractions"):
        lower(b.graph(b.op("matmul", first, b.input(16, 16))))
    both = b.op("add", first, b.op("matmul", x, b.input(16, 16)))
    with pytest.raises(CannotLower, match="follows 2 contractions"):
        lower(b.graph(both))


def test_products_too_small_for_tiles_stay_apart_from_others() -> None:
    """All parts of a kernel walk in the same way."""
    with pytest.raises(CannotLower, match="too small"):
        lower(merged((32, 32), (32, 3)))
