"""The tune workflow: propose, measure, observe, store, until nothing is left to try.

Everything between two steps is a function of the job and of the steps' results, so the
workflow can be repeated after a crash: finished steps give their old results.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import structlog

from cost_model.device import base_of
from service.errors.problems import problem_of
from service.jobs.calibrated import is_calibrated, stored
from service.jobs.engine import TROUBLE
from service.jobs.planning import Planner
from service.jobs.session import (
    Tuning,
    open_tuning,
    stored_kernels,
    stored_measurements,
)
from service.jobs.stopping import Stoppable, Stopped
from service.store import Database, blobs, jobs, kernels, measurements, plans
from service.store.errors import BrokenReference
from service.store.events import EventDraft
from tuner.errors import TunerError
from tuner.runtime.requests import Measures

log = structlog.get_logger(__name__)

Json = dict[str, Any]
Ending = Literal["succeeded", "partial", "failed", "cancelled"]

Step = Callable[[str, Callable[[], Any]], Any]
"""Runs a function once, by name: repeated after a crash, it gives the old result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneWorkflow:
    """Does one job.

    Attributes:
        open_runner: starts the process that measures, for as long as one job lasts.
        clock: gives the present moment.
    """

    database: Database
    planner: Planner
    open_runner: Callable[[], AbstractContextManager[Measures]]
    clock: Callable[[], datetime]

    def run(self, job_id: str, step: Step) -> str:
        """Tune until the session ends, the budget is spent or a user cancels.

        Returns:
            The state in which the job ended.
        """
        with structlog.contextvars.bound_contextvars(job=job_id):
            return self._survive(job_id, step)

    def _survive(self, job_id: str, step: Step) -> str:
        try:
            return self._run(job_id, step)
        except TROUBLE:
            raise  # the job goes on when the database is back
        except Exception as error:
            # The top loop of a worker: a job may fail, its worker goes on.
            if not isinstance(error, TunerError):
                log.exception("job failed")
            told = problem_of(error, where=f"job {job_id}").document()
            return str(step("fail", lambda: self._end(job_id, "failed", error=told)))

    def _run(self, job_id: str, step: Step) -> str:
        begun = step("begin", lambda: self._begin(job_id))
        if begun["state"] != "running":
            return str(begun["state"])
        tuning = self._open(job_id, begun)
        with self.open_runner() as runner:
            while (batch := tuning.propose()) is not None:
                told = step("measure", self._measuring(tuning, batch, runner))
                if told["cancelled"]:
                    return str(step("cancel", lambda: self._end(job_id, "cancelled")))
                events = tuning.observe(batch, told["results"])
                step("store", self._storing(tuning, batch, told["results"], events))
        return str(step("finish", lambda: self._finish(tuning)))

    def _begin(self, job_id: str) -> Json:
        with self.database.write() as session:
            job = jobs.start(session, job_id, now=self.clock())
            if job is None:
                ended = jobs.find(session, job_id)
                return {"state": "cancelled" if ended is None else ended.state}
            until = measurements.last_id(session)
            stored = plans.pointer(session, job.request.plan_key, ("measured",))
        log.info("job begun", request_id=job.request.request_id)
        incumbent = None if stored is None else stored.digest
        return {"state": "running", "known_until": until, "incumbent": incumbent}

    def _open(self, job_id: str, begun: Json) -> Tuning:
        with self.database.read() as session:
            job = jobs.find(session, job_id)
            assert job is not None, "a begun job is stored"
            model = blobs.find(session, job.request.input_digest)
            known = measurements.known(
                session, base_of(job.request.target), until=begun["known_until"]
            )
            elsewhere = measurements.elsewhere(
                session, base_of(job.request.target), until=begun["known_until"]
            )
            numbers = None
            if is_calibrated(job.request.target):
                numbers = stored(session, job.request.target).numbers
            digest = begun["incumbent"]
            body = None if digest is None else blobs.find(session, digest)
        if model is None:
            raise BrokenReference(f"job {job_id}", "its model is not stored")
        incumbent = None if body is None else json.loads(body.content)
        return open_tuning(
            self.planner,
            job.request,
            model.content,
            known,
            incumbent,
            elsewhere,
            numbers,
        )

    def _measuring(
        self, tuning: Tuning, batch: Json, runner: Measures
    ) -> Callable[[], Json]:
        def measure() -> Json:
            with Stoppable(runner, lambda: self._is_cancelled(tuning.job.id)) as device:
                try:
                    results = tuning.measure(batch, device)
                except Stopped:
                    return {"cancelled": True, "results": []}
            return {"cancelled": False, "results": results}

        return measure

    def _is_cancelled(self, job_id: str) -> bool:
        with self.database.read() as session:
            job = jobs.find(session, job_id)
        return job is None or job.cancel_requested

    def _storing(
        self,
        tuning: Tuning,
        batch: Json,
        results: list[Json],
        events: tuple[EventDraft, ...],
    ) -> Callable[[], None]:
        def store() -> None:
            now = self.clock()
            job = tuning.job
            number = batch["index"] + 1
            with self.database.write() as session:
                if not jobs.advance(
                    session, job.id, batch=number, progress=tuning.progress()
                ):
                    return
                kernels.put(session, stored_kernels(events), now=now)
                measurements.add(
                    session, stored_measurements(job, batch, results), now=now
                )
                jobs.append(session, job.id, events, now=now)

        return store

    def _finish(self, tuning: Tuning) -> str:
        revision = None if tuning.keeps_incumbent else tuning.revision()
        is_whole = revision is not None or tuning.keeps_incumbent
        now = self.clock()
        job_id, key = tuning.job.id, tuning.job.plan_key
        with self.database.write() as session:
            if revision is not None:
                plans.publish(session, key, revision, now=now)
            best = plans.pointer(session, key)
            assert best is not None, "a job begins with an analytic plan"
            progress = tuning.progress()
            if revision is not None:
                progress = replace(progress, best_seconds=revision.seconds)
            jobs.settle(session, job_id, progress, kernels=best.kernels)
        reason = tuning.partial_reason
        summary = {"digest": best.digest, "evidence": best.evidence, "reason": reason}
        ending: Ending = "succeeded" if is_whole and not reason else "partial"
        return self._end(job_id, ending, summary=summary)

    def _end(
        self,
        job_id: str,
        ending: Ending,
        *,
        error: Json | None = None,
        summary: Json | None = None,
    ) -> str:
        with self.database.write() as session:
            job = jobs.finish(
                session, job_id, ending, now=self.clock(), error=error, summary=summary
            )
        state = ending if job is None else job.state
        log.info("job ended", state=state)
        return state
