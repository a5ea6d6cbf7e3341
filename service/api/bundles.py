"""Bundles: plans in one file, for machines that reach no service."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from service import bundle, signing
from service.api.access import actor
from service.api.bodies import media_type, refused_type
from service.api.caching import deliver
from service.api.context import Context, ContextDep
from service.api.hot import Content
from service.api.problems import request_id, told
from service.api.schemas import EXAMPLE_DIGEST, Evidence, Sha256
from service.jobs import bundling
from service.jobs.bundling import Selection, Taken
from service.store import audit
from service.store.audit import AuditDraft

router = APIRouter(tags=["bundles"])

_TYPES: Final = frozenset({bundle.MEDIA_TYPE, "application/octet-stream"})

BUNDLE_EXAMPLE: Final = "the bytes of a .tar.zst file"

_FILE: Final[dict[str, Any]] = {
    "schema": {"type": "string", "format": "binary"},
    "example": BUNDLE_EXAMPLE,
}


class ImportBody(BaseModel):
    """What an import changed.

    Attributes:
        keys: every key of the bundle.
        added: keys whose best plan is another one now.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"keys": [EXAMPLE_DIGEST], "added": [EXAMPLE_DIGEST]}]
        }
    )

    keys: list[Sha256]
    added: list[Sha256]


@router.get(
    "/v1/bundles",
    operation_id="exportBundle",
    summary="Export plans",
    response_class=Response,
    responses={
        200: {"description": "The bundle", "content": {bundle.MEDIA_TYPE: _FILE}},
        304: {"description": "The client has it"},
        **told(404, 413, 422, 503),
    },
)
def export_bundle(
    request: Request,
    context: ContextDep,
    key: Annotated[
        list[Sha256] | None,
        # The server reads no longer address than 64 KiB.
        Query(max_length=500, description="only these plans"),
    ] = None,
    target: Annotated[str | None, Query(max_length=100)] = None,
    evidence: Evidence = "analytic",
) -> Response:
    """Plans with all that they name, as a deterministic tar under Zstandard."""
    selection = Selection(
        keys=tuple(dict.fromkeys(key or ())),
        target=target,
        least=evidence,
        max_bytes=context.settings.max_bundle_bytes,
    )
    content = bundle.pack(
        bundling.collect(context.database, selection), key=context.settings.bundle_key
    )
    answer = Content(
        content=content,
        digest=hashlib.sha256(content).hexdigest(),
        media_type=bundle.MEDIA_TYPE,
        headers={
            "Cache-Control": "no-cache",
            "Content-Disposition": 'attachment; filename="fuseplan.tar.zst"',
        },
    )
    return deliver(request, answer)


@router.post(
    "/v1/bundles",
    operation_id="importBundle",
    summary="Import plans",
    status_code=202,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": dict.fromkeys(sorted(_TYPES), _FILE),
        }
    },
    responses=told(409, 413, 415, 422, 503),
)
async def import_bundle(request: Request, context: ContextDep) -> ImportBody:
    """Take plans over where they are better than what is stored."""
    kind = media_type(request)
    if kind not in _TYPES:
        raise refused_type(kind, f"send {bundle.MEDIA_TYPE}")
    data = await request.body()
    taken = await run_in_threadpool(_take, context, data)
    await run_in_threadpool(_record, context, request, taken)
    return ImportBody(keys=list(taken.keys), added=list(taken.added))


def _take(context: Context, data: bytes) -> Taken:
    settings = context.settings
    opened = bundle.unpack(
        data,
        max_bytes=settings.max_bundle_bytes,
        trusted=signing.trusted_keys(settings.bundle_trust),
    )
    return bundling.take_in(context.database, opened, clock=context.clock)


def _record(context: Context, request: Request, taken: Taken) -> None:
    draft = AuditDraft(
        actor=actor(request),
        action="bundle.import",
        subject=f"{len(taken.keys)} plans",
        request_id=request_id(request),
        details={"added": list(taken.added)[:100]},
    )
    with context.database.write() as session:
        audit.record(session, draft, now=context.clock())
