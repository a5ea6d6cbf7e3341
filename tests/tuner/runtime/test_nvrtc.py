"""NVIDIA's compiler, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.errors import CompileFailed
from tuner.runtime import nvrtc
from tuner.runtime.canary import canary

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_available(), reason="no NVRTC: pip install cupy-cuda13x"
)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_it_compiles_for_architectures_that_are_not_here(architecture: str) -> None:
    """Machine code and registers come out for each architecture, by itself."""
    compiled = nvrtc.compile_cubin(canary("cuda"), architecture)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert 0 < compiled.resources.registers < 64
    assert compiled.resources.spill_store_bytes == 0
    assert compiled.resources.architecture == architecture
    assert architecture in nvrtc.available_architectures()


@needs_nvrtc
def test_half_types_have_their_headers() -> None:
    """Generated kernels may include the headers of the 16-bit types."""
    source = replace(
        canary("cuda"),
        text="#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + canary("cuda").text,
    )
    assert nvrtc.compile_cubin(source, "sm_90").cubin


@needs_nvrtc
def test_refused_text_comes_with_the_log() -> None:
    """A compile error holds the compiler's words."""
    source = replace(canary("cuda"), text='extern "C" __global__ void canary() { x; }')
    with pytest.raises(CompileFailed, match="identifier"):
        nvrtc.compile_cubin(source, "sm_90")


@needs_nvrtc
def test_unknown_architectures_are_refused() -> None:
    """What the compiler does not know is a compile failure, not a crash."""
    with pytest.raises(CompileFailed, match="architecture"):
        nvrtc.compile_cubin(canary("cuda"), "sm_70")


@needs_nvrtc
def test_the_next_process_finds_what_was_compiled(tmp_path: Path) -> None:
    """Equal texts and options are read from the folder, others are compiled anew."""
    folder = tmp_path / "compiled"
    first = nvrtc.compile_cubin(canary("cuda"), "sm_90", folder=lambda: folder)
    (entry,) = folder.iterdir()
    nvrtc._compile.cache_clear()
    inode = entry.stat().st_ino
    again = nvrtc.compile_cubin(canary("cuda"), "sm_90", folder=lambda: folder)
    assert again == first
    assert entry.stat().st_ino == inode  # a new entry would be another file
    nvrtc.compile_cubin(canary("cuda"), "sm_80", folder=lambda: folder)
    assert len(list(folder.iterdir())) == 2
    nvrtc._compile.cache_clear()
    entry.write_bytes(b"damaged")
    anew = nvrtc.compile_cubin(canary("cuda"), "sm_90", folder=lambda: folder)
    assert anew.resources == first.resources
    assert entry.read_bytes() != b"damaged"


def test_the_report_is_read() -> None:
    """Registers, spills and shared memory are taken from the assembler's lines."""
    log = (
        "ptxas         .     16 bytes stack frame, 8 bytes spill stores, "
        "12 bytes spill loads\n"
        "ptxas info    : Used 32 registers, used 1 barriers, 256 bytes smem\n"
    )
    found = nvrtc.read_resources(log, "sm_90", dynamic_bytes=1)
    assert (found.registers, found.shared_bytes) == (32, 256)
    assert (found.spill_store_bytes, found.spill_load_bytes) == (8, 12)


def test_a_log_without_a_report_is_refused() -> None:
    """Silence of the assembler is not taken for zero registers."""
    with pytest.raises(CompileFailed, match="no resource report"):
        nvrtc.read_resources("", "sm_90")
