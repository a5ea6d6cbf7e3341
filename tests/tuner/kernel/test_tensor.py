"""Products on tensor cores: emulated thread by thread, compiled, and priced."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cost_model.catalog import find
from cost_model.roofline import lower_bound, predict
from cost_model.work import Pipe
from tests.tuner.kernel import cuda_on_cpu
from tests.tuner.kernel.builder import Builder, conv
from tests.tuner.kernel.random_contractions import random_contraction
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.types import DType
from tuner.kernel.count import work
from tuner.kernel.errors import CannotLower
from tuner.kernel.fragments import GROUPS, LANES, LEFT, MEMBERS, PAIR, RIGHT, SUMS
from tuner.kernel.lower import lower
from tuner.kernel.nest import Kind
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default, is_legal, space
from tuner.kernel.tiles import TENSOR_PADDING, tensor_dtype
from tuner.plan import Schedule
from tuner.runtime import nvrtc

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence
    from pathlib import Path

    from tuner.ir.graph import Graph
    from tuner.plan import Source
    from tuner.runtime.opencl import OpenCLBackend

F16, BF16 = DType.F16, DType.BF16
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_available(), reason="no NVRTC: pip install cupy-cuda13x"
)


def product(
    left: Sequence[int],
    right: Sequence[int],
    dtype: DType = F16,
    *,
    turned: bool = False,
) -> Graph:
    """A matrix product with a bias and an activation; `turned` reads rows of B."""
    b = Builder()
    y = b.input(*right, dtype=dtype)
    if turned:
        y = b.op(
            "transpose",
            y,
            perm=(*range(len(right) - 2), len(right) - 1, len(right) - 2),
        )
    made = b.op("matmul", b.input(*left, dtype=dtype), y)
    return b.graph(b.op("relu", b.op("add", made, b.input(1, dtype=dtype))))


def convolution(dtype: DType) -> Graph:
    """Windows that reach into padding."""
    b = Builder()
    x, w = b.input(2, 8, 9, 7, dtype=dtype), b.input(24, 8, 3, 3, dtype=dtype)
    return b.graph(b.op("relu", conv(b, x, w, pads=1)))


def tensor_schedule(**knobs: int) -> Schedule:
    """A schedule for tensor cores."""
    usual = {"threads": 64, "lanes": 32, "rows": 16, "columns": 1, "depth": 32}
    return Schedule.of(**{**usual, **knobs}, tensor=1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel that is emulated."""

    name: str
    graph: Graph
    schedule: Schedule

    @property
    def source(self) -> Source:
        """Its CUDA text."""
        return render(lower(self.graph), self.schedule, CUDA)


def _random_cases(count: int) -> list[Case]:
    """Random contractions of 16-bit floats under random schedules."""
    device, found, seed = find("sm_90"), [], 0
    while len(found) < count:
        seed += 1
        graph = random_contraction(seed)
        try:
            nest = lower(graph)
        except CannotLower:
            continue
        if nest.groups[0].kind is not Kind.TILE or tensor_dtype(nest) is None:
            continue
        legal = [s for s in space(nest, device) if s.as_dict.get("tensor")]
        small = [s for s in legal if s["threads"] <= 128]
        schedule = Random(seed).choice(small)
        found.append(Case(name=f"seed {seed}", graph=graph, schedule=schedule))
    return found


CASES = (
    Case(
        name="whole tiles, eight terms at once",
        graph=product((64, 64), (64, 64)),
        schedule=tensor_schedule(rows=32, columns=2),
    ),
    Case(
        name="rows of both, bf16",
        graph=product((40, 32), (50, 32), BF16, turned=True),
        schedule=tensor_schedule(),
    ),
    Case(
        name="tails everywhere",
        graph=product((45, 37), (37, 51)),
        schedule=tensor_schedule(rows=16, columns=2, depth=16),
    ),
    Case(
        name="batches, deep tiles",
        graph=product((3, 20, 72), (3, 72, 24)),
        schedule=tensor_schedule(threads=32, depth=64),
    ),
    Case(
        name="eight columns at once, tails of terms",
        graph=product((33, 40), (40, 72), BF16),
        schedule=tensor_schedule(columns=2),
    ),
    Case(
        name="convolution",
        graph=convolution(F16),
        schedule=tensor_schedule(depth=16),
    ),
    *_random_cases(4),
)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All cases, compiled once for this processor."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile CUDA texts for this processor")
    folder = tmp_path_factory.mktemp("emulated")
    return cuda_on_cpu.build([case.source for case in CASES], folder)


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: CASES[i].name)
def test_each_thread_computes_its_elements(emulated: ctypes.CDLL, number: int) -> None:
    """The whole text, run thread by thread with PTX's fragments, is right."""
    case = CASES[number]
    source = case.source
    assert "mma_" in source.text
    feeds = random_feeds(case.graph, number)
    found = cuda_on_cpu.run(emulated, number, source, case.graph, feeds)
    assert not complaint(case.graph, feeds, found)


