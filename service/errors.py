"""Domain errors as users see them: one table for HTTP status and exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from service.store.errors import StoreError, StoreUnavailable
from tuner.errors import TunerError

MEDIA_TYPE: Final = "application/problem+json"


class ServiceError(Exception):
    """Base of every deliberate error of the service's edge.

    Attributes:
        code: stable identifier; a row of `PROBLEMS`.
        where: the parameter, path or record that the error is about.
        problem: what is wrong there.
        hint: what the user can do.
        extra: further members of the problem document.
        headers: HTTP headers that go with it.
    """

    code = "unexpected"

    def __init__(
        self,
        where: str,
        problem: str,
        *,
        hint: str = "",
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.where = where
        self.problem = problem
        self.hint = hint
        self.extra = MappingProxyType(dict(extra or {}))
        self.headers = MappingProxyType(dict(headers or {}))
        super().__init__(f"{where}: {problem}" + (f" ({hint})" if hint else ""))


class InvalidRequest(ServiceError):
    """Parameters or body do not keep the schema."""

    code = "invalid-request"


class MalformedBody(ServiceError):
    """The body is not JSON, or is empty."""

    code = "malformed-body"


class BodyTooLarge(ServiceError):
    """The body exceeds the service's limit."""

    code = "body-too-large"


class UnsupportedMediaType(ServiceError):
    """The body's type is none that the route takes."""

    code = "unsupported-media-type"


class PlanNotFound(ServiceError):
    """No plan is stored for the key; `extra["reason"]` says why."""

    code = "plan-not-found"


class BlobNotFound(ServiceError):
    """No public blob has this digest."""

    code = "blob-not-found"


class JobNotFound(ServiceError):
    """No job has this id."""

    code = "job-not-found"


class JobEnded(ServiceError):
    """The job has ended already."""

    code = "job-ended"


class PlanPinned(ServiceError):
    """The plan is pinned, so that it stays."""

    code = "plan-pinned"


class ModelNotStored(ServiceError):
    """The plan is there, and the model that it was made of is not."""

    code = "model-not-stored"


class DeviceNotFound(ServiceError):
    """The catalogue has no such device."""

    code = "device-not-found"


class NodeNotFound(ServiceError):
    """The graph of a plan has no such node."""

    code = "node-not-found"


class TooManyKeys(ServiceError):
    """One lookup may ask for so many keys and not more."""

    code = "too-many-keys"


class IdempotencyMismatch(ServiceError):
    """The Idempotency-Key was used before, with another request."""

    code = "idempotency-mismatch"


class BadBundle(ServiceError):
    """A bundle is damaged, or is not what it says."""

    code = "bad-bundle"


class BundleTooLarge(ServiceError):
    """A bundle holds, or unfolds to, more than is allowed."""

    code = "bundle-too-large"


class BundleConflict(ServiceError):
    """A bundle and the database disagree on what a key means."""

    code = "bundle-conflict"


class UntrustedBundle(ServiceError):
    """No trusted key signed a bundle."""

    code = "untrusted-bundle"


class SigningUnavailable(ServiceError):
    """A key, or what signs with it, cannot be used."""

    code = "signing-unavailable"


class TracingUnavailable(ServiceError):
    """Spans cannot be sent."""

    code = "tracing-unavailable"


class BadLock(ServiceError):
    """A lock file cannot be used."""

    code = "bad-lock"


class ModelNotReadable(ServiceError):
    """The process that reads models died of this one, or took too long."""

    code = "model-not-readable"


class TokenRequired(ServiceError):
    """The service wants a bearer token, and got none that is valid."""

    code = "token-required"


class ScopeMissing(ServiceError):
    """The token does not allow this."""

    code = "scope-missing"


class RateLimited(ServiceError):
    """Too many requests in too little time."""

    code = "rate-limited"


class TokenExists(ServiceError):
    """A token of this name exists already."""

    code = "token-exists"


class TokenNotFound(ServiceError):
    """There is no token of this name."""

    code = "token-not-found"


class WorkerUnavailable(ServiceError):
    """No worker can take the job."""

    code = "worker-unavailable"


class DeviceBusy(ServiceError):
    """Another worker has the device."""

    code = "device-busy"


class UnsafeAddress(ServiceError):
    """The service may not listen there."""

    code = "unsafe-address"


