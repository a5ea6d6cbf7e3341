"""Answers of the service, read into values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import httpx

from service.client.values import (
    Event,
    Found,
    Job,
    Json,
    Miss,
    Refused,
    ServiceUnavailable,
    StoredPlan,
    Submission,
)

T = TypeVar("T")

UNSENT: Final = (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OverflowError)
"""What an exchange may fail with; the last two are names and ports that cannot be."""

_SUCCESS: Final = range(200, 300)
_NOT_FOUND: Final = 404


def is_success(response: httpx.Response) -> bool:
    """Whether an answer is none of an error."""
    return response.status_code in _SUCCESS


def checked(response: httpx.Response) -> Json:
    """The body of a success.

    Raises:
        Refused: the service sent a problem.
        ServiceUnavailable: the service failed, or sent something else.
    """
    where = str(response.url)
    try:
        document = response.json()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ServiceUnavailable(
            where,
            f"HTTP {response.status_code} without a JSON object",
            hint="is it Fuseplan?",
        )
    if is_success(response):
        return document
    if response.is_server_error:
        detail = document.get("detail") or f"HTTP {response.status_code}"
        raise ServiceUnavailable(where, str(detail))
    raise Refused(where, response.status_code, document)


def unavailable(where: str, error: Exception) -> ServiceUnavailable:
    """What a failed exchange is to the caller."""
    return ServiceUnavailable(
        where, in_words(error), hint="is `fuseplan serve` running there?"
    )


def in_words(error: Exception) -> str:
    """What an error says; some say nothing but their kind."""
    return str(error) or type(error).__name__


def submission(response: httpx.Response) -> Submission:
    """What became of a model that was handed in; errors as of `checked`."""
    return _made(_submission, response)


def job(response: httpx.Response) -> Job:
    """A job; errors as of `checked`."""
    return _made(_job, response)


def _made(make: Callable[[Json, httpx.Response], T], response: httpx.Response) -> T:
    document = checked(response)
    try:
        return make(document, response)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ServiceUnavailable(
            str(response.url),
            f"the answer is not as this client reads it: {error!r}",
            hint="is it Fuseplan, and no older than this client?",
        ) from error


def _submission(document: Json, response: httpx.Response) -> Submission:
    return Submission(
        plan_key=document["plan_key"],
        digest=document["digest"],
        state=document["state"],
        evidence=document["evidence"],
        job=_job_id(document.get("job")),
        names={i: tuple(n) for i, n in (document.get("names") or {}).items()},
        plan=document["plan"],
        cached=response.headers.get("fuseplan-cache") == "hit",
    )


def _job_id(value: object) -> str | None:
    found = value.get("id") if isinstance(value, Mapping) else value
    return None if found is None else str(found)


def _job(document: Json, response: httpx.Response) -> Job:
    del response
    return Job(
        id=document["id"],
        state=document["state"],
        plan_key=document["plan_key"],
        progress=document["progress"] or {},
        error=document.get("error"),
    )


def stored(key: str, response: httpx.Response) -> StoredPlan | Miss:
    """A plan that was looked up, or why there is none; errors as of `checked`."""
    try:
        body = checked(response)
    except Refused as refusal:
        if refusal.status == _NOT_FOUND and "reason" in refusal.document:
            return Miss(reason=str(refusal.document["reason"]))
        raise
    return StoredPlan(
        key=key,
        digest=response.headers.get("etag", "").strip('"'),
        evidence=response.headers.get("fuseplan-evidence", ""),
        match=response.headers.get("fuseplan-match", "exact"),
        body=body,
        content=response.content,
    )


def many(response: httpx.Response) -> dict[str, Found | Miss]:
    """What there is of many keys, by key; errors as of `checked`."""
    return _made(_many, response)


def _many(document: Json, response: httpx.Response) -> dict[str, Found | Miss]:
    del response
    told: dict[str, Found | Miss] = {
        one["key"]: Miss(reason=str(one["reason"])) for one in document["missing"]
    }
    for one in document["found"]:
        told[one["key"]] = Found(
            key=one["key"],
            digest=one["digest"],
            evidence=one["evidence"],
            objective_seconds=one["objective_seconds"],
            kernels=one["kernels"],
        )
    return told


def content(answer: httpx.Response) -> bytes | Miss:
    """The bytes of a blob, or why there are none; errors as of `checked`."""
    if is_success(answer):
        return answer.content
    try:
        checked(answer)  # raises, for it is no success
    except Refused as refusal:
        if refusal.code != "blob-not-found":
            raise
    return Miss(reason="evicted")


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Events from the lines of a stream, by the HTML standard's rules.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html

    Raises:
        ServiceUnavailable: the data of an event is no JSON.
    """
    draft = Draft()
    for line in lines:
        event = draft.take(line)
        if event is not None:
            yield event


class Draft:
    """An event whose lines are still coming in."""

    def __init__(self) -> None:
        self._id = ""
        self._kind = ""
        self._data: list[str] = []

    def take(self, line: str) -> Event | None:
        """Add a line; the empty line that ends an event gives it back."""
        if not line:
            return self._finish()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "id":
                self._id = value
            case "event":
                self._kind = value
            case "data":
                self._data.append(value)
            case _:
                pass  # comments and fields that we do not know
        return None

    def _finish(self) -> Event | None:
        text, kind = "\n".join(self._data), self._kind or "message"
        self._data, self._kind = [], ""
        if not text:
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ServiceUnavailable(
                f"event {self._id or kind}",
                f"its data is no JSON: {in_words(error)}",
                hint="is it Fuseplan?",
            ) from error
        return Event(id=self._id, kind=kind, data=data)
