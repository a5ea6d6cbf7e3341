"""What the target's real compiler says of generated kernels, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from cost_model.device import Device
from tuner.assembly import Compile
from tuner.plan import Options, Resources, Source
from tuner.runtime import nvrtc

_THREADS: Final = 4
"""NVRTC compiles outside the interpreter's lock."""
_MOST_SOURCES: Final = 96
"""Distinct kernels of one plan that are compiled; a plan of more keeps the analytic
estimate for the rest, so that it comes in seconds whatever the model."""


def compiler_for(device: Device, options: Options) -> Compile | None:
    """The compiler for a device; None if it is not a GPU, or NVRTC does not know it."""
    if device.kind != "gpu":
        return None
    if device.architecture not in nvrtc.available_architectures():
        return None
    return partial(_compile_all, device.architecture, options.exactness)


def _compile_all(
    architecture: str, exactness: str, sources: Sequence[Source]
) -> Sequence[Resources | None]:
    def one(source: Source) -> Resources:
        compiled = nvrtc.compile_cubin(source, architecture, exactness=exactness)
        return compiled.resources

    asked, rest = sources[:_MOST_SOURCES], sources[_MOST_SOURCES:]
    with ThreadPoolExecutor(_THREADS) as pool:
        return [*pool.map(one, asked), *(None for _ in rest)]
