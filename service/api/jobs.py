"""Tuning jobs: list, state, cancel, and events as they happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, ConfigDict

from service.api.access import actor
from service.api.context import Context, ContextDep
from service.api.problems import request_id, told
from service.api.schemas import JOB_EXAMPLE, JobBody, JobDetail
from service.errors import JobEnded, JobNotFound
from service.jobs.numbers import Number
from service.store import audit, events, jobs
from service.store.audit import AuditDraft
from service.store.events import Event
from service.store.jobs import Job, State

router = APIRouter(tags=["jobs"])

_MAX_PAGE: Final = 200


class JobPage(BaseModel):
    """Some jobs, the newest first.

    Attributes:
        next: cursor of the following page; null at the end.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"jobs": [JOB_EXAMPLE], "next": None}]}
    )

    jobs: list[JobBody]
    next: str | None


@router.get(
    "/v1/jobs",
    operation_id="listJobs",
    summary="List jobs",
    responses=told(422, 503),
)
def list_jobs(
    context: ContextDep,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(max_length=40)] = None,
) -> JobPage:
    """Jobs, the newest first, page by page."""
    with context.database.read() as session:
        found = jobs.page(session, state=state, before=cursor, limit=limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    return JobPage(
        jobs=[JobBody.of(job) for job in shown], next=shown[-1].id if more else None
    )


def existing_job(job_id: str, context: ContextDep) -> Job:
    """The job of the path.

    Raises:
        JobNotFound: there is none.
    """
    with context.database.read() as session:
        job = jobs.find(session, job_id)
    if job is None:
        raise JobNotFound(job_id, "no job has this id", hint="see /v1/jobs")
    return job


JobDep = Annotated[Job, Depends(existing_job)]


@router.get(
    "/v1/jobs/{job_id}",
    operation_id="getJob",
    summary="Read a job",
    responses=told(404, 422, 503),
)
def get_job(job: JobDep) -> JobDetail:
    """State and progress of a job, and the names of its submitter's model."""
    names = {id_: list(told) for id_, told in job.request.names.items()}
    return JobDetail(**JobBody.of(job).model_dump(), names=names)


@router.delete(
    "/v1/jobs/{job_id}",
    operation_id="cancelJob",
    summary="Cancel a job",
    status_code=202,
    responses=told(404, 409, 422, 503),
)
def cancel_job(job: JobDep, request: Request, context: ContextDep) -> JobBody:
    """End a queued job now, a running one within a second: its batch is stopped."""
    if not job.active:
        raise JobEnded(job.id, f"it has {job.state} already", hint="nothing is left")
    with context.database.write() as session:
        now = context.clock()
        changed = jobs.request_cancel(session, job.id, now=now)
        draft = AuditDraft(
            actor=actor(request),
            action="job.cancel",
            subject=job.id,
            request_id=request_id(request),
        )
        audit.record(session, draft, now=now)
    return JobBody.of(changed or job)


@router.get(
    "/v1/jobs/{job_id}/events",
    operation_id="streamJobEvents",
    summary="Follow a job",
    response_class=EventSourceResponse,
    responses={
        200: {
            "description": "Events",
            "content": {
                "text/event-stream": {
                    "example": 'id: 1\nevent: state\ndata: {"state": "queued"}\n\n'
                }
            },
        },
        **told(404, 422, 503),
    },
)
async def stream_events(
    job: JobDep,
    context: ContextDep,
    last_event_id: Annotated[Number, Header()] = 0,
    after: Annotated[Number, Query(description="start behind this event")] = 0,
) -> AsyncIterator[ServerSentEvent]:
    """Events `state, trial, resolve, plan, done`, from the first or the one told.

    A browser cannot send `Last-Event-ID` with its first request; `after` does the same.

    The stream ends after `done`. No thread is held while nothing happens.
    """
    number = max(last_event_id, after)
    while True:
        found, ended = await run_in_threadpool(_events_after, context, job.id, number)
        for event in found:
            number = event.number
            yield ServerSentEvent(
                raw_data=json.dumps(dict(event.data)),
                event=event.type,
                id=str(event.number),
            )
        if ended and not found:
            return
        if not found:
            await asyncio.sleep(context.settings.event_poll_seconds)


def _events_after(
    context: Context, job_id: str, number: int
) -> tuple[tuple[Event, ...], bool]:
    """New events of a job, and whether it ends with them."""
    with context.database.read() as session:
        job = jobs.find(session, job_id)
        found = events.of_job(session, job_id, after=number)
    return found, job is None or not job.active
