"""What a worker measures on, by its device string."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from typing import Final, TypeVar

from tuner.errors import DeviceUnavailable
from tuner.plan import Measurement
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, Measures, PlanRequest, PlanResult
from tuner.runtime.runner import Runner

NULL_BYTES_PER_SECOND: Final = 1e10
NULL_LAUNCH_SECONDS: Final = 5e-6
MOST_NICE: Final = 19

T = TypeVar("T")


def open_runner(device: str) -> AbstractContextManager[Measures]:
    """The process that measures on a device.

    For `null:N` times are made up. For `cpu:N` the process, and all that it starts,
    runs on that core alone.
    """
    kind, _, part = device.partition(":")
    if kind == "null":
        return NullRunner(null_seconds)
    if kind == "cpu" and part:
        return _on_core(device)
    return Runner(device)


@contextmanager
def _on_core(device: str) -> Iterator[Measures]:
    """A runner for one core: children inherit what this thread is pinned to."""
    with pinned(device), Runner("cpu", threads=1) as runner:
        yield runner


@contextmanager
def pinned(device: str) -> Iterator[None]:
    """This thread on the core of `cpu:N`; as it is with any other device.

    Raises:
        DeviceUnavailable: this process may not use such a core.
    """
    kind, _, part = device.partition(":")
    if kind != "cpu" or not part:
        yield
        return
    core, usable = int(part), os.sched_getaffinity(0)
    if core not in usable:
        raise DeviceUnavailable(
            f"cpu:{core}",
            "this process may not run on that core",
            hint=f"usable cores: {', '.join(map(str, sorted(usable)))}",
        )
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


class Foreground:
    """A thread that calls functions for others, with a niceness of its own.

    On Linux niceness belongs to a thread (sched(7)) and children inherit that of the
    thread that starts them; without privileges it only grows. So a worker that makes
    room for others by `nice` needs, if what it measures is to go before its own
    preparation, a thread from before.

    Args:
        niceness: what is added to that of the thread which makes it.
    """

    def __init__(self, niceness: int) -> None:
        wanted = min(os.getpriority(os.PRIO_PROCESS, 0) + niceness, MOST_NICE)
        self._asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # Its measurement ends with the process: nobody is left who wants it.
        threading.Thread(target=self._serve, args=(wanted,), daemon=True).start()
        self.call(lambda: None)  # from here on it has its niceness

    def call(self, function: Callable[[], T]) -> T:
        """What a function gives, or raises, called in that thread."""
        coming: Future[T] = Future()

        def answer() -> None:
            try:
                coming.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                coming.set_exception(error)

        self._asked.put(answer)
        return coming.result()

    def _serve(self, niceness: int) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        while True:
            self._asked.get()()


def make_room(*, worker_niceness: int, measure_niceness: int) -> Foreground:
    """Let others go before this thread, and what is measured before what it prepares.

    Args:
        worker_niceness: what is added to that of this thread.
        measure_niceness: the same for what is measured; at most as much is added.
    """
    foreground = Foreground(min(measure_niceness, worker_niceness))
    os.nice(worker_niceness)
    return foreground


class _Elsewhere:
    """A runner that works, and starts its children, in another thread."""

    def __init__(self, runner: Measures, thread: Foreground) -> None:
        self._runner = runner
        self._thread = thread

    @property
    def device_name(self) -> str:
        return self._thread.call(lambda: self._runner.device_name)

    @property
    def toolchain(self) -> str:
        return self._thread.call(lambda: self._runner.toolchain)

    def measure(self, request: MeasureRequest) -> Measurement:
        return self._thread.call(lambda: self._runner.measure(request))

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        return self._thread.call(lambda: self._runner.measure_whole(request))


@contextmanager
def open_in(
    thread: Foreground,
    device: str,
    open_: Callable[[str], AbstractContextManager[Measures]] = open_runner,
) -> Iterator[Measures]:
    """The process that measures on a device, with the niceness of a thread."""
    opened = open_(device)
    with pinned(device):  # what is prepared between two runs stays off other cores
        runner = thread.call(opened.__enter__)
        try:
            yield _Elsewhere(runner, thread)
        finally:
            thread.call(lambda: opened.__exit__(None, None, None))


def null_seconds(request: MeasureRequest) -> float:
    """A time for a kernel: by its bytes, a little changed by its source.

    Equal requests get equal times on every machine, so that a run can be repeated.
    """
    graph = request.graph
    moved = sum(graph.types[name].bytes for name in (*graph.inputs, *graph.outputs))
    text = request.source.text if request.source is not None else "library"
    luck = hashlib.sha256(text.encode()).digest()[0] / 255
    return (NULL_LAUNCH_SECONDS + moved / NULL_BYTES_PER_SECOND) * (0.9 + 0.2 * luck)