def test_the_emulation_sees_a_wrong_fragment(tmp_path: Path) -> None:
    """A text with one register in another's place fails: the judge is not blind."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile CUDA texts for this processor")
    case = CASES[0]
    right = case.source
    assert "above[y][1] =" in right.text
    text = right.text.replace("above[y][1] =", "above[y][9] =")
    text = text.replace("above[y][2] =", "above[y][1] =").replace("[9] =", "[2] =")
    wrong = replace(right, text=text)
    library = cuda_on_cpu.build([wrong], tmp_path)
    feeds = random_feeds(case.graph, 0)
    found = cuda_on_cpu.run(library, 0, wrong, case.graph, feeds)
    assert complaint(case.graph, feeds, found)


def test_fragments_hold_every_element_once() -> None:
    """Over all threads the tables cover both factors and the sums, none twice."""
    lanes = [(lane // MEMBERS, lane % MEMBERS) for lane in range(LANES)]
    left = {
        (group + place.row, PAIR * member + place.term + half)
        for group, member in lanes
        for place in LEFT
        for half in range(PAIR)
    }
    right = {
        (PAIR * member + term + half, group)
        for group, member in lanes
        for term in RIGHT
        for half in range(PAIR)
    }
    sums = {(g + p.row, PAIR * m + p.term) for g, m in lanes for p in SUMS}
    assert left == {(r, t) for r in range(16) for t in range(16)}
    assert right == {(t, c) for t in range(16) for c in range(8)}
    assert sums == {(r, c) for r in range(16) for c in range(8)}
    assert GROUPS * MEMBERS == LANES


@pytest.mark.parametrize("depth", [16, 32, 64])
def test_fragments_are_read_from_different_banks(depth: int) -> None:
    """With the padding a sub-group's read asks each of the 32 banks once."""
    stride = depth + TENSOR_PADDING
    lanes = np.arange(LANES)
    words = (lanes // MEMBERS * stride + lanes % MEMBERS * PAIR) // PAIR
    assert len(set(words % 32)) == LANES
    assert stride * F16.bytes % 16 == 0


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_shape_of_tile_compiles(architecture: str) -> None:
    """Schedules for tensor cores are legal: they compile, with the memory counted."""
    device = find(architecture)
    for dtype, seed in ((F16, 0), (BF16, 1)):
        nest = lower(product((250, 160), (160, 190), dtype))
        legal = [s for s in space(nest, device) if s["tensor"]]
        drawn = [default(nest, device), *Random(seed).sample(legal, 2)]
        for schedule in drawn:
            source = render(nest, schedule, CUDA)
            assert f"mma_{dtype}" in source.text
            resources = nvrtc.compile_cubin(source, architecture).resources
            counted = work(nest, schedule, device)
            assert resources.shared_bytes == counted.shared_bytes_per_block
    assert nvrtc.compile_cubin(source, architecture).resources.registers <= 255


@needs_nvrtc
@pytest.mark.parametrize("size", [64, 4096])
def test_the_default_schedule_does_not_spill(size: int) -> None:
    """At any size, on any architecture with the instruction."""
    for architecture in ARCHITECTURES:
        nest = lower(product((size, size), (size, size)))
        schedule = default(nest, find(architecture))
        source = render(nest, schedule, CUDA)
        assert (
            nvrtc.compile_cubin(source, architecture).resources.spill_store_bytes == 0
        )


def test_only_what_tensor_cores_take_is_offered() -> None:
    """Wide factors, computed factors, processors and older GPUs go without."""
    half = lower(product((64, 64), (64, 64)))
    single = lower(product((64, 64), (64, 64), DType.F32))
    b = Builder()
    x = b.op("exp", b.input(64, 64, dtype=F16))
    computed = lower(b.graph(b.op("matmul", x, b.input(64, 64, dtype=F16))))
    offered = {
        (name, device): any(s.as_dict.get("tensor") for s in space(nest, find(device)))
        for name, nest in (("half", half), ("single", single), ("computed", computed))
        for device in ("t4", "sm_80", "sm_90", "cpu")
    }
    assert [pair for pair, is_there in offered.items() if is_there] == [
        ("half", "sm_80"),
        ("half", "sm_90"),
    ]
    asked = tensor_schedule()
    assert is_legal(half, asked, find("sm_80"))
    for nest, device in ((half, "t4"), (half, "cpu"), (single, "sm_80")):
        assert not is_legal(nest, asked, find(device))
    for knobs in ({"rows": 24}, {"depth": 24}, {"rows": 64, "columns": 4}):
        assert not is_legal(half, tensor_schedule(**knobs), find("sm_80"))
    assert default(half, find("sm_90"))["tensor"] == 1


def test_the_other_language_goes_without(opencl: OpenCLBackend) -> None:
    """The same schedule in OpenCL: equal blocks, no tensor cores, right results."""
    graph = product((45, 37), (37, 51))
    nest, schedule = lower(graph), tensor_schedule(columns=2)
    ours, theirs = render(nest, schedule, OPENCL), render(nest, schedule, CUDA)
    assert "mma" not in ours.text
    assert (ours.grid, ours.block) == (theirs.grid, theirs.block)
    feeds = random_feeds(graph, 3)
    assert not complaint(graph, feeds, run(opencl, graph, schedule, feeds))


def test_products_are_priced_on_the_tensor_pipe() -> None:
    """They count there alone; a large product is many times cheaper than without."""
    device, size = find("h100-sxm"), 2048
    nest = lower(product((size, size), (size, size)))
    tensor = default(nest, device)
    plain = next(s for s in space(nest, device) if not s["tensor"])
    counted, other = work(nest, tensor, device), work(nest, plain, device)
    assert counted.operations[Pipe.TENSOR] == size**3
    assert counted.operations[Pipe.FMA32] < size**3 / 10
    assert Pipe.TENSOR not in other.operations
    assert counted.operations.get(Pipe.CONVERT, 0.0) >= 0
    fast, slow = predict(counted, device), predict(other, device)
    assert fast.seconds < slow.seconds / 4
    assert lower_bound(counted, device) <= fast.seconds
