"""Changes to the cache by hand: keep a plan as it is, or give it out no more."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from service.api.access import actor
from service.api.context import Context, ContextDep
from service.api.problems import request_id, told
from service.api.schemas import EXAMPLE_DIGEST, Sha256
from service.errors import PlanNotFound, PlanPinned
from service.store import audit, pins, plans
from service.store.audit import AuditDraft

router = APIRouter(tags=["plans"])

Key = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="plan key")]

_PIN: Final[dict[str, Any]] = {
    "key": EXAMPLE_DIGEST,
    "pinned": True,
    "actor": "release",
    "at": "2026-11-29T12:00:00Z",
}


class PinBody(BaseModel):
    """Whether a key is pinned, by whom and since when."""

    model_config = ConfigDict(json_schema_extra={"examples": [_PIN]})

    key: Sha256
    pinned: bool
    actor: str | None
    at: datetime | None


class EvictedBody(BaseModel):
    """A key whose plans are given out no more.

    Attributes:
        plans: how many there were, one for each evidence.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"key": EXAMPLE_DIGEST, "plans": 2}]}
    )

    key: Sha256
    plans: int


@router.get(
    "/v1/plans/{key}/pin",
    operation_id="getPin",
    summary="Is a plan pinned?",
    responses=told(404, 422, 503),
)
def get_pin(key: Key, context: ContextDep) -> PinBody:
    """Whether the plan of a key stays as it is."""
    with context.database.read() as session:
        _known(session, key)
        return _pin(session, key)


@router.put(
    "/v1/plans/{key}/pin",
    operation_id="pinPlan",
    summary="Keep a plan as it is",
    responses=told(404, 422, 503),
)
def put_pin(key: Key, request: Request, context: ContextDep) -> PinBody:
    """No better plan replaces it and nobody evicts it, until it is let go."""
    now = context.clock()
    with context.database.write() as session:
        if plans.pointer(session, key) is None:
            raise _unknown(key, "it has no plan that could be kept")
        pins.pin(session, key, actor=actor(request), now=now)
        _record(context, session, request, action="plan.pin", key=key)
        return _pin(session, key)


@router.delete(
    "/v1/plans/{key}/pin",
    operation_id="unpinPlan",
    summary="Let a pinned plan go",
    responses=told(404, 422, 503),
)
def delete_pin(key: Key, request: Request, context: ContextDep) -> PinBody:
    """Better plans replace it again; letting go twice is no mistake."""
    with context.database.write() as session:
        _known(session, key)
        if pins.unpin(session, key):
            _record(context, session, request, action="plan.unpin", key=key)
        return _pin(session, key)


@router.delete(
    "/v1/plans/{key}",
    operation_id="evictPlan",
    summary="Evict a plan",
    responses=told(404, 409, 422, 503),
)
def evict_plan(key: Key, request: Request, context: ContextDep) -> EvictedBody:
    """Lookups miss with the reason `evicted` until the model is handed in again."""
    with context.database.write() as session:
        if pins.pinned(session, (key,)):
            raise PlanPinned(
                f"plan {key}",
                "it is pinned, so that it stays",
                hint=f"let it go first: DELETE /v1/plans/{key}/pin",
            )
        gone = plans.evict(session, key)
        if not gone:
            raise _unknown(key, "it has no plan that could be evicted")
        _record(context, session, request, action="plan.evict", key=key)
    context.places.forget(key)
    return EvictedBody(key=key, plans=gone)


def _known(session: Session, key: str) -> None:
    if plans.identity(session, key) is None:
        raise _unknown(key, "nobody ever asked for this key")


def _unknown(key: str, why: str) -> PlanNotFound:
    return PlanNotFound(
        key,
        why,
        hint="hand the model in with POST /v1/plans",
        extra={"reason": "unknown"},
    )


def _pin(session: Session, key: str) -> PinBody:
    found = pins.pinned(session, (key,)).get(key)
    return PinBody(
        key=key,
        pinned=found is not None,
        actor=found and found.actor,
        at=found and found.created_at,
    )


def _record(
    context: Context, session: Session, request: Request, *, action: str, key: str
) -> None:
    draft = AuditDraft(
        actor=actor(request),
        action=action,
        subject=key,
        request_id=request_id(request),
    )
    audit.record(session, draft, now=context.clock())