class JobLost(ServiceError):
    """A job's worker died again and again while it did it."""

    code = "job-lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one kind of error is told.

    Attributes:
        exit_code: of the command line.
    """

    status: int
    exit_code: int
    title: str


PROBLEMS: Final[Mapping[str, Row]] = MappingProxyType(
    {
        # the tuner's
        "invalid-model": Row(status=422, exit_code=4, title="The model is not valid"),
        "unsupported-model": Row(
            status=422, exit_code=4, title="The model uses something that is refused"
        ),
        "model-too-large": Row(
            status=413, exit_code=4, title="The model exceeds a limit"
        ),
        "unbound-dimensions": Row(
            status=422, exit_code=2, title="Dimensions of the model have no size"
        ),
        "unknown-target": Row(
            status=422, exit_code=2, title="The target is not in the catalogue"
        ),
        "invalid-option": Row(status=422, exit_code=2, title="An option is not valid"),
        "constraints-unsatisfiable": Row(
            status=422, exit_code=8, title="Pins or caps leave no legal plan"
        ),
        "device-unavailable": Row(
            status=503, exit_code=5, title="The device is not there"
        ),
        "compile-failed": Row(
            status=500, exit_code=1, title="A compiler refused a generated kernel"
        ),
        "cannot-lower": Row(
            status=500, exit_code=1, title="A kernel family cannot run a region"
        ),
        "resources-exceeded": Row(
            status=500, exit_code=1, title="A kernel needs more than the device has"
        ),
        "kernel-failed": Row(status=500, exit_code=1, title="A kernel failed"),
        "verification-failed": Row(
            status=500, exit_code=6, title="Outputs differ from the reference"
        ),
        "internal-error": Row(
            status=500, exit_code=1, title="A promise inside the planner was broken"
        ),
        "tuner-error": Row(status=500, exit_code=1, title="The planner failed"),
        # the store's
        "store-unavailable": Row(
            status=503, exit_code=7, title="The database cannot be used"
        ),
        "broken-reference": Row(
            status=500, exit_code=7, title="A stored record names a missing one"
        ),
        "backup-failed": Row(
            status=500, exit_code=7, title="The copy of the database cannot be made"
        ),
        "store-damaged": Row(
            status=500, exit_code=7, title="Stored plans are not whole"
        ),
        "store-error": Row(status=500, exit_code=7, title="The database failed"),
        # the command line's and the client's
        "bad-argument": Row(
            status=400, exit_code=2, title="An argument cannot be used as given"
        ),
        "cache-miss": Row(status=404, exit_code=3, title="No such plan is stored"),
        "service-unavailable": Row(
            status=503, exit_code=7, title="The service gave no usable answer"
        ),
        "interrupted": Row(status=499, exit_code=130, title="Interrupted"),
        # the edge's
        "invalid-request": Row(status=422, exit_code=2, title="The request is wrong"),
        "malformed-body": Row(status=400, exit_code=2, title="The body cannot be read"),
        "body-too-large": Row(status=413, exit_code=4, title="The body is too large"),
        "unsupported-media-type": Row(
            status=415, exit_code=2, title="The body has the wrong type"
        ),
        "plan-not-found": Row(status=404, exit_code=3, title="There is no such plan"),
        "blob-not-found": Row(status=404, exit_code=3, title="There is no such blob"),
        "job-not-found": Row(status=404, exit_code=2, title="There is no such job"),
        "job-ended": Row(status=409, exit_code=2, title="The job has ended"),
        "plan-pinned": Row(status=409, exit_code=2, title="The plan is pinned"),
        "model-not-stored": Row(
            status=409, exit_code=2, title="The model of this plan is not stored"
        ),
        "job-lost": Row(
            status=500, exit_code=1, title="The worker died while it did the job"
        ),
        "node-not-found": Row(
            status=404, exit_code=2, title="The graph has no such node"
        ),
        "too-many-keys": Row(
            status=413, exit_code=2, title="The lookup asks for too many keys"
        ),
        "idempotency-mismatch": Row(
            status=422, exit_code=2, title="The Idempotency-Key was used before"
        ),
        "bad-bundle": Row(status=422, exit_code=4, title="The bundle is damaged"),
        "bundle-too-large": Row(
            status=413, exit_code=4, title="The bundle is too large"
        ),
        "bundle-conflict": Row(
            status=409, exit_code=7, title="The bundle contradicts the database"
        ),
        "untrusted-bundle": Row(
            status=422, exit_code=4, title="No trusted key signed the bundle"
        ),
        "signing-unavailable": Row(
            status=500, exit_code=2, title="Bundles cannot be signed or checked here"
        ),
        "tracing-unavailable": Row(
            status=500, exit_code=2, title="Spans cannot be sent"
        ),
        "bad-lock": Row(status=422, exit_code=2, title="The lock file is damaged"),
        "model-not-readable": Row(
            status=422, exit_code=4, title="The model could not be read in safety"
        ),
        "token-required": Row(status=401, exit_code=7, title="A valid token is needed"),
        "scope-missing": Row(
            status=403, exit_code=7, title="The token does not allow this"
        ),
        "rate-limited": Row(status=429, exit_code=7, title="Too many requests"),
        "token-exists": Row(status=409, exit_code=2, title="The token exists already"),
        "token-not-found": Row(status=404, exit_code=2, title="There is no such token"),
        "device-not-found": Row(
            status=404, exit_code=2, title="There is no such device"
        ),
        "worker-unavailable": Row(
            status=503, exit_code=7, title="No worker can take the job"
        ),
        "device-busy": Row(
            status=503, exit_code=5, title="Another worker has the device"
        ),
        "unsafe-address": Row(
            status=500, exit_code=2, title="The address would be open to others"
        ),
        "route-not-found": Row(status=404, exit_code=2, title="There is no such page"),
        "method-not-allowed": Row(
            status=405, exit_code=2, title="The route does not take this method"
        ),
        "http-error": Row(status=400, exit_code=2, title="The request is refused"),
        "unexpected": Row(
            status=500, exit_code=1, title="Something unexpected happened"
        ),
    }
)
"""Every stable code. Rows are added, none is renamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error, ready to be told over HTTP (RFC 9457) or on a terminal.

    Attributes:
        detail: what is wrong.
        where: the place that it is about.
        hint: what to do.
        instance: the request that it happened in.
        extra: further members, such as `reason` or `errors`.
    """

    code: str
    status: int
    exit_code: int
    title: str
    detail: str
    where: str = ""
    hint: str = ""
    instance: str = ""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def document(self) -> dict[str, Any]:
        """The problem+json document."""
        document: dict[str, Any] = {
            "type": f"urn:fuseplan:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "where": self.where,
            "hint": self.hint,
        }
        if self.instance:
            document["instance"] = f"urn:fuseplan:request:{self.instance}"
        return {**document, **self.extra}


def problem(  # noqa: PLR0913 - the members of RFC 9457, all by name
    code: str,
    detail: str,
    *,
    where: str = "",
    hint: str = "",
    instance: str = "",
    status: int | None = None,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Problem:
    """A problem by its code."""
    row = PROBLEMS[code]
    return Problem(
        code=code,
        status=row.status if status is None else status,
        exit_code=row.exit_code,
        title=row.title,
        detail=detail,
        where=where,
        hint=hint,
        instance=instance,
        extra=extra or MappingProxyType({}),
        headers=headers or MappingProxyType({}),
    )


def problem_of(error: BaseException, *, instance: str = "", where: str = "") -> Problem:
    """How an error is told; one that nobody expected tells nothing of the inside.

    Args:
        error: what was raised.
        instance: the request that it happened in.
        where: the place to name when the error itself names none.
    """
    if isinstance(error, ServiceError):
        return problem(
            error.code,
            error.problem,
            where=error.where,
            hint=error.hint,
            instance=instance,
            extra=error.extra,
            headers=error.headers,
        )
    if isinstance(error, (TunerError, StoreError)):
        reason = (
            {"reason": error.reason} if isinstance(error, StoreUnavailable) else None
        )
        return problem(
            error.code,
            error.problem,
            where=error.where,
            hint=error.hint,
            instance=instance,
            extra=reason,
        )
    return problem(
        "unexpected",
        "the service failed in a way that nobody foresaw",
        where=where or f"request {instance}",
        hint="look for it in the log of the service, and report it",
        instance=instance,
    )


def invalid(errors: Sequence[Mapping[str, Any]], *, instance: str = "") -> Problem:
    """Violations of a schema, as pydantic lists them."""
    told = [
        {
            "where": ".".join(map(str, error["loc"])),
            "problem": str(error["msg"]),
            "code": str(error["type"]),
        }
        for error in errors
    ]
    first = told[0] if told else {"where": "request", "problem": "is wrong"}
    return problem(
        "invalid-request",
        first["problem"],
        where=first["where"],
        hint="see /openapi.json for what the route takes",
        instance=instance,
        extra={"errors": told},
    )
