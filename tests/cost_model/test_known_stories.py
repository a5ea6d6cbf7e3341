"""Stories that are known from elsewhere: the model must tell them the same way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_model.catalog import find
from cost_model.device import Device
from cost_model.device_file import load_device
from cost_model.occupancy import occupancy
from cost_model.roofline import predict
from cost_model.work import Work
from tests.cost_model.builders import H100_TABLE, copy, read, write
from tuner.calibration.draft import Draft
from tuner.calibration.timing import generated
from tuner.ir.graph import Graph
from tuner.kernel.lower import lower
from tuner.kernel.nest import Kind
from tuner.kernel.schedule import default, is_legal
from tuner.plan import Schedule
from tuner.runtime import nvrtc

A6000 = """
base = "rtx-3090"
id = "rtx-a6000"
name = "NVIDIA RTX A6000"
multiprocessors = 84
clock_hertz = 1.41e9
dram_bytes_per_second = 6.91e11
dram_peak_bytes_per_second = 7.68e11
dram_bytes = 51539607552

[sources]
multiprocessors = "the device of XLA's own test of this story"
"""


@pytest.mark.parametrize(("nbytes", "gibibytes_per_second"), H100_TABLE)
def test_h100_copies(nbytes: int, gibibytes_per_second: float) -> None:
    """Copies of an H100, 8 KiB to 1 GiB, within 15 % of the published table."""
    seconds = predict(copy(nbytes, vector=4), find("h100-sxm")).seconds
    published = nbytes / (gibibytes_per_second * 2**30)
    assert seconds == pytest.approx(published, rel=0.15)


def transposed_sum() -> Graph:
    """Sums over the outermost axis of 1500 x 32 x 128, read as rows."""
    draft = Draft()
    turned = draft.op("transpose", draft.input(1500, 32, 128), perm=(2, 1, 0))
    return draft.graph(draft.op("reduce_sum", turned, axes=(2,), keepdims=0))


def plain_sum() -> Graph:
    """The same sums of a tensor that lies the other way in memory."""
    draft = Draft()
    x = draft.input(128, 32, 1500)
    return draft.graph(draft.op("reduce_sum", x, axes=(2,), keepdims=0))


def tiled_transpose(nbytes: int) -> Work:
    """A transpose through on-chip tiles of 32 x 33: both sides whole sectors."""
    return Work(
        accesses=(read(nbytes), write(nbytes)),
        blocks=nbytes // (4 * 32 * 32),
        block_threads=256,
        shared_bytes_per_block=4 * 32 * 33,
        barriers_per_block=1,
        bytes_in_flight_per_thread=16,
    )


@pytest.fixture(scope="module")
def a6000() -> Device:
    """A device that a user describes."""
    return load_device(A6000)


def test_a_transposed_read_is_kept_out_of_a_row_sum(a6000: Device) -> None:
    """Fused, every element asks for a sector of its own: at least 3 times slower.

    XLA's model for the same device: 105 us apart, 514 us fused.
    """
    nest = lower(transposed_sum())
    assert nest.groups[0].kind is Kind.ROW
    fused = predict(generated(transposed_sum(), a6000).work, a6000)
    nbytes = 4 * 1500 * 32 * 128
    apart = predict(tiled_transpose(nbytes), a6000).seconds
    apart += predict(generated(plain_sum(), a6000).work, a6000).seconds
    assert fused.seconds > 3 * apart
    assert apart == pytest.approx(105e-6, rel=0.3)
    assert fused.seconds == pytest.approx(514e-6, rel=0.3)
    assert fused.bound_by in {"dram", "l2"}


VALUES = 28
CROWDED = Schedule.of(
    threads=1024, lanes=512, vector=4, repeat=1, persistent=0, unroll=4
)
"""A block so large that a thread has 64 registers."""


def long_chain() -> Graph:
    """Twenty-eight rows mixed level by level, with views between the levels.

    Every row is reshaped and transposed and back again, which costs nothing, and is
    needed by two rows of the next level, which keeps all of them alive.
    """
    draft = Draft()
    x = draft.input(VALUES, 8192)
    held = [
        draft.op("slice", x, starts=(i, 0), steps=(1, 1), sizes=(1, 8192))
        for i in range(VALUES)
    ]
    for step in (1, 2, 4, 8):
        held = [_turned(draft, value) for value in held]
        held = [
            draft.op(
                "mul",
                draft.op("add" if i % 2 else "sub", held[i], held[(i + step) % VALUES]),
                draft.number(0.5 + i / 100),
            )
            for i in range(VALUES)
        ]
    total = held[0]
    for value in held[1:]:
        total = draft.op("maximum", total, value)
    return draft.graph(draft.op("reduce_sum", total, axes=(1,), keepdims=1))


def _turned(draft: Draft, value: str) -> str:
    square = draft.op("reshape", value, shape=(64, 128))
    once = draft.op("transpose", square, perm=(1, 0))
    back = draft.op("transpose", once, perm=(1, 0))
    return draft.op("reshape", back, shape=(1, 8192))


@pytest.fixture(scope="module")
def chain() -> Graph:
    """The chain, made once."""
    return long_chain()


def test_a_long_chain_that_spills_is_seen_before_compiling(chain: Graph) -> None:
    """In a large block on sm_80 the chain does not fit: priced with its spills."""
    device = find("sm_80")
    assert is_legal(lower(chain), CROWDED, device)
    crowded = generated(chain, device, CROWDED)
    told = predict(crowded.work, device)
    assert occupancy(crowded.work, device).spill_bytes > 0
    assert told.spill_seconds > 0
    without = replace(crowded.work, registers_per_thread=64)
    assert predict(without, device).seconds < told.seconds


def test_the_planner_takes_a_kernel_that_hardly_spills(chain: Graph) -> None:
    """The schedule that it takes unseen leaves room, and is priced cheaper.

    It spills a register or so; so says the compiler too.
    """
    device = find("sm_80")
    chosen = generated(chain, device, default(lower(chain), device))
    told = predict(chosen.work, device)
    crowded = predict(generated(chain, device, CROWDED).work, device)
    assert 10 * told.spill_bytes < crowded.spill_bytes
    assert told.seconds < crowded.seconds


def test_the_real_compiler_agrees(chain: Graph) -> None:
    """NVRTC spills the one, and the other not worth the mention."""
    if "sm_80" not in nvrtc.available_architectures():
        pytest.skip("NVRTC is not installed")
    device = find("sm_80")
    found = []
    for schedule in (CROWDED, None):
        source = generated(chain, device, schedule).source
        assert source is not None
        found.append(nvrtc.compile_cubin(source, "sm_80").resources)
    crowded, chosen = found
    assert crowded.spill_store_bytes > 10 * chosen.spill_store_bytes
