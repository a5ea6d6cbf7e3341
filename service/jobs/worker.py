"""A worker: one device, one queue, and a sign of life every few seconds."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Final

import structlog

from service.errors import DeviceBusy
from service.jobs.attempts import Attempts
from service.jobs.engine import TROUBLE, VERSION, Engine
from service.jobs.locks import DeviceLock, NameLock, process_lives
from service.jobs.planning import Planner, queue_of, target_of
from service.jobs.tuning import TuneWorkflow
from service.settings import Settings
from service.store import Database, StoreUnavailable, devices, heartbeats, jobs
from service.store.devices import StoredDevice
from service.store.heartbeats import Heartbeat
from tuner.runtime.requests import Measures

log = structlog.get_logger(__name__)

BEATS_PER_ROUND: Final = 3
"""Heartbeats between two looks at what other workers left."""

FAR_PATIENCE: Final = 3
"""A worker of another host is dead when it is silent for so many times the time that
suffices on this host, where its process would be seen."""

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
        open_runner: Callable[[str], AbstractContextManager[Measures]],
    ) -> None:
        self._database = database
        self._clock = clock
        self.device = settings.device
        self._beat_seconds = settings.heartbeat_seconds
        self._dead_after = timedelta(seconds=settings.dead_after_seconds)
        self.host = platform.node() or "localhost"
        self._target = target_of(self.device)
        self.queue = queue_of(self._target)
        self._lock = DeviceLock(settings.data_folder / "locks", self.device)
        self._name_lock = NameLock(database.claim, self.name)
        # One worker of a queue at a time, on this host and on all of them.
        renewal = f"renewal {self.queue}"
        self._renewal_locks = (
            DeviceLock(settings.data_folder / "locks", renewal),
            NameLock(database.claim, renewal),
        )
        workflow = TuneWorkflow(
            database=database,
            planner=planner,
            open_runner=lambda: open_runner(settings.device),
            clock=clock,
        )
        self._attempts = Attempts(database=database, clock=clock)
        self._engine = Engine(
            url=settings.url,
            executor=self.name,
            queues=(self.queue,),
            run=workflow.run,
            attempts=self._attempts,
        )
        self._stopping = threading.Event()
        self._pulse = threading.Thread(target=self._beat_on, daemon=True)
        self._started_at = clock()
        # Since when no heartbeat of its own was late. Before, others may have seemed
        # silent because this worker, or the database, stood still.
        self._punctual_since = self._started_at
        self._beat_at = self._started_at

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
            self._name_lock.acquire()
            with self._database.write() as session:
                devices.put(session, self._offer())
            self._beat()
            self._engine.start()
        except BaseException:
            self._name_lock.release()
            self._lock.release()
            raise
        self._pulse.start()
        log.info("worker started", worker=self.name, queue=self.queue)

    def stop(self) -> None:
        """Leave the work at its next step and give the device back."""
        self._stopping.set()
        self._engine.stop(patience_seconds=PATIENCE_SECONDS)
        self._pulse.join(PATIENCE_SECONDS)
        try:
            with self._database.write() as session:
                heartbeats.remove(session, self.name)
        except StoreUnavailable as error:
            log.warning("heartbeat not removed", reason=error.reason)
        self._name_lock.release()
        self._lock.release()
        log.info("worker stopped", worker=self.name)

    def _offer(self) -> StoredDevice:
        return StoredDevice(
            name=self.device,
            host=self.host,
            target=self._target.id,
            queues=(self.queue,),
            facts={
                "processor": platform.processor(),
                "system": platform.platform(),
                "workflow": VERSION,
            },
            seen_at=self._clock(),
        )

    def _beat_on(self) -> None:
        beats = 0
        while not self._stopping.wait(self._beat_seconds):
            beats += 1
            try:
                self._beat()
                if beats % BEATS_PER_ROUND == 1:
                    self._look_around()
            except TROUBLE as error:
                reason = getattr(error, "reason", "unreachable")
                log.warning("no heartbeat", reason=reason)

    def _look_around(self) -> None:
        """Take up what dead workers left, and end what was given up."""
        with self._database.read() as session:
            beats = heartbeats.all_workers(session)
            running = jobs.page(session, state="running", limit=1000)
        alive = [beat for beat in beats if self._lives(beat)]
        living = frozenset(beat.worker for beat in alive)
        for job in self._engine.adopt(living):
            log.warning("job taken over from a dead worker", job=job)
        self._renew(living)
        # Whoever lives ends the job that it works on.
        worked_on = {beat.job for beat in alive} | {self._engine.job}
        mine = tuple(
            job.id
            for job in running
            if job.request.queue == self.queue and job.id not in worked_on
        )
        for job in self._engine.given_up(mine):
            self._attempts.give_up(job)

    def _lives(self, beat: Heartbeat) -> bool:
        """Whether a worker's jobs are its own still.

        On this host its process says so, however seldom it gets the processor. Else
        its silence counts, but only while this worker was never late itself.
        """
        near = beat.host == self.host
        if near and process_lives(beat.pid, beat.started_at):
            return True
        silent = self._clock() - max(beat.seen_at, self._punctual_since)
        return silent <= self._dead_after * (1 if near else FAR_PATIENCE)

    def _renew(self, living: frozenset[str]) -> None:
        """Begin jobs of older versions anew that no living worker can take up."""
        if not self._engine.outdated():
            return
        with contextlib.ExitStack() as held:
            try:
                for lock in self._renewal_locks:
                    lock.acquire()
                    held.callback(lock.release)
            except DeviceBusy:
                return
            with self._database.read() as session:
                offers = devices.offered(session)
            others = [
                one.facts.get("workflow")
                for one in offers
                if self.queue in one.queues
                and f"{one.host}/{one.name}" in living - {self.name}
            ]
            for job, version in self._engine.outdated():
                # Who does not say its version may be of any older one.
                if version not in others and None not in others:
                    self._renew_one(job, version)

    def _renew_one(self, job: str, version: str) -> None:
        with self._database.write() as session:
            found = jobs.find(session, job)
            if found is None or not found.active or found.request.queue != self.queue:
                return
            found = jobs.begin_anew(session, job, now=self._clock())
        if found is not None and found.active:
            self._engine.begin_anew(job, self.queue)
            log.warning("job of an older version begins anew", job=job, was=version)

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
        now = self._clock()
        if now - self._beat_at > self._dead_after:
            self._punctual_since = now
        self._beat_at = now
