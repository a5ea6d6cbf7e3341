"""What a job tried: trials in pages and one by one, and its curve in few points."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from service.api.context import Context, ContextDep
from service.api.jobs import JobDep
from service.api.problems import told
from service.api.schemas import EXAMPLE_DIGEST
from service.api.thinning import places
from service.errors import JobNotFound
from service.jobs.numbers import Number
from service.store import measurements, trials
from service.store.events import Event
from service.store.jobs import Job
from service.store.trials import Wanted

router = APIRouter(tags=["jobs"])

MAX_PAGE: Final = 1000
MAX_POINTS: Final = 2000
_CHUNK: Final = 500

_TRIAL: Final[dict[str, Any]] = {
    "number": 7,
    "trial": 5,
    "at": "2026-11-29T12:00:03Z",
    "kernel": f"reduction:{EXAMPLE_DIGEST}",
    "family": "reduction",
    "schedule": {"threads": 256, "vector": 4},
    "seconds": 1.62e-05,
    "low_seconds": 1.5e-05,
    "high_seconds": 1.96e-05,
    "predicted_seconds": 2.1e-05,
    "contended": False,
    "failure": "",
    "message": "",
    "uses": 4,
    "best_seconds": 0.00627,
    "gap": 0.0,
}


class TrialBody(BaseModel):
    """One kernel, timed under one schedule.

    Attributes:
        number: of the event that told of it; a cursor, and the trial's address.
        trial: how many trials the job had made with it.
        uses: how often the kernel occurs in the model.
        best_seconds: time of the best plan after it.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_TRIAL]})

    number: int
    trial: int
    at: datetime
    kernel: str
    family: str
    schedule: dict[str, int]
    seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    predicted_seconds: float | None
    contended: bool
    failure: str
    message: str
    uses: int | None
    best_seconds: float | None
    gap: float | None


class TrialDetail(TrialBody):
    """A trial with every sample.

    Attributes:
        key: what makes two measurements comparable: kernel, schedule, toolchain.
        samples: every timed run, in seconds, in order; empty when it failed.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_TRIAL,
                    "key": EXAMPLE_DIGEST,
                    "samples": [1.61e-05, 1.62e-05],
                    "max_abs_error": 0.0,
                    "max_rel_error": 0.0,
                }
            ]
        }
    )

    key: str
    samples: list[float]
    max_abs_error: float | None
    max_rel_error: float | None


class TrialPage(BaseModel):
    """Some trials in order.

    Attributes:
        total: how many there are on all pages.
        failures: how many trials of the whole job failed, by kind.
        next: cursor of the following page; null at the end.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"trials": [_TRIAL], "total": 1, "failures": {}, "next": None}]
        }
    )

    trials: list[TrialBody]
    total: int
    failures: dict[str, int]
    next: int | None


class Mark(BaseModel):
    """A decision on the time line."""

    kind: str
    trial: int
    elapsed_seconds: float
    best_seconds: float | None
    text: str


