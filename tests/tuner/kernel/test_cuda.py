"""CUDA texts, compiled by NVIDIA's compiler without a GPU."""

from __future__ import annotations

from random import Random

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.golden import GRAPHS
from tests.tuner.kernel.random_graphs import random_graph
from tests.tuner.kernel.test_operators import all_rows
from tuner.ir.types import DType
from tuner.kernel.count import work
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, render
from tuner.kernel.schedule import default, space
from tuner.runtime import nvrtc

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

pytestmark = pytest.mark.skipif(
    not nvrtc.is_available(), reason="no NVRTC: pip install cupy-cuda13x"
)


@pytest.mark.parametrize("name", list(GRAPHS))
def test_the_default_schedule_compiles_and_does_not_spill(name: str) -> None:
    """On every architecture, with the shared memory that was counted."""
    nest = lower(GRAPHS[name]())
    for architecture in ARCHITECTURES:
        device = find(architecture)
        schedule = default(nest, device)
        source = render(nest, schedule, CUDA)
        resources = nvrtc.compile_cubin(source, architecture).resources
        assert resources.spill_store_bytes == 0
        assert resources.spill_load_bytes == 0
        counted = work(nest, schedule, device)
        assert resources.shared_bytes == counted.shared_bytes_per_block
        assert resources.registers < 2 * counted.registers_per_thread + 16
        assert counted.registers_per_thread < 2 * resources.registers + 24


@pytest.mark.parametrize("dtype", list(DType))
def test_every_operator_compiles_in_every_dtype(dtype: DType) -> None:
    """All spellings and helpers are CUDA without any header."""
    nest = lower(all_rows(dtype, 256)[0])
    source = render(nest, default(nest, find("sm_90")), CUDA)
    assert "#include" not in source.text
    nvrtc.compile_cubin(source, "sm_90")


def test_random_kernels_compile_under_random_schedules() -> None:
    """Vectors, teams, kept values: any schedule of the space is CUDA."""
    device = find("sm_90")
    for seed in range(200, 224):
        try:
            nest = lower(random_graph(seed))
        except CannotLower:
            continue
        schedule = Random(seed).choice(space(nest, device))
        nvrtc.compile_cubin(render(nest, schedule, CUDA), "sm_90")
