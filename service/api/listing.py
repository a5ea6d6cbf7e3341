"""The cache as a list: keys, what they stand for, and every plan they ever had."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict

from service.api.context import ContextDep
from service.api.problems import told
from service.api.schemas import EXAMPLE_DIGEST, Evidence, Sha256
from service.errors import PlanNotFound
from service.store import listing, pins, plans
from service.store.plans import PlanPointer

router = APIRouter(tags=["plans"])

_LINE: Final[dict[str, Any]] = {
    "key": EXAMPLE_DIGEST,
    "graph": EXAMPLE_DIGEST,
    "title": "encoder.onnx",
    "target": "cpu",
    "evidence": "measured",
    "digest": EXAMPLE_DIGEST,
    "revision": 2,
    "objective_seconds": 0.0107,
    "bound_seconds": 0.0106,
    "kernels": 61,
    "job": None,
    "created_at": "2026-11-29T12:00:00Z",
    "pinned": False,
}


class PlanLine(BaseModel):
    """A key with its best plan.

    Attributes:
        title: what the graph's first submitter called it.
        job: id of the job that found the plan.
        pinned: whether the plan stays as it is.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_LINE]})

    key: Sha256
    graph: Sha256
    title: str
    target: str
    evidence: Evidence
    digest: Sha256
    revision: int
    objective_seconds: float
    bound_seconds: float
    kernels: int
    job: str | None
    created_at: datetime
    pinned: bool


class PlanPage(BaseModel):
    """Some keys, the newest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"plans": [_LINE], "next": None}]}
    )

    plans: list[PlanLine]
    next: str | None


class RevisionBody(BaseModel):
    """A plan that was stored under a key at some time."""

    revision: int
    evidence: Evidence
    digest: Sha256
    seconds: float
    objective_seconds: float
    bound_seconds: float
    kernels: int
    job: str | None
    created_at: datetime


class Provenance(BaseModel):
    """What a key stands for, and every plan that it ever had.

    Attributes:
        parts: hash of each part of the key.
        served: digest of the plan that is given out, for each evidence.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": EXAMPLE_DIGEST,
                    "target": "cpu",
                    "graph": EXAMPLE_DIGEST,
                    "title": "encoder.onnx",
                    "parts": {"graph": EXAMPLE_DIGEST},
                    "options": {},
                    "served": {"analytic": EXAMPLE_DIGEST},
                    "revisions": [],
                }
            ]
        }
    )

    key: Sha256
    target: str
    graph: Sha256
    title: str
    parts: dict[str, str]
    options: dict[str, Any]
    served: dict[str, Sha256]
    revisions: list[RevisionBody]


@router.get(
    "/v1/plans",
    operation_id="listPlans",
    summary="List the cache",
    responses=told(422, 503),
)
def list_plans(
    context: ContextDep,
    target: Annotated[str, Query(max_length=100)] = "",
    graph: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str, Query(max_length=64)] = "",
) -> PlanPage:
    """Keys with a plan, the newest first, page by page."""
    with context.database.read() as session:
        found = listing.page(
            session, target=target, graph=graph, before=cursor, limit=limit + 1
        )
        best = plans.pointers(session, [one.key for one in found])
        pinned = pins.pinned(session, [one.key for one in found])
    shown = [one for one in found[:limit] if one.key in best]
    return PlanPage(
        plans=[
            PlanLine(
                key=one.key,
                graph=one.graph_hash,
                title=one.title,
                target=one.target,
                evidence=best[one.key].evidence,
                digest=best[one.key].digest,
                revision=best[one.key].revision,
                objective_seconds=best[one.key].objective_seconds,
                bound_seconds=best[one.key].bound_seconds,
                kernels=best[one.key].kernels,
                job=best[one.key].job,
                created_at=one.created_at,
                pinned=one.key in pinned,
            )
            for one in shown
        ],
        next=found[limit - 1].key if len(found) > limit else None,
    )


@router.get(
    "/v1/plans/{key}/revisions",
    operation_id="getPlanProvenance",
    summary="Where does a plan come from?",
    responses=told(404, 422, 503),
)
def get_provenance(
    key: Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="plan key")],
    context: ContextDep,
) -> Provenance:
    """Parts of the key, and its plans from the first to the one given out now."""
    with context.database.read() as session:
        identity = plans.identity(session, key)
        if identity is None:
            raise PlanNotFound(
                key,
                "nobody ever asked for this key",
                hint="hand the model in with POST /v1/plans",
                extra={"reason": "unknown"},
            )
        history = plans.history(session, key)
        served = {
            evidence: found.digest
            for evidence in plans.ORDER
            if (found := plans.pointer(session, key, (evidence,))) is not None
        }
        title = listing.title(session, identity.graph_hash)
    return Provenance(
        key=key,
        target=identity.target,
        graph=identity.graph_hash,
        title=title,
        parts=dict(identity.parts),
        options=dict(identity.options),
        served=served,
        revisions=[_revision(found) for found in history],
    )


def _revision(found: PlanPointer) -> RevisionBody:
    return RevisionBody(
        revision=found.revision,
        evidence=found.evidence,
        digest=found.digest,
        seconds=found.seconds,
        objective_seconds=found.objective_seconds,
        bound_seconds=found.bound_seconds,
        kernels=found.kernels,
        job=found.job,
        created_at=found.created_at,
    )
