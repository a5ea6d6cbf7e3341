"""A small client of the service: submit, watch, look up.

Looking up never breaks a build: all lookups of one client share one time budget, and a
service that is slow, gone or broken gives a `Miss` that says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import httpx

if TYPE_CHECKING:
    from types import TracebackType

LOOKUP_BUDGET_SECONDS: Final = 2.0
"""What all lookups of one client may take together, before they fail open."""

Evidence = Literal["analytic", "compiled", "measured"]
Json = Mapping[str, Any]

_SUCCESS: Final = range(200, 300)
_NOT_FOUND: Final = 404


class ClientError(Exception):
    """Base of the errors of this client.

    Attributes:
        code: stable identifier; the service's own, when it sent a problem.
        where: the address that was asked.
        problem: what is wrong.
        hint: what the user can do.
    """

    code = "client-error"

    def __init__(self, where: str, problem: str, *, hint: str = "") -> None:
        self.where = where
        self.problem = problem
        self.hint = hint
        super().__init__(f"{where}: {problem}" + (f" ({hint})" if hint else ""))


class ServiceUnavailable(ClientError):
    """No usable answer: no connection, no time left, or a fault of the service."""

    code = "service-unavailable"


class Refused(ClientError):
    """The service understood the request and refuses it.

    Attributes:
        status: HTTP status.
        document: the problem document as it was sent.
    """

    code = "refused"

    def __init__(self, where: str, status: int, document: Json) -> None:
        self.status = status
        self.document = document
        self.code = str(document.get("code", self.code))
        super().__init__(where, str(document.get("detail") or f"HTTP {status}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The answer to a submitted model."""

    plan_key: str
    digest: str
    state: str
    evidence: str
    job: str | None
    names: Mapping[str, tuple[str, ...]]
    plan: Json
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A tuning job as the service tells it."""

    id: str
    state: str
    plan_key: str
    progress: Json
    error: Json | None

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in {"succeeded", "partial", "failed", "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One server-sent event; `id` resumes the stream after it."""

    id: str
    kind: str
    data: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan body that the service holds; `content` is its bytes as they came."""

    key: str
    digest: str
    evidence: str
    match: str
    body: Json
    content: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """No plan, and why.

    Attributes:
        reason: the service's reason, or `error` when there was no answer.
        error: what went wrong, when something did.
    """

    reason: str
    error: str = ""


@dataclass(slots=True, kw_only=True)
class Counts:
    """What the lookups of one build met; errors apart from misses."""

    hits: int = 0
    misses: int = 0
    errors: int = 0

    @property
    def summary(self) -> str:
        """One line for the end of a build."""
        return f"fuseplan: {self.hits} hits, {self.misses} misses, {self.errors} errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """What a submission asks for.

    Attributes:
        model: ONNX bytes, or graph JSON.
        title: how people should see the model called.
        wait_seconds: how long the service may hold the answer back for a result.
    """

    model: bytes
    target: str = "cpu"
    mode: Literal["analytic", "tuned"] = "analytic"
    budget_seconds: float | None = None
    budget_trials: int | None = None
    options: Json | None = None
    title: str = ""
    wait_seconds: float | None = None

    def request(self) -> dict[str, Any]:
        """The request, as httpx takes it."""
        given = {
            "target": self.target,
            "mode": self.mode,
            "budget_seconds": self.budget_seconds,
            "budget_trials": self.budget_trials,
            "title": self.title or None,
        }
        asked = {name: value for name, value in given.items() if value is not None}
        wait = self.wait_seconds
        headers = {} if wait is None else {"Prefer": f"wait={wait:g}"}
        if self.model.lstrip()[:1] == b"{":
            document = {"graph": json.loads(self.model), **asked}
            if self.options:
                document["options"] = self.options
            return {"json": document, "headers": headers}
        if self.options:
            asked["options"] = json.dumps(self.options)
        headers["Content-Type"] = "application/octet-stream"
        return {"content": self.model, "params": asked, "headers": headers}


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _checked(response: httpx.Response) -> Json:
    """The body of a success.

    Raises:
        Refused: the service sent a problem.
        ServiceUnavailable: the service failed, or sent something else.
    """
    where = str(response.url)
    try:
        document = response.json()
    except ValueError as error:
        raise ServiceUnavailable(
            where, f"HTTP {response.status_code} without JSON", hint="is it Fuseplan?"
        ) from error
    if response.status_code in _SUCCESS:
        return dict(document)
    if response.is_server_error:
        detail = document.get("detail") or f"HTTP {response.status_code}"
        raise ServiceUnavailable(where, str(detail))
    raise Refused(where, response.status_code, document)


def _unavailable(where: str, error: httpx.HTTPError) -> ServiceUnavailable:
    text = str(error) or type(error).__name__
    return ServiceUnavailable(where, text, hint="is `fuseplan serve` running there?")


def _submission(response: httpx.Response) -> Submission:
    document = _checked(response)
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


def _job(document: Json) -> Job:
    return Job(
        id=document["id"],
        state=document["state"],
        plan_key=document["plan_key"],
        progress=document["progress"] or {},
        error=document.get("error"),
    )


def _stored(key: str, response: httpx.Response) -> StoredPlan | Miss:
    if response.status_code == _NOT_FOUND:
        try:
            return Miss(reason=str(response.json().get("reason", "unknown")))
        except ValueError:
            return Miss(reason="error", error="HTTP 404 without a reason")
    body = _checked(response)
    return StoredPlan(
        key=key,
        digest=response.headers.get("etag", "").strip('"'),
        evidence=response.headers.get("fuseplan-evidence", ""),
        match=response.headers.get("fuseplan-match", "exact"),
        body=body,
        content=response.content,
    )


def _bytes(answer: httpx.Response | Miss) -> bytes | Miss:
    if isinstance(answer, Miss):
        return answer
    if answer.status_code == _NOT_FOUND:
        return Miss(reason="evicted")
    if answer.status_code not in _SUCCESS:
        return Miss(reason="error", error=f"HTTP {answer.status_code}")
    return answer.content


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Events from the lines of a stream, by the HTML standard's rules.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
    """
    draft = _Draft()
    for line in lines:
        event = draft.take(line)
        if event is not None:
            yield event


