"""The audit: who changed what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from service.api.context import ContextDep
from service.api.problems import told
from service.store import audit

router = APIRouter(tags=["service"])

_MAX_PAGE: Final = 200


class AuditBody(BaseModel):
    """Something that somebody did.

    Attributes:
        actor: name of the token, or `local` where none are in use.
    """

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    request_id: str
    details: dict[str, Any]


class AuditPage(BaseModel):
    """Some events, the newest first.

    Attributes:
        next: cursor of the following page; null at the end.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "events": [
                        {
                            "id": 17,
                            "at": "2026-11-29T12:00:00Z",
                            "actor": "build",
                            "action": "job.submit",
                            "subject": "019ac0f1d2c35e7a9b10",
                            "request_id": "3b1f0a",
                            "details": {"target": "cpu"},
                        }
                    ],
                    "next": None,
                }
            ]
        }
    )

    events: list[AuditBody]
    next: int | None


@router.get(
    "/v1/audit",
    operation_id="listAuditEvents",
    summary="Who changed what",
    responses=told(422, 503),
)
def list_events(
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 50,
    cursor: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> AuditPage:
    """Audit events, the newest first, page by page; needs the scope `admin`."""
    with context.database.read() as session:
        found = audit.page(session, before=cursor, limit=limit + 1)
    shown = [
        AuditBody(
            id=one.id,
            at=one.created_at,
            actor=one.draft.actor,
            action=one.draft.action,
            subject=one.draft.subject,
            request_id=one.draft.request_id,
            details=dict(one.draft.details),
        )
        for one in found[:limit]
    ]
    return AuditPage(
        events=shown, next=shown[-1].id if len(found) > limit and shown else None
    )
