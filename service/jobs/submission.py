"""From a request to an answer: look up first, plan if needed, queue if asked."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Protocol

from sqlalchemy.orm import Session

from service.errors import IdempotencyMismatch
from service.jobs.calibrated import is_calibrated, settled
from service.jobs.planning import (
    Outline,
    Planning,
    Question,
    first_progress,
    queue_of,
)
from service.settings import Settings
from service.store import Database, audit, blobs, graphs, idempotency, jobs, plans
from service.store.audit import AuditDraft
from service.store.graphs import StoredGraph
from service.store.idempotency import Repeated
from service.store.jobs import NORMAL_PRIORITY, Cache, Job, JobRequest
from service.store.plans import StoredPlan
from service.store.values import Blob, PlanRevision
from tuner.search.stages import PARTITIONS

Mode = Literal["analytic", "tuned"]


class Queue(Protocol):
    """Where jobs are put for a worker to find."""

    def enqueue(self, session: Session, job: str, queue: str, *, priority: int) -> None:
        """Queue a job in the caller's transaction."""

    def require(self, session: Session, queue: str) -> None:
        """Raise `WorkerUnavailable` when no worker ever served a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question, and how much may be spent on it.

    Attributes:
        title: how the submitter calls the model, for people only.
        priority: of the jobs that wait, the one with the smallest number is next.
        cache: how the caches are before every launch that a job times.
        partitions: how many distinct partitions a job runs whole, at most.
        repeat_key: the submitter's key for this request, made his own; empty is none.
        actor: who asks.
        request_id: the request that asks.
    """

    question: Question
    mode: Mode
    budget_seconds: float
    budget_trials: int
    title: str = ""
    priority: int = NORMAL_PRIORITY
    cache: Cache = "warm"
    partitions: int = PARTITIONS
    repeat_key: str = ""
    actor: str = ""
    request_id: str = ""

    @property
    def fingerprint(self) -> str:
        """Identity of all that is asked: what a repeated request must repeat."""
        told: list[object] = [
            self.mode,
            self.budget_seconds,
            self.budget_trials,
            self.priority,
        ]
        if self.cache != "warm":  # what was asked before there was a choice is the same
            told.append(self.cache)
        if self.partitions != PARTITIONS:
            told.append(self.partitions)
        text = json.dumps([body_fingerprint(self.question), *told])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a submitter gets.

    Attributes:
        names: canonical id -> names in the model that was handed in.
        job: the job that tunes it, if one does.
        cached: whether the plan was stored before.
    """

    plan: StoredPlan
    names: Mapping[str, list[str]]
    job: Job | None
    cached: bool

    @property
    def is_tuning(self) -> bool:
        """Whether a job may still find something better."""
        return self.job is not None and self.job.active

    @property
    def state(self) -> str:
        """State of the job that tunes it, or `ready`."""
        return "ready" if self.job is None else self.job.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is remembered of a request body: enough to answer without reading it."""

    key: str
    names: Mapping[str, list[str]]
    outline: Outline


