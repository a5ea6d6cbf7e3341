"""A worker: one device, one queue, and a sign of life every few seconds."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Final

import structlog

from service.jobs.devices import Measuring
from service.jobs.engine import Engine
from service.jobs.locks import DeviceLock
from service.jobs.planning import Planner, queue_of, target_of
from service.jobs.tuning import TuneWorkflow
from service.settings import Settings
from service.store import Database, StoreUnavailable, devices, heartbeats
from service.store.devices import StoredDevice
from service.store.heartbeats import Heartbeat

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 8.0
"""How long a stopping worker waits for the batch in flight."""


class Worker:
    """Tunes what is queued for one device, in threads of this process.

    Args:
        clock: gives the present moment.
        open_runner: starts the process that measures on a device.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        planner: Planner,
        clock: Callable[[], datetime],
        open_runner: Callable[[str], AbstractContextManager[Measuring]],
    ) -> None:
        self._database = database
        self._clock = clock
        self.device = settings.device
        self.host = platform.node() or "localhost"
        self._target = target_of(self.device)
        self.queue = queue_of(self._target)
        self._lock = DeviceLock(settings.data_folder / "locks", self.device)
        workflow = TuneWorkflow(
            database=database,
            planner=planner,
            open_runner=lambda: open_runner(settings.device),
            clock=clock,
        )
        self._engine = Engine(
            url=settings.url,
            executor=self.name,
            queues=(self.queue,),
            run=workflow.run,
        )
        self._stopping = threading.Event()
        self._pulse = threading.Thread(target=self._beat_on, daemon=True)
        self._started_at = clock()

    @property
    def name(self) -> str:
        """Its executor id: unique, because of the lock, and stable."""
        return f"{self.host}/{self.device}"

    def start(self) -> None:
        """Take the device and begin to work.

        Raises:
            DeviceBusy: another worker has the device.
            StoreUnavailable: the database cannot be used.
        """
        self._lock.acquire()
        try:
            with self._database.write() as session:
                devices.put(session, self._offer())
            self._beat()
            self._engine.start()
        except BaseException:
            self._lock.release()
            raise
        self._pulse.start()
        log.info("worker started", worker=self.name, queue=self.queue)

    def stop(self) -> None:
        """Leave the work at its next step and give the device back."""
        self._stopping.set()
        self._engine.stop(patience_seconds=PATIENCE_SECONDS)
        self._pulse.join(HEARTBEAT_SECONDS * 2)
        try:
            with self._database.write() as session:
                heartbeats.remove(session, self.name)
        except StoreUnavailable as error:
            log.warning("heartbeat not removed", reason=error.reason)
        self._lock.release()
        log.info("worker stopped", worker=self.name)

    def _offer(self) -> StoredDevice:
        return StoredDevice(
            name=self.device,
            host=self.host,
            target=self._target.id,
            queues=(self.queue,),
            facts={"processor": platform.processor(), "system": platform.platform()},
            seen_at=self._clock(),
        )

    def _beat_on(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            try:
                self._beat()
            except StoreUnavailable as error:
                log.warning("no heartbeat", reason=error.reason)

    def _beat(self) -> None:
        with self._database.write() as session:
            heartbeats.beat(
                session,
                Heartbeat(
                    worker=self.name,
                    host=self.host,
                    pid=os.getpid(),
                    device=self.device,
                    queue=self.queue,
                    job=self._engine.job,
                    started_at=self._started_at,
                    seen_at=self._clock(),
                ),
            )
