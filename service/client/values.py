"""What goes to the service and comes from it, as plain values, and what goes wrong."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Evidence = Literal["analytic", "compiled", "measured"]
Json = Mapping[str, Any]


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
class Found:
    """A key that has a plan; its body is the blob `digest`."""

    key: str
    digest: str
    evidence: str
    objective_seconds: float
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """No plan, and why.

    Attributes:
        reason: the service's reason, or `error` when there was no answer.
        error: what went wrong, when something did.
    """

    reason: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """What a submission asks for.

    Attributes:
        model: ONNX bytes, or graph JSON.
        title: how people should see the model called.
        priority: of the jobs that wait, the one with the smallest number is next.
        cache: how the caches are before every launch that the job times.
        partitions: how many distinct partitions the job runs whole, at most.
        wait_seconds: how long the service may hold the answer back for a result.
        repeat_key: makes the request safe to repeat for a day; one is made up for a
            request that queues a job, which is sent again when its connection breaks.
    """

    model: bytes
    target: str = "cpu"
    mode: Literal["analytic", "tuned"] = "analytic"
    budget_seconds: float | None = None
    budget_trials: int | None = None
    options: Json | None = None
    title: str = ""
    priority: int | None = None
    cache: Literal["warm", "cold"] | None = None
    partitions: int | None = None
    wait_seconds: float | None = None
    repeat_key: str = ""

    def request(self) -> dict[str, Any]:
        """The request, as httpx takes it.

        Raises:
            Refused: the model begins like graph JSON, and is none; or the wait never
                ends.
        """
        given = {
            "target": self.target,
            "mode": self.mode,
            "budget_seconds": self.budget_seconds,
            "budget_trials": self.budget_trials,
            "title": self.title or None,
            "priority": self.priority,
            "cache": self.cache,
            "partitions": self.partitions,
        }
        asked = {name: value for name, value in given.items() if value is not None}
        wait = self.wait_seconds
        if wait is not None and not math.isfinite(wait):
            told = {"detail": f"wait_seconds is {wait}, and no number of seconds"}
            raise Refused("wait_seconds", 400, told)
        # The service reads whole seconds (RFC 7240).
        headers = {} if wait is None else {"Prefer": f"wait={math.ceil(wait)}"}
        made_up = secrets.token_hex(16) if self.mode == "tuned" else ""
        if self.repeat_key or made_up:
            headers["Idempotency-Key"] = self.repeat_key or made_up
        if self.model.lstrip()[:1] == b"{":
            headers["Content-Type"] = "application/json"
            return {"content": self._document(asked), "headers": headers}
        if self.options:
            asked["options"] = json.dumps(self.options)
        headers["Content-Type"] = "application/octet-stream"
        return {"content": self.model, "params": asked, "headers": headers}

    def _document(self, asked: Json) -> bytes:
        """The body that holds a graph.

        Raises:
            Refused: it is no JSON, or holds what JSON has no word for.
        """
        try:
            document = {"graph": json.loads(self.model), **asked}
            if self.options:
                document["options"] = self.options
            return json.dumps(document, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            told = {"code": "malformed-body", "detail": f"it is not JSON: {error}"}
            raise Refused("model", 400, told) from error
