"""What the server itself says of bytes that are no HTTP: a problem, as all errors."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors.problems import MEDIA_TYPE, problem

_STATUS: Final = HTTPStatus.BAD_REQUEST


class Protocol(HttpToolsProtocol):
    """The server's HTTP, with its one own answer told as RFC 9457 wants it."""

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that no application can be asked about."""
        self.transport.write(refusal(msg))
        self.transport.close()


def refusal(detail: str) -> bytes:
    """The whole answer to bytes that cannot be read as a request."""
    told = problem(
        "http-error",
        detail,
        where="request",
        hint="send HTTP/1.1 with a head below 64 KiB; POST /v1/plans:lookup takes many"
        " keys at once",
    )
    body = json.dumps(told.document()).encode()
    head = (
        f"HTTP/1.1 {_STATUS.value} {_STATUS.phrase}\r\n"
        f"content-type: {MEDIA_TYPE}\r\n"
        f"content-length: {len(body)}\r\n"
        "cache-control: no-store\r\n"
        f"fuseplan-problem: {told.code}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
