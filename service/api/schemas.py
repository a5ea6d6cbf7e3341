"""Response models that several resources share."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.store.jobs import Cache, Job, State

EXAMPLE_DIGEST: Final = hashlib.sha256(b"fuseplan").hexdigest()

Sha256 = Annotated[
    str,
    Field(
        pattern="^[0-9a-f]{64}$",
        examples=[EXAMPLE_DIGEST],
    ),
]
Evidence = Literal["analytic", "compiled", "measured"]


class ProgressBody(BaseModel):
    """How far a job is."""

    trials: int
    best_seconds: float | None
    gap: float | None
    remaining_seconds: float | None
    kernels: int | None = None


JOB_EXAMPLE: Final[dict[str, Any]] = {
    "id": "019ac0f1d2c35e7a9b10",
    "state": "running",
    "plan_key": EXAMPLE_DIGEST,
    "progress": {
        "trials": 12,
        "best_seconds": 0.0107,
        "gap": 0.02,
        "remaining_seconds": 31.5,
        "kernels": 61,
    },
    "error": None,
    "created_at": "2026-11-29T12:00:00Z",
    "finished_at": None,
    "started_at": "2026-11-29T12:00:01Z",
    "target": "cpu",
    "title": "encoder.onnx",
    "budget_seconds": 60.0,
    "budget_trials": 400,
    "priority": 100,
    "cache": "warm",
    "partitions": 3,
    "cancel_requested": False,
}


class JobBody(BaseModel):
    """A tuning job."""

    model_config = ConfigDict(json_schema_extra={"examples": [JOB_EXAMPLE]})

    id: str
    state: State
    plan_key: Sha256
    progress: ProgressBody
    error: dict[str, Any] | None
    created_at: datetime
    finished_at: datetime | None
    started_at: datetime | None
    target: str
    title: str
    budget_seconds: float
    budget_trials: int
    priority: int
    cache: Cache
    partitions: int
    cancel_requested: bool

    @classmethod
    def of(cls, job: Job) -> JobBody:
        """The job as HTTP tells it."""
        request, progress = job.request, job.progress
        return cls(
            id=job.id,
            state=job.state,
            plan_key=request.plan_key,
            progress=ProgressBody(
                trials=progress.trials,
                best_seconds=progress.best_seconds,
                gap=progress.gap,
                remaining_seconds=progress.remaining_seconds,
                kernels=progress.kernels,
            ),
            error=None if job.error is None else dict(job.error),
            created_at=job.created_at,
            finished_at=job.finished_at,
            started_at=job.started_at,
            target=request.target,
            title=request.title,
            budget_seconds=request.budget_seconds,
            budget_trials=request.budget_trials,
            priority=request.priority,
            cache=request.cache,
            partitions=request.partitions,
            cancel_requested=job.cancel_requested,
        )


class JobDetail(JobBody):
    """A tuning job with the way back to names.

    Attributes:
        names: canonical id -> names in the model that was handed in.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**JOB_EXAMPLE, "names": {"n0": ["relu"]}}]}
    )

    names: dict[str, list[str]]
