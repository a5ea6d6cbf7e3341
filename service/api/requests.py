"""What happens around every request: an id, a limit, and an answer in any case."""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.heads import header
from service.api.problems import respond
from service.api.tracing import route_of
from service.errors import BodyTooLarge, ServiceError
from service.errors.problems import problem_of
from service.store import StoreError

log = structlog.get_logger(__name__)

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
"""Methods that are counted by name; a client cannot invent more of them."""
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestMiddleware:
    """Gives each request an id, limits its body, and logs how it went.

    Args:
        app: what answers.
        max_body_bytes: largest body; one that says that it is larger is refused
            before a byte of it is read.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._max_body_bytes)
        bound = structlog.contextvars.bind_contextvars(request_id=exchange.id)
        try:
            await self._answer(exchange, scope, receive)
        finally:
            structlog.contextvars.reset_contextvars(**bound)

    async def _answer(
        self, exchange: _Exchange, scope: Scope, receive: Receive
    ) -> None:
        try:
            exchange.check_length()
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:
            # The last line: whatever happens, the user gets a problem document.
            if exchange.status:
                raise
            if not isinstance(error, (ServiceError, StoreError)):
                log.exception("request failed")
            response = respond(problem_of(error, instance=exchange.id))
            await response(scope, receive, exchange.send)
        exchange.log()


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, max_body_bytes: int
    ) -> None:
        given = header(scope, b"x-request-id")
        self.id = given if _SAFE_ID.fullmatch(given) else secrets.token_hex(8)
        self.status = 0
        self.code = ""
        scope["fuseplan_request_id"] = self.id
        self._scope = scope
        self._receive = receive
        self._send = send
        self._max_body_bytes = max_body_bytes
        self._length = header(scope, b"content-length")
        self._received_bytes = 0
        self._started = time.perf_counter()

    def check_length(self) -> None:
        if self._length.isdecimal() and int(self._length) > self._max_body_bytes:
            raise self._too_large(int(self._length))

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received_bytes += len(message.get("body", b""))
            if self._received_bytes > self._max_body_bytes:
                raise self._too_large(self._received_bytes)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            told = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
            names = dict(told)
            if b"x-content-type-options" not in names:
                told.append(_NO_SNIFFING)
            self.code = names.get(b"fuseplan-problem", b"").decode()
            message["headers"] = told
        await self._send(message)

    def log(self) -> None:
        seconds = time.perf_counter() - self._started
        route = route_of(self._scope)
        context = getattr(self._scope["app"].state, "context", None)
        if context is not None:
            metrics = context.metrics
            given = self._scope["method"]
            method = given if given in _METHODS else "other"
            metrics.requested(method, route, self.status, seconds)
            if self.code:
                metrics.problem(self.code)
        if not log.is_enabled_for(logging.INFO):
            return
        entry: dict[str, Any] = {
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self.status,
            "seconds": round(seconds, 6),
        }
        if self.code:
            entry["code"] = self.code
        if "fuseplan_actor" in self._scope:
            entry["actor"] = self._scope["fuseplan_actor"]
        log.info("request", **entry)

    def _too_large(self, size_bytes: int) -> BodyTooLarge:
        return BodyTooLarge(
            "body",
            f"{size_bytes} bytes, the limit is {self._max_body_bytes}",
            hint="leave the weights out with `fuseplan strip`, or raise"
            " FUSEPLAN_MAX_BODY_BYTES",
            headers={"Connection": "close"},
        )
