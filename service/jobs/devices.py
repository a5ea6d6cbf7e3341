"""What a worker measures on, by its device string."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from tuner.errors import DeviceUnavailable
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, Measures
from tuner.runtime.runner import Runner

NULL_BYTES_PER_SECOND: Final = 1e10
NULL_LAUNCH_SECONDS: Final = 5e-6


def open_runner(device: str) -> AbstractContextManager[Measures]:
    """The process that measures on a device.

    For `null:N` times are made up. For `cpu:N` the process, and all that it starts,
    runs on that core alone.
    """
    kind, _, part = device.partition(":")
    if kind == "null":
        return NullRunner(null_seconds)
    if kind == "cpu" and part:
        return _on_core(int(part))
    return Runner(device)


@contextmanager
def _on_core(core: int) -> Iterator[Measures]:
    """A runner for one core: this thread is pinned to it, and children inherit that.

    Raises:
        DeviceUnavailable: this process may not use such a core.
    """
    usable = os.sched_getaffinity(0)
    if core not in usable:
        raise DeviceUnavailable(
            f"cpu:{core}",
            "this process may not run on that core",
            hint=f"usable cores: {', '.join(map(str, sorted(usable)))}",
        )
    os.sched_setaffinity(0, {core})
    try:
        with Runner("cpu", threads=1) as runner:
            yield runner
    finally:
        os.sched_setaffinity(0, usable)


def null_seconds(request: MeasureRequest) -> float:
    """A time for a kernel: by its bytes, a little changed by its source.

    Equal requests get equal times on every machine, so that a run can be repeated.
    """
    graph = request.graph
    moved = sum(graph.types[name].bytes for name in (*graph.inputs, *graph.outputs))
    text = request.source.text if request.source is not None else "library"
    luck = hashlib.sha256(text.encode()).digest()[0] / 255
    return (NULL_LAUNCH_SECONDS + moved / NULL_BYTES_PER_SECOND) * (0.9 + 0.2 * luck)
