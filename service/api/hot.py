"""Plans and blobs that were given a moment ago, given again without the database.

A build farm asks for the same keys again and again. What a key points to is believed
for at most a second (`FRESH_SECONDS`); bodies never change, so they are kept by digest.
Before that time is over one request asks the database anew, while the others still get
what is kept: they never all wait at once. An answer from here has the same status,
headers and bytes as the route's.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

FRESH_SECONDS: Final = 1.0
"""How long an answer may lag behind the database."""

_RENEW_SHARE: Final = 0.7
"""From this share of its time on, one request at a time fetches an answer anew."""

FOREVER_SECONDS: Final = 3600.0
"""How long a blob is kept: its bytes are those of its digest, whenever one asks."""

_PATH: Final = re.compile(r"/v1/(plans|blobs/sha256)/[0-9a-f]{64}")
_ROUTES: Final[Mapping[str, str]] = {
    "plans": "/v1/plans/{key}",
    "blobs/sha256": "/v1/blobs/sha256/{digest}",
}
_MAX_BYTES: Final = 64 * 2**20
_MAX_ENTRIES: Final = 20_000

Pairs = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """An answer as it goes out: with a body, and without one for who has it."""

    tag: str
    whole: Pairs
    unchanged: Pairs
    content: bytes
    renew_at: float
    until: float


class HotAnswers:
    """Answers by path and query; safe to use from many threads.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ready: OrderedDict[tuple[str, bytes], Ready] = OrderedDict()
        self._renewing: set[tuple[str, bytes]] = set()
        self._bytes = 0

    def get(self, path: str, query: bytes) -> Ready | None:
        """The answer to a request, if it is not too old, or this one is to renew it."""
        ready = self._ready.get((path, query))
        if ready is None:
            return None
        now = self._clock()
        if now < ready.renew_at:
            return ready
        if now >= ready.until:
            return None
        if (path, query) in self._renewing:
            return ready
        self._renewing.add((path, query))
        return None

    def put(
        self,
        path: str,
        query: bytes,
        *,
        content: bytes,
        digest: str,
        media_type: str,
        headers: Mapping[str, str],
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        """Keep an answer; the ones that were kept first make room."""
        now = self._clock()
        tagged = {**headers, "ETag": f'"{digest}"'}
        unchanged = _pairs(tagged)
        sized = {"content-length": str(len(content)), "content-type": media_type}
        ready = Ready(
            tag=f'"{digest}"',
            whole=unchanged + _pairs(sized),
            unchanged=unchanged,
            content=content,
            renew_at=now + _RENEW_SHARE * fresh_seconds,
            until=now + fresh_seconds,
        )
        with self._lock:
            self._drop((path, query))
            self._ready[path, query] = ready
            self._bytes += len(content)
            while self._bytes > _MAX_BYTES or len(self._ready) > _MAX_ENTRIES:
                self._drop(next(iter(self._ready)))

    def _drop(self, place: tuple[str, bytes]) -> None:
        self._renewing.discard(place)
        old = self._ready.pop(place, None)
        if old is not None:
            self._bytes -= len(old.content)


def _pairs(headers: Mapping[str, str]) -> Pairs:
    return tuple((n.lower().encode(), v.encode()) for n, v in headers.items())


class HotMiddleware:
    """Answers lookups of plans that were answered a moment ago.

    Args:
        app: what answers all others.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}:
            path = scope["path"]
            found = _PATH.fullmatch(path)
            if found is not None:
                context = scope["app"].state.context
                ready = context.hot.get(path, scope["query_string"])
                if ready is not None:
                    if found[1] == "plans":
                        context.metrics.looked_up(hits=1)
                    scope["fuseplan_route"] = _ROUTES[found[1]]
                    await _send(ready, scope, send)
                    return
        await self._app(scope, receive, send)


async def _send(ready: Ready, scope: Scope, send: Send) -> None:
    told = Headers(scope=scope).get("if-none-match", "")
    held = told and is_held(told, ready.tag)
    status, headers = (304, ready.unchanged) if held else (200, ready.whole)
    body = b"" if held or scope["method"] == "HEAD" else ready.content
    start = {"type": "http.response.start", "status": status, "headers": list(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def is_held(told: str, tag: str) -> bool:
    """Whether an If-None-Match header has a tag (RFC 9110, section 13.1.2)."""
    tags = {one.strip().removeprefix("W/") for one in told.split(",")}
    return "*" in tags or tag in tags
