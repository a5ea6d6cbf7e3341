"""Cold caches: other memory passes through them before every timed launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from tuner.plan import Argument, Language, Source
from tuner.runtime.backend import Backend
from tuner.runtime.timing import Run

_BLOCK: Final = 256
_FLOAT_BYTES: Final = 4
_TEXTS: Final[Mapping[Language, str]] = MappingProxyType(
    {
        "opencl": (
            "kernel void flush_caches(global float* x) {\n"
            "  const int i = get_global_id(0);\n  x[i] = x[i] + 1.0f;\n}\n"
        ),
        "cuda": (
            'extern "C" __global__ void flush_caches(float* x) {\n'
            "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            "  x[i] = x[i] + 1.0f;\n}\n"
        ),
    }
)
ENTRY: Final = "flush_caches"


def flush_source(language: Language, flush_bytes: int) -> Source:
    """A kernel that reads and writes so many bytes, on all multiprocessors alike."""
    blocks = max(1, -(-flush_bytes // (_FLOAT_BYTES * _BLOCK)))
    return Source(
        language=language,
        text=_TEXTS[language],
        entry=ENTRY,
        arguments=(Argument(tensor="x", is_output=True),),
        grid=(blocks, 1, 1),
        block=(_BLOCK, 1, 1),
    )


def before_each(run: Run, flush: Callable[[], object]) -> Run:
    """Times what finds nothing of its own in the caches.

    A sample is one launch, whatever number is asked for, as if all had taken so long:
    the flush takes much longer than most kernels.
    """

    def cold(launches: int) -> float:
        flush()
        return run(1) * launches

    return cold


def host_flush(flush_bytes: int) -> Callable[[], object]:
    """The same for what runs on the host, without a device's compiler."""
    content = np.zeros(max(1, flush_bytes // _FLOAT_BYTES), np.float32)
    return lambda: np.add(content, 1.0, out=content)


class Flush:
    """Memory of a device that takes the place of whatever its caches hold.

    Args:
        backend: the device.
        flush_bytes: more than all its caches together.

    Attributes:
        memory: of the flush.
    """

    def __init__(self, backend: Backend, flush_bytes: int) -> None:
        source = flush_source(backend.language, flush_bytes)
        self.memory = backend.allocate(source.grid[0] * _BLOCK * _FLOAT_BYTES)
        backend.fill(self.memory, 0)
        self._enqueue = backend.bind(source, [self.memory])
        self._backend = backend

    def __call__(self) -> None:
        """Fill the caches, and wait until it is done."""
        self._enqueue()
        self._backend.synchronise()
