"""A kernel so simple that only a broken device can get it wrong."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from tuner.errors import KernelFailed
from tuner.plan import Argument, Language, Source
from tuner.runtime.backend import Backend, aligned_bytes

_COUNT: Final = 1024
_BLOCK: Final = 64
_BODY: Final = "y[i] = x[i] * 2.0f + 1.0f;"
_TEXTS: Final[Mapping[Language, str]] = MappingProxyType(
    {
        "opencl": (
            "kernel void canary(global const float* x, global float* y) {\n"
            f"  const int i = get_global_id(0);\n  {_BODY}\n}}\n"
        ),
        "cuda": (
            'extern "C" __global__ void canary(const float* x, float* y) {\n'
            "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            f"  {_BODY}\n}}\n"
        ),
    }
)


def canary(language: Language) -> Source:
    """The kernel in a language; it doubles 1024 numbers and adds one."""
    return Source(
        language=language,
        text=_TEXTS[language],
        entry="canary",
        arguments=(
            Argument(tensor="x", is_output=False),
            Argument(tensor="y", is_output=True),
        ),
        grid=(_COUNT // _BLOCK, 1, 1),
        block=(_BLOCK, 1, 1),
    )


def sing(backend: Backend) -> None:
    """Run the canary.

    Raises:
        KernelFailed: the device gives a wrong answer.
    """
    given = aligned_bytes(4 * _COUNT)[: 4 * _COUNT].view(np.float32)
    given[:] = np.arange(_COUNT)
    result = np.zeros(_COUNT, np.float32)
    memories = (backend.wrap(given), backend.allocate(result.nbytes))
    backend.fill(memories[1], 0xFF)
    backend.bind(canary(backend.language), memories)()
    backend.synchronise()
    backend.read(memories[1], result)
    if not np.array_equal(result, 2 * given + 1):
        raise KernelFailed(backend.name, "gives wrong answers to a trivial kernel")
