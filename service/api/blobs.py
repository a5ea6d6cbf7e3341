"""Content-addressed, immutable bytes: plan bodies, kernel sources."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from service.api.caching import deliver
from service.api.context import ContextDep
from service.api.hot import Content
from service.api.problems import told
from service.errors import BlobNotFound
from service.store import blobs
from service.store.plans import BODY_TYPE

router = APIRouter(tags=["blobs"])

Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256")]

_BINARY: Final = {"type": "string", "format": "binary"}
_CONTENT: Final[dict[str, Any]] = {
    BODY_TYPE: {
        "schema": {"type": "object"},
        "example": {"schema": "fuseplan.plan/1", "kernels": []},
    },
    "text/x-opencl": {
        "schema": {"type": "string"},
        "example": "__kernel void k0(__global const float* x)",
    },
    "text/x-cuda": {
        "schema": {"type": "string"},
        "example": "__global__ void k0(const float* x)",
    },
    "application/octet-stream": {"schema": _BINARY, "example": "a compiled kernel"},
}
"""What blobs are: plan bodies, kernel sources, compiled kernels."""

_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The bytes; they never change", "content": _CONTENT},
    304: {"description": "The client has them"},
    **told(404, 422, 503),
}


@router.get(
    "/v1/blobs/sha256/{digest}",
    operation_id="getBlob",
    summary="Read a blob",
    response_class=Response,
    responses=_RESPONSES,
)
def get_blob(digest: Digest, request: Request, context: ContextDep) -> Response:
    """Bytes under their SHA-256; any cache may keep them for ever."""
    with context.database.read() as session:
        blob = blobs.find(session, digest)
    if blob is None or not blob.public:
        raise BlobNotFound(
            digest, "no blob of this digest is stored", hint="look the plan up again"
        )
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    answer = Content(
        content=blob.content,
        digest=digest,
        media_type=blob.media_type,
        headers=headers,
    )
    context.hot.put(request.url.path, request.scope["query_string"], answer)
    return deliver(request, answer)


@router.head(
    "/v1/blobs/sha256/{digest}",
    operation_id="headBlob",
    summary="Is a blob stored?",
    response_class=Response,
    responses=_RESPONSES,
)
def head_blob(digest: Digest, request: Request, context: ContextDep) -> Response:
    """The headers of the blob."""
    return get_blob(digest, request, context)
