"""What a worker measures on, by its device string."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from typing import Final, Protocol

from tuner.plan import Measurement
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult
from tuner.runtime.runner import Runner

NULL_BYTES_PER_SECOND: Final = 1e10
NULL_LAUNCH_SECONDS: Final = 5e-6


class Measuring(Protocol):
    """What times kernels and whole plans; the session's only way to a device."""

    @property
    def device_name(self) -> str:
        """What the device calls itself."""

    @property
    def toolchain(self) -> str:
        """Compiler, driver and library versions behind the measurements."""

    def measure(self, request: MeasureRequest) -> Measurement:
        """Verify and time one kernel."""

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Verify and time whole plans, interleaved."""


def open_runner(device: str) -> AbstractContextManager[Measuring]:
    """The process that measures on a device; for `null:N`, made-up times."""
    if device.partition(":")[0] == "null":
        return NullRunner(null_seconds)
    return Runner(device)


def null_seconds(request: MeasureRequest) -> float:
    """A time for a kernel: by its bytes, a little changed by its source.

    Equal requests get equal times on every machine, so that a run can be repeated.
    """
    graph = request.graph
    moved = sum(graph.types[name].bytes for name in (*graph.inputs, *graph.outputs))
    text = request.source.text if request.source is not None else "library"
    luck = hashlib.sha256(text.encode()).digest()[0] / 255
    return (NULL_LAUNCH_SECONDS + moved / NULL_BYTES_PER_SECOND) * (0.9 + 0.2 * luck)
