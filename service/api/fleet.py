"""What the fleet does: who waits, and what a device did with its time."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from cost_model.catalog import ALIASES, DEVICES
from service.api.context import ContextDep
from service.api.problems import told
from service.api.schemas import JOB_EXAMPLE, JobBody
from service.errors import DeviceNotFound
from service.store import heartbeats, timeline
from service.store.jobs import Job
from service.store.timeline import Step

router = APIRouter(tags=["devices"])

MAX_JOBS: Final = 200
MAX_STEPS: Final = 1500
"""Steps in one answer; of more, neighbours are told as one."""

SILENCE_SECONDS: Final = 15.0
"""A step takes 1 to 5 seconds: a pause of three steps means planning, a whole run, or
a worker that was lost."""

KILLED: Final = frozenset({"timeout", "runtime"})
"""Failures after which the process that measures is ended and started anew."""


class WaitingBody(BaseModel):
    """A job in a queue.

    Attributes:
        place: 1 is next; 0 runs.
        waited_seconds: from submission to now, or to its start.
        workers: living workers of the queue.
    """

    place: int
    queue: str
    waited_seconds: float
    workers: int
    job: JobBody


class QueueBody(BaseModel):
    """Every job that waits or runs, queue by queue."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "jobs": [
                        {
                            "place": 1,
                            "queue": "tune.cpu",
                            "waited_seconds": 12.5,
                            "workers": 1,
                            "job": JOB_EXAMPLE,
                        }
                    ]
                }
            ]
        }
    )

    jobs: list[WaitingBody]


class SpanBody(BaseModel):
    """A job's time on the device.

    Attributes:
        begin: seconds from the start of the timeline, or before it: negative.
        end: likewise; of a running job the present moment.
        waited_seconds: from submission to the start.
        killed: trials whose process was ended.
        contended: trials that other processes disturbed.
        failures: failed trials by kind.
    """

    job: str
    title: str
    state: str
    queue: str
    begin: float
    end: float
    waited_seconds: float
    trials: int
    contended: int
    killed: int
    failures: dict[str, int]


class StepBody(BaseModel):
    """Trials that were stored together.

    Attributes:
        job: place of the job in the list of jobs.
        begin: when the step before it was stored, in seconds from the start.
    """

    job: int
    begin: float
    end: float
    trials: int
    contended: int
    killed: int
    failed: int


class GapBody(BaseModel):
    """A pause of the device.

    Attributes:
        reason: `idle`, nothing waited; `waiting`, a job waited and no worker took it;
            `silent`, a job ran and stored nothing for a while.
        job: the job that ran or waited.
    """

    begin: float
    end: float
    reason: Literal["idle", "waiting", "silent"]
    job: str | None


