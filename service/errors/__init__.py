"""What the service refuses, by kind; `table` and `problems` say how it is told."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class ServiceError(Exception):
    """Base of every deliberate error of the service's edge.

    Attributes:
        code: stable identifier; a row of `table.PROBLEMS`.
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
