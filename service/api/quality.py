"""How well times are predicted, job by job and run by run: whether it drifts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from service.api.context import ContextDep
from service.api.devices import AccuracyBody, CalibrationBody, accuracy
from service.api.fleet import find_device
from service.api.problems import told
from service.store import accuracy as accuracy_store
from service.store import devices, events, timeline, trials
from service.store.jobs import Job
from service.store.trials import Wanted

router = APIRouter(tags=["devices"])

MAX_JOBS: Final = 60
SAMPLE: Final = 250
"""Trials by which one job's predictions are judged, evenly spaced."""

_ACCURACY: Final[dict[str, Any]] = {
    "runs": 140,
    "mean_relative_error": 0.18,
    "median_ratio": 1.04,
    "rank_correlation": 0.97,
}


class DecisionBody(BaseModel):
    """Whether fusing was right for a whole model: both ways were measured.

    Attributes:
        gain: time without fusion over time of the plan; above 1 fusing was right.
        contended: whether other processes disturbed either, so that it proves nothing.
    """

    plan_seconds: float
    unfused_seconds: float
    gain: float
    contended: bool


class JobQuality(BaseModel):
    """How well the kernels of one job were predicted."""

    job: str
    title: str
    plan_key: str
    at: datetime
    accuracy: AccuracyBody | None
    decision: DecisionBody | None


class RunQuality(BaseModel):
    """One run of `fuseplan accuracy`.

    Attributes:
        digest: of the numbers that predicted.
        summary: what it found, as the command prints it.
    """

    host: str
    digest: str
    at: datetime
    summary: dict[str, Any]


class QualityBody(BaseModel):
    """Everything that is known of predictions for a device, the oldest first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "device": "cpu",
                    "jobs": [
                        {
                            "job": "019ac0f1d2c35e7a9b10",
                            "title": "encoder.onnx",
                            "plan_key": "0" * 64,
                            "at": "2026-11-29T12:00:00Z",
                            "accuracy": _ACCURACY,
                            "decision": {
                                "plan_seconds": 0.0062,
                                "unfused_seconds": 0.0101,
                                "gain": 1.63,
                                "contended": False,
                            },
                        }
                    ],
                    "calibrations": [],
                    "runs": [],
                }
            ]
        }
    )

    device: str
    jobs: list[JobQuality]
    calibrations: list[CalibrationBody]
    runs: list[RunQuality]


@router.get(
    "/v1/devices/{device_id}/quality",
    operation_id="getPredictionQuality",
    summary="Do predictions drift?",
    responses=told(404, 422, 503),
)
def get_quality(
    device_id: str,
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=MAX_JOBS)] = 30,
) -> QualityBody:
    """Error, bias and rank of the newest jobs, with calibrations between them."""
    device = find_device(device_id)
    now = context.clock()
    with context.database.read() as session:
        found = timeline.between(
            session, device, datetime.min.replace(tzinfo=now.tzinfo), now, limit=limit
        )
        judged = [_job(session, job) for job in reversed(found)]
        fitted = devices.calibrations(session, device)
        runs = accuracy_store.runs(session, device, limit=limit)
    return QualityBody(
        device=device,
        jobs=[one for one in judged if one.accuracy or one.decision],
        calibrations=[
            CalibrationBody(digest=c.digest, host=c.host, created_at=c.created_at)
            for c in reversed(fitted[:limit])
        ],
        runs=[
            RunQuality(
                host=run.host,
                digest=run.digest,
                at=run.created_at,
                summary=dict(run.summary),
            )
            for run in runs
        ],
    )


def _job(session: Session, job: Job) -> JobQuality:
    sampled = trials.sample(session, job.id, Wanted(failure="none"), limit=SAMPLE)
    pairs = (
        (event.data.get("predicted_seconds"), event.data.get("seconds"))
        for event in sampled
    )
    whole = events.of_job(session, job.id, types=("plan",))
    return JobQuality(
        job=job.id,
        title=job.request.title,
        plan_key=job.request.plan_key,
        at=job.started_at or job.created_at,
        accuracy=accuracy([(p, m) for p, m in pairs if p and m]),
        decision=next(filter(None, (_decision(e.data) for e in reversed(whole))), None),
    )


def _decision(event: Mapping[str, Any]) -> DecisionBody | None:
    seconds = event.get("seconds")
    if not isinstance(seconds, dict):
        return None
    # A plan whose schedules were the first ones already is timed as the untuned one.
    winner = seconds.get(str(event.get("winner")))
    plan = winner or seconds.get("plan") or seconds.get("untuned")
    unfused = seconds.get("unfused")
    if not plan or not unfused:
        return None
    return DecisionBody(
        plan_seconds=plan,
        unfused_seconds=unfused,
        gain=unfused / plan,
        contended=bool(event.get("contended")),
    )
