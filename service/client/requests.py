"""Requests that both clients make, as httpx takes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import httpx

from service.client.values import Evidence, Submit

ZSTD: Final[Mapping[str, str]] = {"Content-Type": "application/zstd"}
MOST_KEYS: Final = 1000
"""Of one question for many plans (docs/api.md)."""
CUT_OFF: Final = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""What a connection meets that breaks before the answer is whole. One that was kept may
when it is used again: whoever is at either end, or between, may close it in that moment
(RFC 9112, section 9.3.1)."""

BUNDLES: Final = "/v1/bundles"
STREAM: Final = httpx.Timeout(10.0, read=60.0)
"""An event may be long in coming; but the service says every 15 seconds that it is
there, so that a host that has been silent for longer is gone."""


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token; none without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def spare_tries(method: str, url: str) -> range:
    """How often a request is sent again when its connection is cut off.

    Once, where to be asked twice changes no more than to be asked once (RFC 9110,
    section 9.2.2): a model that is handed in has a key of its own for that. Who cancels
    a job twice is told that it has ended, and who imports a bundle twice that nothing
    has changed.
    """
    is_once = method == "DELETE" or (method, url) == ("POST", BUNDLES)
    return range(0 if is_once else 1)


def submit(asked: Submit, timeout_seconds: float) -> dict[str, Any]:
    """Hand a model in; an answer that is held back is waited for that much longer."""
    request = asked.request()
    longest = timeout_seconds + math.ceil(asked.wait_seconds or 0)
    return {**request, "timeout": longest}


def plan(key: str, evidence: Evidence) -> dict[str, Any]:
    """Look a plan up."""
    asked = {} if evidence == "analytic" else {"evidence": evidence}
    return {"url": f"/v1/plans/{key}", "params": asked}


def blob(digest: str) -> dict[str, Any]:
    """Read a blob."""
    return {"url": f"/v1/blobs/sha256/{digest}"}


def many(keys: Sequence[str], evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Look many plans up, as many at once as the service takes."""
    for start in range(0, len(keys), MOST_KEYS):
        asked = {"keys": keys[start : start + MOST_KEYS], "evidence": evidence}
        yield {"method": "POST", "url": "/v1/plans:lookup", "json": asked}


def events_of(job: str) -> str:
    """Where the events of a job are told."""
    return f"/v1/jobs/{job}/events"


def events(job: str, after: str) -> dict[str, Any]:
    """The events of a job behind one of them."""
    headers = {"Last-Event-ID": after} if after else {}
    return {"url": events_of(job), "headers": headers, "timeout": STREAM}
