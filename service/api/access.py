"""Who may do what: bearer tokens, their scopes, and how often.

What the database says of a token is believed for at most a second; a revoked one may
work for that long (`FRESH_SECONDS`). Those in use are checked in the background before
that time is over, and for some seconds after their last use, so that requests do not
wait for it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.heads import header
from service.errors import RateLimited, ScopeMissing, TokenRequired
from service.store import Database, tokens
from service.store.tokens import Scope as TokenScope
from service.store.tokens import Token

FRESH_SECONDS: Final = 1.0
"""How long an answer of the database about a token is believed."""

RENEW_SECONDS: Final = 0.5
"""From this age on, an answer that is used is asked for again in the background."""

IN_USE_SECONDS: Final = 10.0
"""How long after its last use an answer is still asked for again."""

OPEN: Final = frozenset({"/livez", "/readyz", "/openapi.json"})
"""What anybody may see: nothing of it comes from a model."""

LOCAL: Final = "local"
"""Name of whoever asks where no tokens are in use."""

_CHANGES: Final[Mapping[str, TokenScope]] = {"/v1/bundles": "plans:write"}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_REMEMBERED: Final = 4096
_OUTSIDE: Final = frozenset({"cross-site", "same-site"})


def needed_scope(method: str, path: str) -> TokenScope | None:
    """The scope that a request needs; None when anybody may make it."""
    if path in OPEN or path.startswith("/static/"):
        return None
    if path.startswith("/v1/audit"):
        return "admin"
    if method in _SAFE or path == "/v1/plans:lookup":
        return "plans:read"
    if path.startswith("/v1/plans/"):
        return "plans:write"
    is_job = path == "/v1/plans" or path.startswith("/v1/jobs/")
    return "jobs:submit" if is_job else _CHANGES.get(path, "admin")


def actor(request: Request) -> str:
    """Who makes a request, for the audit."""
    return str(request.scope.get("fuseplan_actor", LOCAL))


@dataclass(frozen=True, slots=True)
class _Seen:
    token: Token | None
    until: float


class Gate:
    """Knows tokens; safe to use from many threads.

    Args:
        database: where the hashes are.
        mode: whether tokens are asked for; `auto` means once one was ever made.
        admin_token: a token beside those of the database; empty means none.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        database: Database,
        *,
        mode: Literal["auto", "required", "off"],
        admin_token: str,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._mode = mode
        self._clock = clock
        self._admin = _admin(admin_token) if admin_token else None
        self._admin_seen = _Seen(self._admin, math.inf)
        self._lock = threading.Lock()
        self._asking: dict[str, asyncio.Future[Mapping[str, _Seen]]] = {}
        self._seen: dict[str, _Seen] = {}
        self._used_at: dict[str, float] = {}
        self._wondered_at = -math.inf
        self._in_use = mode == "required" or self._admin is not None
        self._looked_at: float | None = None

    @property
    def is_closed(self) -> bool:
        """Whether tokens are asked for, as far as is known without a look."""
        return self._mode != "off" and self._in_use

    def is_fresh(self) -> bool:
        """Whether it is known whether tokens are in use."""
        if self._mode != "auto" or self._in_use:
            return True
        at, now = self._looked_at, self._clock()
        self._wondered_at = now
        return at is not None and now - at < FRESH_SECONDS

    def look(self) -> None:
        """Ask the database whether tokens are in use."""
        read_at = self._clock()
        with self._database.read() as session:
            found = tokens.count(session) > 0
        self._looked_at = read_at
        self._in_use = self._in_use or found

    def remembered(self, hash_: str) -> _Seen | None:
        """What was found a moment ago about a token."""
        if self._admin is not None and hash_ == self._admin.hash:
            return self._admin_seen
        seen = self._seen.get(hash_)
        if seen is None:
            return None
        now = self._clock()
        self._used_at[hash_] = now
        return seen if now < seen.until else None

    async def find(self, hash_: str) -> _Seen:
        """What the database says about a token now; who asks together asks once.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        asking = self._asking.get(hash_)
        if asking is None:
            asking = asyncio.ensure_future(run_in_threadpool(self._ask, (hash_,)))
            self._asking[hash_] = asking
            asking.add_done_callback(lambda _: self._asking.pop(hash_, None))
        # Whoever goes away early takes the answer from nobody else.
        return (await asyncio.shield(asking))[hash_]

    def renew(self) -> None:
        """Ask again for what was used lately.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        now = self._clock()
        if self._is_look_due(now):
            self.look()
        due = sorted(self._due(now))
        if due:
            self._ask(due)

    def is_due(self) -> bool:
        """Whether there is anything to renew."""
        now = self._clock()
        return self._is_look_due(now) or any(self._due(now))

    def _is_look_due(self, now: float) -> bool:
        at = self._looked_at
        if at is None or self.is_closed:
            return False
        return now - at >= RENEW_SECONDS and now - self._wondered_at <= IN_USE_SECONDS

    def _due(self, now: float) -> Iterator[str]:
        for hash_, used_at in self._used_at.copy().items():
            seen = self._seen.get(hash_)
            if seen is None or now - used_at > IN_USE_SECONDS:
                self._used_at.pop(hash_, None)
            elif seen.until - now <= FRESH_SECONDS - RENEW_SECONDS:
                yield hash_

    def _ask(self, hashes: Sequence[str]) -> Mapping[str, _Seen]:
        read_at = self._clock()
        with self._database.read() as session:
            known = tokens.by_hashes(session, hashes)
        until = read_at + FRESH_SECONDS
        seen = {one: _Seen(known.get(one), until) for one in hashes}
        with self._lock:
            if len(self._seen) + len(seen) > _MAX_REMEMBERED:
                self._seen.clear()
            self._seen |= seen
        return seen

    def has_key(self, now: datetime) -> bool:
        """Whether any token opens anything: else nobody could ever come in."""
        if self._mode == "off":
            return False
        if self._admin is not None:
            return True
        with self._database.read() as session:
            return any(one.is_valid(now) for one in tokens.everyone(session))


