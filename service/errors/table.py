"""Every error as users see it: its title, its HTTP status and its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


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
