"""A device whose work in flight can be stopped: what cancelling a job does."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from service.store import StoreUnavailable
from tuner.plan import Measurement
from tuner.runtime.requests import MeasureRequest, Measures, PlanRequest, PlanResult

LOOK_SECONDS: Final = 0.3
"""How often a thread looks whether the job was cancelled meanwhile."""


class Stopped(Exception):
    """Raised in place of a result once the job is cancelled."""


class Stoppable:
    """Measures until told to stop; then the measuring child is killed.

    Args:
        runner: what measures. If it has a `pid`, that process leads a group of its own.
        should_stop: whether the job was cancelled; asked in a thread.
    """

    def __init__(self, runner: Measures, should_stop: Callable[[], bool]) -> None:
        self._runner = runner
        self._should_stop = should_stop
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Look once, then begin to watch."""
        if self._should_stop():
            self._stopped.set()
        else:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Watch no longer."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def device_name(self) -> str:
        """What the device calls itself."""
        return self._runner.device_name

    @property
    def toolchain(self) -> str:
        """Compiler, driver and library versions behind the measurements."""
        return self._runner.toolchain

    def __getattr__(self, name: str) -> Any:
        """What the runner tells of its device."""
        return getattr(self._runner, name)

    def measure(self, request: MeasureRequest) -> Measurement:
        """Verify and time one kernel.

        Raises:
            Stopped: the job was cancelled before or meanwhile.
        """
        with self._in_flight():
            return self._runner.measure(request)

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Verify and time whole plans, interleaved.

        Raises:
            Stopped: the job was cancelled before or meanwhile.
        """
        with self._in_flight():
            return self._runner.measure_whole(request)

    @contextmanager
    def _in_flight(self) -> Iterator[None]:
        if self._stopped.is_set():
            raise Stopped
        pid = getattr(self._runner, "pid", None)
        with self._lock:
            self._pid = pid
        try:
            yield
        finally:
            with self._lock:
                self._pid = None
        if self._stopped.is_set():
            raise Stopped

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                stop = self._should_stop()
            except StoreUnavailable:
                continue  # the batch's own end will meet the same trouble
            if stop:
                self._stopped.set()
                self._kill()
                return

    def _kill(self) -> None:
        with self._lock:
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._pid, signal.SIGKILL)