def _admin(text: str) -> Token:
    return Token(
        id="admin",
        name="admin",
        hash=tokens.hash_of(text),
        scopes=("admin",),
        created_at=datetime.now(UTC),
    )


class Rates:
    """A bucket of requests for each asker, filled at a steady rate.

    Args:
        per_second: requests a second in the long run; 0 means any number.
        burst: requests that may come at once.
        clock: seconds that only grow.
    """

    def __init__(
        self, *, per_second: float, burst: int, clock: Callable[[], float]
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, who: str) -> float:
        """Take one request out of a bucket; when empty, how long until it is not."""
        if not self._per_second:
            return 0.0
        now = self._clock()
        left, at = self._buckets.get(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        if left < 1:
            self._buckets[who] = (left, now)
            return (1 - left) / self._per_second
        if len(self._buckets) >= _MAX_REMEMBERED:
            self._buckets.clear()
        self._buckets[who] = (left - 1, now)
        return 0.0


class AccessMiddleware:
    """Lets a request through, or says why not.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] == "http":
            needed = needed_scope(scope["method"], scope["path"])
            if needed is not None:
                await _enter(scope, needed)
        await self._app(scope, receive, send)


async def _enter(scope: Scope, needed: TokenScope) -> None:
    context = scope["app"].state.context
    gate: Gate = context.gate
    rates: Rates = context.rates
    if not gate.is_fresh():
        await run_in_threadpool(gate.look)
    who = str((scope.get("client") or ("unknown", 0))[0])
    if gate.is_closed:
        token = await _token(scope, gate)
        if not token.allows(needed):
            raise ScopeMissing(
                f"token {token.name}",
                f"it has no scope {needed}",
                hint="make one with `fuseplan token create NAME --scope"
                f" {needed}`, or ask who runs the service",
            )
        who = scope["fuseplan_actor"] = token.name
    wait = rates.wait_seconds(who)
    if wait:
        raise RateLimited(
            who,
            "it asks more often than this service allows",
            hint="wait, and ask for many keys at once with POST /v1/plans:lookup",
            headers={"Retry-After": str(int(wait) + 1)},
        )


async def _token(scope: Scope, gate: Gate) -> Token:
    text = _presented(scope, safe=scope["method"] in _SAFE)
    if text:
        hash_ = tokens.hash_of(text)
        seen = gate.remembered(hash_)
        if seen is None:
            seen = await gate.find(hash_)
        if seen.token is not None and seen.token.is_valid(datetime.now(UTC)):
            return seen.token
    wants_page = "text/html" in header(scope, b"accept")
    kind = "Basic" if wants_page else "Bearer"
    raise TokenRequired(
        "header Authorization",
        "it holds no valid token" if text else "this service asks for a token",
        hint="send `Authorization: Bearer TOKEN`; in a browser, the token is the"
        " password",
        headers={"WWW-Authenticate": f'{kind} realm="fuseplan"'},
    )


def _presented(scope: Scope, *, safe: bool) -> str:
    """The token that a request shows: as bearer, or as a browser's password.

    A browser sends its password along with whatever any page makes it ask, so that
    it counts for a change only when the page is ours.
    """
    kind, _, value = header(scope, b"authorization").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    if not safe and header(scope, b"sec-fetch-site") in _OUTSIDE:
        return ""
    try:
        told = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return told.partition(":")[2]