class _Draft:
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
        data = json.loads(text)
        return Event(id=self._id, kind=kind, data=data)


class Client:
    """A connection to one service; use it in a `with` block.

    Args:
        address: for example `http://127.0.0.1:8321`.
        token: bearer token, where the service asks for one.
        timeout_seconds: for everything but lookups and streams.
        lookup_budget_seconds: what all lookups together may take.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        timeout_seconds: float = 120.0,
        lookup_budget_seconds: float = LOOKUP_BUDGET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address.rstrip("/")
        self.counts = Counts()
        self._clock = clock
        self._budget_seconds = lookup_budget_seconds
        self._http = httpx.Client(
            base_url=self.address, headers=_headers(token), timeout=timeout_seconds
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def submit(self, asked: Submit) -> Submission:
        """Hand a model in; the answer holds the best plan so far.

        Raises:
            Refused, ServiceUnavailable: see the classes.
        """
        return _submission(self._send("POST", "/v1/plans", **asked.request()))

    def job(self, job: str) -> Job:
        """A job as it is now."""
        return _job(_checked(self._send("GET", f"/v1/jobs/{job}")))

    def cancel(self, job: str) -> None:
        """Ask for a job to end after the batch in flight."""
        _checked(self._send("DELETE", f"/v1/jobs/{job}"))

    def get(self, path: str) -> Json:
        """Any other resource of the service."""
        return _checked(self._send("GET", path))

    def events(self, job: str, *, after: str = "") -> Iterator[Event]:
        """The events of a job, past and to come, until it is over.

        Args:
            job: id of the job.
            after: id of the last event seen; the stream goes on behind it.
        """
        path = f"/v1/jobs/{job}/events"
        headers = {"Last-Event-ID": after} if after else {}
        timeout = httpx.Timeout(10.0, read=None)
        try:
            with self._http.stream(
                "GET", path, headers=headers, timeout=timeout
            ) as answer:
                if answer.status_code not in _SUCCESS:
                    answer.read()
                    _checked(answer)
                yield from parse_events(answer.iter_lines())
        except httpx.HTTPError as error:
            raise _unavailable(self.address + path, error) from error

    def lookup(self, key: str, *, evidence: Evidence = "analytic") -> StoredPlan | Miss:
        """The stored plan of a key; never raises, never takes longer than the budget.

        Args:
            key: plan key.
            evidence: least evidence that will do.
        """
        if self._budget_seconds <= 0:
            return self._count(Miss(reason="error", error="the time budget is spent"))
        started = self._clock()
        try:
            found = self._lookup(key, evidence, started + self._budget_seconds)
        except httpx.HTTPError as error:
            found = Miss(reason="error", error=str(error) or type(error).__name__)
        except ClientError as error:
            found = Miss(reason="error", error=str(error))
        self._budget_seconds -= self._clock() - started
        return self._count(found)

    def blob(self, digest: str) -> bytes | Miss:
        """The bytes of a digest; never raises, shares the budget of the lookups."""
        started = self._clock()
        try:
            answer = self._read(
                f"/v1/blobs/sha256/{digest}", None, started + self._budget_seconds
            )
        except httpx.HTTPError as error:
            return Miss(reason="error", error=str(error) or type(error).__name__)
        finally:
            self._budget_seconds -= self._clock() - started
        return _bytes(answer)

    def export_bundle(self, **query: Any) -> bytes:
        """Plans of the service as a bundle.

        Args:
            query: `key` (a list), `target`, `evidence`, as the route takes them.
        """
        answer = self._send("GET", "/v1/bundles", params=query)
        if answer.status_code not in _SUCCESS:
            _checked(answer)
        return answer.content

    def import_bundle(self, data: bytes) -> Json:
        """Hand a bundle in; gives the keys that it holds and those that it changed."""
        headers = {"Content-Type": "application/zstd"}
        answer = self._send("POST", "/v1/bundles", content=data, headers=headers)
        return _checked(answer)

    def _lookup(
        self, key: str, evidence: Evidence, deadline: float
    ) -> StoredPlan | Miss:
        asked = {"evidence": evidence} if evidence != "analytic" else None
        answer = self._read(f"/v1/plans/{key}", asked, deadline)
        return answer if isinstance(answer, Miss) else _stored(key, answer)

    def _read(
        self, path: str, asked: Mapping[str, str] | None, deadline: float
    ) -> httpx.Response | Miss:
        """A whole answer before a deadline, however slowly it drips."""
        left = max(0.001, deadline - self._clock())
        with self._http.stream("GET", path, params=asked, timeout=left) as answer:
            parts = []
            for part in answer.iter_raw():
                if self._clock() > deadline:
                    return Miss(reason="error", error="the time budget is spent")
                parts.append(part)
            return httpx.Response(
                answer.status_code,
                headers=answer.headers,
                content=b"".join(parts),
                request=answer.request,
            )

    def _count(self, found: StoredPlan | Miss) -> StoredPlan | Miss:
        if isinstance(found, StoredPlan):
            self.counts.hits += 1
        elif found.reason == "error":
            self.counts.errors += 1
        else:
            self.counts.misses += 1
        return found

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise _unavailable(self.address + path, error) from error


class AsyncClient:
    """The same for asyncio, thin: submit, job, events and lookup."""

    def __init__(
        self, address: str, *, token: str = "", timeout_seconds: float = 120.0
    ) -> None:
        self.address = address.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.address, headers=_headers(token), timeout=timeout_seconds
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def submit(self, asked: Submit) -> Submission:
        """Hand a model in; the answer holds the best plan so far."""
        return _submission(await self._send("POST", "/v1/plans", **asked.request()))

    async def job(self, job: str) -> Job:
        """A job as it is now."""
        return _job(_checked(await self._send("GET", f"/v1/jobs/{job}")))

    async def lookup(self, key: str) -> StoredPlan | Miss:
        """The stored plan of a key, or why there is none; never raises."""
        budget = LOOKUP_BUDGET_SECONDS
        try:
            return _stored(
                key, await self._http.get(f"/v1/plans/{key}", timeout=budget)
            )
        except (httpx.HTTPError, ClientError) as error:
            return Miss(reason="error", error=str(error) or type(error).__name__)

    async def events(self, job: str) -> AsyncIterator[Event]:
        """The events of a job, past and to come, until it is over."""
        path = f"/v1/jobs/{job}/events"
        timeout = httpx.Timeout(10.0, read=None)
        draft = _Draft()
        async with self._http.stream("GET", path, timeout=timeout) as answer:
            async for line in answer.aiter_lines():
                event = draft.take(line)
                if event is not None:
                    yield event

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise _unavailable(self.address + path, error) from error
