"""What a job timed besides its kernels: whole plans, and operators by themselves."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from service.api.context import ContextDep
from service.api.jobs import JobDep
from service.api.problems import told
from service.store import trials

router = APIRouter(tags=["jobs"])

_TIMED: Final[dict[str, Any]] = {
    "seconds": 0.0062,
    "low_seconds": 0.0061,
    "high_seconds": 0.0063,
    "failure": "",
    "contended": False,
}
_ROW: Final[dict[str, Any]] = {
    "labels": ["plan"],
    "kernels": 44,
    "predicted_seconds": 0.0059,
    "kernel_seconds": 0.0064,
    "whole": _TIMED,
    "kept": True,
    "differing": 0,
    "kernels_only_here": [],
}


class Timed(BaseModel):
    """A time with its 95 % interval; none of the three where it failed."""

    seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    failure: str
    contended: bool


class Foreign(BaseModel):
    """A kernel that the first partition does not have."""

    family: str
    nodes: list[str]


class Contestant(BaseModel):
    """A plan that was to be run whole.

    Attributes:
        labels: `plan` is the best partition by its kernels, `plan-2` the second best;
            `untuned`, `unfused` and `incumbent` are the cost model's own plan, the one
            without fusion and the one that was stored. Equal plans share a row.
        predicted_seconds: the cost model's sum; null where a kernel has no price.
        kernel_seconds: sum of the kernels' own runs; null where one has none.
        whole: its run as a whole; null where it took no part.
        kept: whether it won.
        differing: how many kernels the first row's plan does not have.
        kernels_only_here: the largest of those.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_ROW]})

    labels: list[str]
    kernels: int
    predicted_seconds: float | None
    kernel_seconds: float | None
    whole: Timed | None
    kept: bool
    differing: int
    kernels_only_here: list[Foreign]


class Operator(BaseModel):
    """What runs of operators by themselves take, equal ones together.

    Attributes:
        launches: the nodes of each launch.
        measured: the run with the default schedule; null where there was none.
    """

    launches: list[list[str]]
    family: str
    predicted_seconds: float | None
    measured: Timed | None


class Contest(BaseModel):
    """Whole plans side by side, the best by its kernels first; single operators."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "plans": [_ROW],
                    "operators": [
                        {
                            "launches": [["n0"], ["n4"]],
                            "family": "pointwise",
                            "predicted_seconds": 1.2e-5,
                            "measured": {**_TIMED, "seconds": 1.3e-5},
                        }
                    ],
                }
            ]
        }
    )

    plans: list[Contestant]
    operators: list[Operator]


@router.get(
    "/v1/jobs/{job_id}/contest",
    operation_id="getContest",
    summary="Which plans a job timed as wholes",
    responses=told(404, 422, 503),
)
def get_contest(job: JobDep, context: ContextDep) -> Contest:
    """Every partition that was run whole, and what each operator takes by itself.

    Both are empty before the job came so far.
    """
    with context.database.read() as session:
        judged = trials.last_told(session, job.id, "plan")
        apart = trials.last_told(session, job.id, "operators")
    return Contest(
        plans=[] if judged is None else judged.data.get("partitions", []),
        operators=[] if apart is None else apart.data["operators"],
    )
