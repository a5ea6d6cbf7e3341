"""Conditional requests (RFC 9110, section 13)."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from service.api.hot import Content
from service.api.hot import is_held as is_held_in


def is_held(request: Request, digest: str) -> bool:
    """Whether the client says that it has exactly this content."""
    return is_held_in(request.headers.get("if-none-match", ""), f'"{digest}"')


def deliver(request: Request, told: Content) -> Response:
    """Content under its strong ETag: whole, headers only for HEAD, or 304."""
    tagged = {**told.headers, "ETag": told.tag}
    if is_held(request, told.digest):
        return Response(status_code=304, headers=tagged)
    if request.method == "HEAD":
        tagged["Content-Length"] = str(len(told.content))
        return Response(media_type=told.media_type, headers=tagged)
    return Response(told.content, media_type=told.media_type, headers=tagged)
