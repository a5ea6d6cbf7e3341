"""Plans and blobs that were given a moment ago, given again without the database.

A build farm asks for the same keys again and again. What a key points to is believed
for at most a second (`FRESH_SECONDS`) after the database was asked; bodies never
change. Before that time is over the answers in use are checked in the background
(`renewal`), so that requests do not wait for the database. An answer from here has the
same status, headers and bytes as the route's.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.store.plans import Evidence

FRESH_SECONDS: Final = 1.0
"""How long an answer may lag behind the database."""

RENEW_SECONDS: Final = 0.2
"""From this age on, an answer that is used is checked at the next occasion."""

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
Place = tuple[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What an answer is made of; its strong ETag is the digest."""

    content: bytes
    digest: str
    media_type: str
    headers: Mapping[str, str]

    @property
    def tag(self) -> str:
        """The strong ETag."""
        return f'"{self.digest}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the answer to a lookup came from: what must hold for it to be right.

    Attributes:
        wanted: kinds of evidence that were asked for, the best first.
        evidence: the best that there was.
    """

    key: str
    wanted: tuple[Evidence, ...]
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """An answer as it goes out: with a body, and without one for who has it.

    Attributes:
        renew_at: when it should be checked, if it is used.
        until: when it is too old.
        source: what must hold for it to be right; None if it is right for ever.
    """

    told: Content
    whole: Pairs
    unchanged: Pairs
    renew_at: float
    until: float
    source: Source | None


class HotAnswers:
    """Answers by path and query; safe to use from many threads.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ready: OrderedDict[Place, Ready] = OrderedDict()
        self._due: set[Place] = set()
        self._bytes = 0

    def now(self) -> float:
        """The present moment of the clock by which answers grow old."""
        return self._clock()

    def get(self, path: str, query: bytes) -> Ready | None:
        """The answer to a request, if it is not too old."""
        ready = self._ready.get((path, query))
        if ready is None:
            return None
        now = self._clock()
        if now >= ready.until:
            return None
        if now >= ready.renew_at:
            self._due.add((path, query))
        return ready

    def put_plan(
        self,
        path: str,
        query: bytes,
        told: Content,
        *,
        source: Source,
        read_at: float,
    ) -> None:
        """Keep the answer to a lookup.

        Args:
            path: of the request.
            query: of the request.
            told: the answer.
            source: what it is the answer to.
            read_at: when the database was asked, before it answered.
        """
        ready = _ready(told, read_at + FRESH_SECONDS)
        ready = replace(ready, renew_at=read_at + RENEW_SECONDS, source=source)
        self._put((path, query), ready)

    def put(self, path: str, query: bytes, told: Content) -> None:
        """Keep an answer that never changes; those kept first make room."""
        self._put((path, query), _ready(told, self._clock() + FOREVER_SECONDS))

    def due(self) -> Sequence[tuple[Place, Ready, Source]]:
        """Answers that were used and should be checked; each is told once."""
        due, self._due = self._due, set()
        pairs = ((place, self._ready.get(place)) for place in due)
        return [
            (place, ready, ready.source)
            for place, ready in pairs
            if ready is not None and ready.source is not None
        ]

    def confirm(self, place: Place, ready: Ready, *, read_at: float) -> None:
        """Believe an answer for longer: the database still said so at that moment."""
        fresh = replace(
            ready, renew_at=read_at + RENEW_SECONDS, until=read_at + FRESH_SECONDS
        )
        with self._lock:
            if self._ready.get(place) is ready:
                self._ready[place] = fresh

    def drop(self, place: Place) -> None:
        """Forget an answer."""
        with self._lock:
            self._drop(place)

    def _put(self, place: Place, ready: Ready) -> None:
        with self._lock:
            self._drop(place)
            self._ready[place] = ready
            self._bytes += len(ready.told.content)
            while self._bytes > _MAX_BYTES or len(self._ready) > _MAX_ENTRIES:
                self._drop(next(iter(self._ready)))

    def _drop(self, place: Place) -> None:
        old = self._ready.pop(place, None)
        if old is not None:
            self._bytes -= len(old.told.content)


def _ready(told: Content, until: float) -> Ready:
    unchanged = _pairs({**told.headers, "ETag": told.tag})
    sized = {
        "content-length": str(len(told.content)),
        "content-type": told.media_type,
    }
    return Ready(
        told=told,
        whole=unchanged + _pairs(sized),
        unchanged=unchanged,
        renew_at=until,
        until=until,
        source=None,
    )


def _pairs(headers: Mapping[str, str]) -> Pairs:
    return tuple((n.lower().encode(), v.encode()) for n, v in headers.items())


class HotMiddleware:
    """Answers lookups of plans that were answered a moment ago.

    Of requests for the same thing that come together one asks the database, and the
    others wait for what it finds.

    Args:
        app: what answers all others.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asking: dict[Place, asyncio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        found = _PATH.fullmatch(scope["path"])
        if found is None:
            await self._app(scope, receive, send)
            return
        context = scope["app"].state.context
        place = (scope["path"], scope["query_string"])
        ready = context.hot.get(*place)
        if ready is None and place in self._asking:
            await self._asking[place].wait()
            ready = context.hot.get(*place)
        if ready is None:
            await self._ask(place, scope, receive, send)
            return
        if found[1] == "plans":
            context.metrics.looked_up(hits=1)
        scope["fuseplan_route"] = _ROUTES[found[1]]
        await _send(ready, scope, send)

    async def _ask(
        self, place: Place, scope: Scope, receive: Receive, send: Send
    ) -> None:
        asking = self._asking.setdefault(place, asyncio.Event())
        try:
            await self._app(scope, receive, send)
        finally:
            asking.set()
            if self._asking.get(place) is asking:
                del self._asking[place]


async def _send(ready: Ready, scope: Scope, send: Send) -> None:
    told = Headers(scope=scope).get("if-none-match", "")
    held = told and is_held(told, ready.told.tag)
    status, headers = (304, ready.unchanged) if held else (200, ready.whole)
    body = b"" if held or scope["method"] == "HEAD" else ready.told.content
    start = {"type": "http.response.start", "status": status, "headers": list(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def is_held(told: str, tag: str) -> bool:
    """Whether an If-None-Match header has a tag (RFC 9110, section 13.1.2)."""
    tags = {one.strip().removeprefix("W/") for one in told.split(",")}
    return "*" in tags or tag in tags