class HistoryBody(BaseModel):
    """The curve of the best plan in few points; extremes and both ends are kept.

    Attributes:
        columns: what each number of a point is.
        after: number of the last event in it; the stream goes on from there.
        whole_seconds: measured whole runs: plan and unfused by turns; alone (the plan)
            and reference (ONNX Runtime) each alone in a process.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "total": 1,
                    "columns": ["trial", "elapsed_seconds", "best_seconds", "gap"],
                    "points": [[1, 0.4, 0.0067, 0.0]],
                    "marks": [],
                    "whole_seconds": {"plan": 0.0062},
                    "after": 7,
                }
            ]
        }
    )

    total: int
    columns: list[str]
    points: list[list[float | None]]
    marks: list[Mark]
    whole_seconds: dict[str, float]
    after: int


COLUMNS: Final = (
    *("trial", "elapsed_seconds", "best_seconds", "gap"),
    *("low_share", "high_share"),
)

TrialNumber = Annotated[Number, Path(description="number of its event")]


@router.get(
    "/v1/jobs/{job_id}/trials",
    operation_id="listTrials",
    summary="List what a job tried",
    response_model=TrialPage,
    responses={
        200: {
            "description": "A page of trials; as CSV, all of them",
            "content": {"text/csv": {"example": "number,trial\n7,5\n"}},
        },
        **told(404, 422, 503),
    },
)
def list_trials(  # noqa: PLR0913, PLR0917 - the parameters of the route
    job: JobDep,
    context: ContextDep,
    kernel: Annotated[str, Query(max_length=100)] = "",
    family: Annotated[str, Query(max_length=30)] = "",
    failure: Annotated[str, Query(max_length=20, description="kind, any, none")] = "",
    cursor: Annotated[Number, Query()] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    sample: Annotated[
        int | None, Query(ge=2, le=MAX_POINTS, description="evenly spaced instead")
    ] = None,
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
) -> Response | TrialPage:
    """Trials in order: a page, an even sample of all, or everything as CSV."""
    wanted = Wanted(kernel=kernel, family=family, failure=failure)
    if form == "csv":
        return _csv(context, job, wanted)
    with context.database.read() as session:
        total = trials.count(session, job.id, wanted)
        failures = trials.failures(session, job.id)
        if sample is not None:
            found = trials.sample(session, job.id, wanted, limit=sample)
        else:
            found = trials.page(session, job.id, wanted, after=cursor, limit=limit + 1)
    more = sample is None and len(found) > limit
    shown = found[:limit] if sample is None else found
    return TrialPage(
        trials=[TrialBody(**_facts(event)) for event in shown],
        total=total,
        failures=failures,
        next=shown[-1].number if more else None,
    )


@router.get(
    "/v1/jobs/{job_id}/trials/{number}",
    operation_id="getTrial",
    summary="Read a trial",
    responses=told(404, 422, 503),
)
def get_trial(job: JobDep, number: TrialNumber, context: ContextDep) -> TrialDetail:
    """One trial with all its samples."""
    with context.database.read() as session:
        event = trials.find(session, job.id, number)
        if event is None:
            raise JobNotFound(
                f"{job.id}/trials/{number}",
                "the job has no such trial",
                hint=f"see /v1/jobs/{job.id}/trials",
            )
        key = str(event.data.get("key", ""))
        stored = measurements.last_of_job(session, job.id, key)
    result: Mapping[str, Any] = {} if stored is None else stored.result
    return TrialDetail(
        **_facts(event),
        key=key,
        samples=[] if stored is None else list(stored.samples),
        max_abs_error=result.get("max_abs_error"),
        max_rel_error=result.get("max_rel_error"),
    )


@router.get(
    "/v1/jobs/{job_id}/history",
    operation_id="getJobHistory",
    summary="The curve of a job in few points",
    responses=told(404, 422, 503),
)
def get_history(
    job: JobDep,
    context: ContextDep,
    points: Annotated[int, Query(ge=10, le=MAX_POINTS)] = 800,
) -> HistoryBody:
    """Best time over trials and seconds, thinned, with the decisions between."""
    with context.database.read() as session:
        after = trials.last_number(session, job.id)
        curve = trials.curve(session, job.id, until=after)
        kept = places([seconds for _, seconds in curve], points)
        numbers = [curve[place][0] for place in kept]
        drawn = trials.chosen(session, job.id, numbers)
        decided = trials.decisions(session, job.id)
        total = trials.count(session, job.id, Wanted())
    return HistoryBody(
        total=total,
        columns=list(COLUMNS),
        points=[_point(event, job) for event in drawn],
        marks=[_mark(event, job) for event in decided if _decides(event)],
        whole_seconds=_whole(decided),
        after=after,
    )


def _elapsed(event: Event, job: Job) -> float:
    return max(0.0, (event.created_at - job.created_at).total_seconds())


def _point(event: Event, job: Job) -> list[float | None]:
    """The best plan after an event, in the order of `COLUMNS`."""
    data = event.data
    values = (
        data.get("trials", 0),
        _elapsed(event, job),
        data["best_seconds"],
        data.get("gap"),
        *_interval(event),
    )
    return [None if value is None else float(f"{value:.6g}") for value in values]


def _interval(event: Event) -> tuple[float | None, float | None]:
    """Ends of a trial's 95 % interval over its median."""
    names = ("seconds", "low_seconds", "high_seconds")
    seconds, low, high = (event.data.get(name) for name in names)
    is_sound = event.type == "trial" and not event.data.get("contended")
    if not is_sound or not (seconds and low and high):
        return None, None
    return float(low / seconds), float(high / seconds)


def _decides(event: Event) -> bool:
    return event.type == "plan" or (
        event.type == "resolve" and bool(event.data.get("changed"))
    )


def _mark(event: Event, job: Job) -> Mark:
    changed = event.data.get("changed")
    solved = f"partition solved again: {changed} kernels new"
    return Mark(
        kind=event.type,
        trial=int(event.data.get("trials", 0)),
        elapsed_seconds=_elapsed(event, job),
        best_seconds=event.data.get("best_seconds"),
        text="whole plan timed" if event.type == "plan" else solved,
    )


def _whole(events: Sequence[Event]) -> dict[str, float]:
    for event in reversed(events):
        if event.type == "plan" and isinstance(event.data.get("seconds"), dict):
            return {k: v for k, v in event.data["seconds"].items() if v}
    return {}


def _facts(event: Event) -> dict[str, Any]:
    data = event.data
    return {
        "number": event.number,
        "trial": data.get("trials", 0),
        "at": event.created_at,
        "kernel": data.get("kernel", ""),
        "family": data.get("family", ""),
        "schedule": data.get("schedule") or {},
        "seconds": data.get("seconds"),
        "low_seconds": data.get("low_seconds"),
        "high_seconds": data.get("high_seconds"),
        "predicted_seconds": data.get("predicted_seconds"),
        "contended": bool(data.get("contended")),
        "failure": data.get("failure", ""),
        "message": data.get("message", ""),
        "uses": data.get("uses"),
        "best_seconds": data.get("best_seconds"),
        "gap": data.get("gap"),
    }


def _csv(context: Context, job: Job, wanted: Wanted) -> Response:
    """All trials as a file, read in pieces so that none has to fit in memory."""

    def pieces() -> Iterator[str]:
        yield ",".join(TrialBody.model_fields) + "\n"
        after = 0
        while True:
            with context.database.read() as session:
                found = trials.page(session, job.id, wanted, after=after, limit=_CHUNK)
            if not found:
                return
            after = found[-1].number
            yield _lines(found)

    name = f"fuseplan-{job.id}-trials.csv"
    return StreamingResponse(
        pieces(),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _lines(events: Sequence[Event]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for event in events:
        facts = {**_facts(event), "at": event.created_at.isoformat()}
        facts["schedule"] = json.dumps(facts["schedule"], separators=(",", ":"))
        writer.writerow([_cell(facts[name]) for name in TrialBody.model_fields])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A cell that a spreadsheet never takes for a formula."""
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"}:
        return f"'{value}"
    return value
