"""Plans and blobs that were given a moment ago, given again without the database.

A build farm asks for the same keys again and again. What a key points to is believed
for at most a second (`FRESH_SECONDS`) after the database was asked; bodies never
change. Before that time is over the answers in use are checked in the background
(`renewal`), so that requests do not wait for the database. One that nobody used for
longer is kept all the same: when it is asked for again, one question to the database
from the event loop (`store.watching`) tells whether it is still right. An answer from
here has the same status, headers and bytes as the route's.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.heads import header
from service.store import StoreError
from service.store.values import Evidence
from service.store.watching import MOST_KEYS, Watcher

FRESH_SECONDS: Final = 1.0
"""How long an answer may lag behind the database."""

RENEW_SECONDS: Final = 0.5
"""From this age on, an answer that is used is checked at the next occasion."""

IN_USE_SECONDS: Final = 10.0
"""How long after its last use an answer is still checked in the background."""

FOREVER_SECONDS: Final = 3600.0
"""How long a blob is kept: its bytes are those of its digest, whenever one asks."""

_PATH: Final = re.compile(r"/v1/(plans|blobs/sha256)/[0-9a-f]{64}")
_ROUTES: Final[Mapping[str, str]] = {
    "plans": "/v1/plans/{key}",
    "blobs/sha256": "/v1/blobs/sha256/{digest}",
}
_MAX_BYTES: Final = 64 * 2**20
_MAX_ENTRIES: Final = 20_000
_MAX_IN_USE: Final = 2000
"""Answers that are checked in the background: those used last."""

Pairs = tuple[tuple[bytes, bytes], ...]
Place = tuple[str, bytes]
Old = tuple[Place, "Ready", "Source"]


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
        self._used_at: OrderedDict[Place, float] = OrderedDict()
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
        if now >= ready.renew_at:
            self._use((path, query), now)
        return ready if now < ready.until else None

    def old(self, place: Place) -> Old | None:
        """An answer whatever its age, if the database can say whether it is right."""
        ready = self._ready.get(place)
        if ready is None or ready.source is None:
            return None
        return place, ready, ready.source

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
        self._use((path, query), self._clock())

    def put(self, path: str, query: bytes, told: Content) -> None:
        """Keep an answer that never changes; those kept first make room."""
        self._put((path, query), _ready(told, self._clock() + FOREVER_SECONDS))

    def due(self) -> Sequence[Old]:
        """Answers that were used lately and should be checked."""
        now = self._clock()
        with self._lock:
            while self._used_at:
                place, used_at = next(iter(self._used_at.items()))
                if now - used_at <= IN_USE_SECONDS:
                    break
                del self._used_at[place]
            places = tuple(self._used_at)
        kept = (self.old(place) for place in places)
        return [one for one in kept if one is not None and now >= one[1].renew_at]

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

    def _use(self, place: Place, now: float) -> None:
        with self._lock:
            self._used_at[place] = now
            self._used_at.move_to_end(place)
            if len(self._used_at) > _MAX_IN_USE:
                self._used_at.popitem(last=False)

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


async def check_answers(
    hot: HotAnswers, watcher: Watcher, answers: Sequence[Old]
) -> None:
    """Believe answers for longer that the database confirms; forget the others.

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    for start in range(0, len(answers), MOST_KEYS):
        part = answers[start : start + MOST_KEYS]
        read_at = hot.now()
        current = await watcher.digests([source.key for _, _, source in part])
        for place, ready, source in part:
            held = current.get(source.key, {})
            best = next((one for one in source.wanted if one in held), None)
            if best == source.evidence and held[best] == ready.told.digest:
                hot.confirm(place, ready, read_at=read_at)
            else:
                hot.drop(place)
        if len(answers) > MOST_KEYS:
            await asyncio.sleep(0)  # requests first


class HotMiddleware:
    """Answers lookups of plans that were answered before.

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
            with self._asked(place):
                ready = await _confirmed(context.hot, context.watcher, place)
                if ready is None:
                    await self._app(scope, receive, send)
                    return
        if found[1] == "plans":
            context.metrics.looked_up(hits=1)
        scope["fuseplan_route"] = _ROUTES[found[1]]
        await _send(ready, scope, send)

    @contextmanager
    def _asked(self, place: Place) -> Iterator[None]:
        """Others who want the same wait until the block is left."""
        asking = self._asking.setdefault(place, asyncio.Event())
        try:
            yield
        finally:
            asking.set()
            if self._asking.get(place) is asking:
                del self._asking[place]


async def _confirmed(hot: HotAnswers, watcher: Watcher, place: Place) -> Ready | None:
    """An answer that had grown too old, if the database says that it is right."""
    old = hot.old(place)
    if old is None:
        return None
    try:
        await check_answers(hot, watcher, [old])
    except StoreError:
        return None  # the route finds out what is wrong, and says so
    return hot.get(*place)


async def _send(ready: Ready, scope: Scope, send: Send) -> None:
    told = header(scope, b"if-none-match")
    held = told and is_held(told, ready.told.tag)
    status, headers = (304, ready.unchanged) if held else (200, ready.whole)
    body = b"" if held or scope["method"] == "HEAD" else ready.told.content
    start = {"type": "http.response.start", "status": status, "headers": list(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def is_held(told: str, tag: str) -> bool:
    """Whether an If-None-Match header has a tag (RFC 9110, section 13.1.2)."""
    if told == tag:
        return True
    tags = {one.strip().removeprefix("W/") for one in told.split(",")}
    return "*" in tags or tag in tags