class TimelineBody(BaseModel):
    """What a device did in a span of time.

    Attributes:
        since: start of the timeline; all other moments are seconds from it.
        busy_share: part of the span in which a job ran.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "since": "2026-11-29T12:00:00Z",
                    "seconds": 3600.0,
                    "busy_share": 0.41,
                    "jobs": [],
                    "steps": [],
                    "gaps": [],
                }
            ]
        }
    )

    since: datetime
    seconds: float
    busy_share: float
    jobs: list[SpanBody]
    steps: list[StepBody]
    gaps: list[GapBody]


@router.get(
    "/v1/queue",
    operation_id="getQueue",
    summary="Who waits for a device?",
    responses=told(422, 503),
)
def get_queue(context: ContextDep) -> QueueBody:
    """Running and waiting jobs of every queue, those that are next first."""
    now = context.clock()
    oldest = now - timedelta(seconds=context.settings.dead_after_seconds)
    with context.database.read() as session:
        found = timeline.queued(session)
        beats = heartbeats.all_workers(session)
    alive = Counter(beat.queue for beat in beats if beat.seen_at >= oldest)
    places: Counter[str] = Counter()
    lines = []
    for job in found:
        queue = job.request.queue
        places[queue] += job.state == "queued"
        until = job.started_at or now
        lines.append(
            WaitingBody(
                place=places[queue] if job.state == "queued" else 0,
                queue=queue,
                waited_seconds=max(0.0, (until - job.created_at).total_seconds()),
                workers=alive[queue],
                job=JobBody.of(job),
            )
        )
    return QueueBody(jobs=lines)


@router.get(
    "/v1/devices/{device_id}/timeline",
    operation_id="getDeviceTimeline",
    summary="What did a device do?",
    responses=told(404, 422, 503),
)
def get_timeline(
    device_id: str,
    context: ContextDep,
    hours: Annotated[float, Query(gt=0, le=24 * 366)] = 24.0,
) -> TimelineBody:
    """Jobs, their steps, and the gaps between, up to the present moment."""
    device = find_device(device_id)
    until = context.clock()
    since = until - timedelta(hours=hours)
    with context.database.read() as session:
        found = timeline.between(session, device, since, until, limit=MAX_JOBS)
        ran = [job for job in reversed(found) if job.started_at is not None]
        steps = timeline.steps(session, [job.id for job in ran])
    since = max(since, min((job.created_at for job in found), default=since))
    by_job = defaultdict(list)
    for step in steps:
        by_job[step.job].append(step)
    clock = _Clock(since=since, until=until)
    spans = [_span(job, by_job[job.id], clock) for job in ran]
    bodies = [
        body
        for place, job in enumerate(ran)
        for body in _steps(place, spans[place].begin, by_job[job.id], clock)
    ]
    return TimelineBody(
        since=since,
        seconds=clock.seconds,
        busy_share=_busy(spans, clock.seconds),
        jobs=spans,
        steps=_thinned(bodies),
        gaps=[*_silences(spans, bodies), *_gaps(spans, found, clock)],
    )


def find_device(device_id: str) -> str:
    """Id of a device of the catalogue, by id or alias.

    Raises:
        DeviceNotFound: there is none.
    """
    found = ALIASES.get(device_id, device_id)
    if found not in DEVICES:
        raise DeviceNotFound(
            device_id, "the catalogue has no such device", hint="see /v1/devices"
        )
    return found


class _Clock:
    """Moments as seconds from the start of a timeline."""

    def __init__(self, *, since: datetime, until: datetime) -> None:
        self._since = since
        self.seconds = max(0.0, (until - since).total_seconds())

    def at(self, moment: datetime | None) -> float:
        """Seconds from the start; the end, where there is no moment yet."""
        if moment is None:
            return self.seconds
        return (moment - self._since).total_seconds()


def _span(job: Job, steps: Sequence[Step], clock: _Clock) -> SpanBody:
    failures: Counter[str] = Counter()
    for step in steps:
        if step.failure:
            failures[step.failure] += step.trials
    assert job.started_at is not None, "only jobs that ran"
    return SpanBody(
        job=job.id,
        title=job.request.title,
        state=job.state,
        queue=job.request.queue,
        begin=clock.at(job.started_at),
        end=clock.at(job.finished_at),
        waited_seconds=max(0.0, (job.started_at - job.created_at).total_seconds()),
        trials=sum(step.trials for step in steps),
        contended=sum(step.trials for step in steps if step.contended),
        killed=_killed(failures),
        failures=dict(failures),
    )


def _killed(failures: Mapping[str, int]) -> int:
    return sum(n for kind, n in failures.items() if kind in KILLED)


def _steps(
    place: int, begin: float, steps: Sequence[Step], clock: _Clock
) -> list[StepBody]:
    """Steps of a job; each begins where the one before it was stored."""
    together: dict[float, list[Step]] = defaultdict(list)
    for step in steps:
        together[clock.at(step.at)].append(step)
    found = []
    for end, alike in together.items():
        failures = Counter({one.failure: one.trials for one in alike if one.failure})
        found.append(
            StepBody(
                job=place,
                begin=min(begin, end),
                end=end,
                trials=sum(one.trials for one in alike),
                contended=sum(one.trials for one in alike if one.contended),
                killed=_killed(failures),
                failed=failures.total(),
            )
        )
        begin = end
    return found


def _thinned(steps: Sequence[StepBody]) -> list[StepBody]:
    """At most so many steps: neighbours of one job become one."""
    every = -(-len(steps) // MAX_STEPS)
    if every <= 1:
        return list(steps)
    found: list[StepBody] = []
    for place, step in enumerate(steps):
        last = found[-1] if found else None
        if last is None or last.job != step.job or place % every == 0:
            found.append(step.model_copy())
            continue
        last.end = step.end
        for name in ("trials", "contended", "killed", "failed"):
            setattr(last, name, getattr(last, name) + getattr(step, name))
    return found


def _busy(spans: Sequence[SpanBody], seconds: float) -> float:
    covered = sum(end - begin for begin, end in _covered(spans, seconds))
    return min(1.0, covered / seconds) if seconds else 0.0


def _covered(spans: Sequence[SpanBody], seconds: float) -> list[tuple[float, float]]:
    """Times in which any job ran, in order, without overlap."""
    found: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        begin, end = max(0.0, span.begin), min(seconds, span.end)
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif begin < end:
            found.append((begin, end))
    return found


def _silences(spans: Sequence[SpanBody], steps: Sequence[StepBody]) -> list[GapBody]:
    ends: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        ends[step.job].append(step.end)
    found = []
    for place, span in enumerate(spans):
        moments = [span.begin, *ends[place], span.end]
        found += [
            GapBody(begin=a, end=b, reason="silent", job=span.job)
            for a, b in itertools.pairwise(moments)
            if b - a > SILENCE_SECONDS
        ]
    return found


def _gaps(
    spans: Sequence[SpanBody], jobs: Sequence[Job], clock: _Clock
) -> list[GapBody]:
    """Times between jobs, with the job that waited meanwhile, if one did."""
    covered = _covered(spans, clock.seconds)
    edges = [0.0, *(moment for pair in covered for moment in pair), clock.seconds]
    found = []
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if end - begin < 1.0:
            continue
        waiting = [
            job
            for job in jobs
            if clock.at(job.created_at) < end - 1.0
            and clock.at(job.started_at or job.finished_at) > begin
        ]
        first = min(waiting, key=lambda job: job.created_at, default=None)
        since = begin if first is None else max(begin, clock.at(first.created_at))
        if since - begin >= 1.0:
            found.append(GapBody(begin=begin, end=since, reason="idle", job=None))
        found.append(
            GapBody(
                begin=since,
                end=end,
                reason="idle" if first is None else "waiting",
                job=first and first.id,
            )
        )
    return found