class Submissions:
    """Answers submissions; safe to use from many threads.

    Args:
        clock: gives the present moment.
        new_id: gives an id that sorts by its moment.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        planner: Planning,
        queue: Queue,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._database = database
        self._planner = planner
        self._queue = queue
        self._clock = clock
        self._new_id = new_id
        self._memo = Memo(settings.memo_entries)
        self._flights = Flights()

    def submit(self, ask: Ask) -> Answer:
        """Answer a question from the store, or plan it and store the plan.

        Raises:
            TunerError: the model, target or an option is refused.
            StoreUnavailable: the database cannot be used.
            WorkerUnavailable: nobody can tune for this target.
        """
        # Of what was sent: `@latest` may mean another one later. It hashes the model.
        said = ask.fingerprint if ask.repeat_key else ""
        ask = replace(ask, question=self._settled(ask.question))
        known = self._memo.get(body_fingerprint(ask.question))
        if known is None:
            known = self._read(ask)
        if ask.repeat_key:
            repeated = self._repeated(ask.repeat_key, said, known)
            if repeated is not None:
                return repeated
        with self._flights.alone(known.key):
            answer = self._stored(ask, known) or self._planned(ask, known)
        if ask.repeat_key:
            self._remember(ask.repeat_key, said, answer)
        return answer

    def at_once(self, ask: Ask) -> Answer | None:
        """The answer to what was read before and is stored: no planner is waited for.

        Raises:
            UnknownTarget: there is no such calibration.
            StoreUnavailable: the database cannot be used.
        """
        if ask.repeat_key:
            return None
        ask = replace(ask, question=self._settled(ask.question))
        known = self._memo.get(body_fingerprint(ask.question))
        return None if known is None else self._stored(ask, known)

    def analytic(self, question: Question) -> PlanRevision:
        """The analytic plan of a question that nobody asks to be stored."""
        return self._planner.plan(self._settled(question))

    def _settled(self, question: Question) -> Question:
        """A question with the numbers that its target's name stands for."""
        if not is_calibrated(question.target):
            return question
        with self._database.read() as session:
            return settled(session, question)

    def _read(self, ask: Ask) -> Known:
        outline = self._planner.outline(ask.question)
        known = Known(key=outline.key, names=outline.names, outline=outline)
        self._memo.put(body_fingerprint(ask.question), known)
        return known

    def _repeated(self, repeat_key: str, said: str, known: Known) -> Answer | None:
        """The answer to the first request with this key, as things stand now."""
        with self._database.read() as session:
            first = idempotency.find(session, repeat_key, now=self._clock())
            if first is None:
                return None
            plan = plans.find(session, first.plan_key)
            job = jobs.find(session, first.job) if first.job else None
        if first.fingerprint != said:
            raise IdempotencyMismatch(
                "header Idempotency-Key",
                "it came with another request before",
                hint="send a new key with a new request",
            )
        if plan is None:
            return None
        return Answer(plan=plan, names=known.names, job=job, cached=True)

    def _remember(self, repeat_key: str, said: str, answer: Answer) -> None:
        first = Repeated(
            key_hash=repeat_key,
            fingerprint=said,
            plan_key=answer.plan.pointer.key,
            job=None if answer.job is None else answer.job.id,
        )
        with self._database.write() as session:
            idempotency.remember(session, first, now=self._clock())

    def refreshed(self, answer: Answer) -> Answer:
        """The same answer as things stand now."""
        if answer.job is None:
            return answer
        with self._database.read() as session:
            job = jobs.find(session, answer.job.id)
            plan = plans.find(session, answer.plan.pointer.key)
        running = job if job is not None and job.active else None
        return Answer(
            plan=plan or answer.plan, names=answer.names, job=running, cached=False
        )

    def _stored(self, ask: Ask, known: Known) -> Answer | None:
        """The answer that the store alone can give."""
        with self._database.read() as session:
            plan = plans.find(session, known.key)
            if plan is None:
                return None
            job = jobs.active(session, known.key)
        tuned = plan.pointer.evidence == "measured"
        if ask.mode == "analytic" or tuned or job is not None:
            return Answer(plan=plan, names=known.names, job=job, cached=True)
        return None

    def _planned(self, ask: Ask, known: Known) -> Answer:
        outline = known.outline
        queue = None
        if ask.mode == "tuned":
            queue = queue_of(ask.question.base)
            with self._database.read() as session:
                self._queue.require(session, queue)
        revision = self._planner.plan(ask.question)
        now = self._clock()
        with self._database.write() as session:
            graphs.put(session, _graph(outline, ask.title, now))
            plans.register(session, outline.identity, now=now)
            plans.publish(session, known.key, revision, now=now)
            if queue is not None:
                model = _input(ask.question)
                blobs.put(session, (model,), now=now)
                request = self._request(ask, outline, queue, model.digest)
                progress = first_progress(revision)
                made = jobs.create(session, request, now=now, progress=progress)
                if made is not None:
                    self._queue.enqueue(session, made.id, queue, priority=ask.priority)
                    audit.record(session, _submitted(ask, made), now=now)
            plan = plans.find(session, known.key)
            job = jobs.active(session, known.key)
        assert plan is not None, "a published plan can be found"
        return Answer(plan=plan, names=known.names, job=job, cached=False)

    def _request(
        self, ask: Ask, outline: Outline, queue: str, input_digest: str
    ) -> JobRequest:
        return JobRequest(
            id=self._new_id(),
            plan_key=outline.key,
            graph_hash=outline.identity.graph_hash,
            target=outline.identity.target,
            queue=queue,
            title=ask.title,
            input_digest=input_digest,
            input_form=ask.question.form,
            options=ask.question.options,
            names=outline.names,
            budget_seconds=ask.budget_seconds,
            budget_trials=ask.budget_trials,
            priority=ask.priority,
            cache=ask.cache,
            partitions=ask.partitions,
            request_id=ask.request_id,
        )


class Memo:
    """The last request bodies and their keys, in this process."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, fingerprint: str) -> Known | None:
        """What is known of a body, and mark it as used."""
        with self._lock:
            known = self._known.get(fingerprint)
            if known is not None:
                self._known.move_to_end(fingerprint)
            return known

    def put(self, fingerprint: str, known: Known) -> None:
        """Remember a body; the one that was not used for longest is forgotten."""
        with self._lock:
            self._known[fingerprint] = known
            self._known.move_to_end(fingerprint)
            while len(self._known) > self._entries:
                self._known.popitem(last=False)


class Flights:
    """One planner per key: equal requests wait for the first one's plan."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Hold a key; others that want it wait."""
        with self._lock:
            lock, waiting = self._flying.get(key, (threading.Lock(), 0))
            self._flying[key] = (lock, waiting + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, waiting = self._flying.pop(key)
                if waiting > 1:
                    self._flying[key] = (lock, waiting - 1)


def body_fingerprint(question: Question) -> str:
    """Identity of a request's bytes: equal bytes have equal keys and names."""
    head: dict[str, Any] = {
        "form": question.form,
        "target": question.target,
        "options": question.options,
    }
    hashed = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    hashed.update(b"\0")
    hashed.update(question.data)
    return hashed.hexdigest()


def _input(question: Question) -> Blob:
    types = {"onnx": "application/onnx", "json": "application/json"}
    return Blob.of(question.data, types[question.form], public=False)


def _graph(outline: Outline, title: str, now: datetime) -> StoredGraph:
    return StoredGraph(
        hash=outline.identity.graph_hash,
        title=title,
        nodes=outline.nodes,
        tensors=outline.tensors,
        created_at=now,
    )


def _submitted(ask: Ask, job: Job) -> AuditDraft:
    return AuditDraft(
        actor=ask.actor,
        action="job.submit",
        subject=job.id,
        request_id=ask.request_id,
        details={"plan_key": job.request.plan_key, "target": job.request.target},
    )
