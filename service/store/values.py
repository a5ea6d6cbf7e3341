"""Values that a planner makes and the database stores.

They know no database: a command that only plans starts without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Evidence = Literal["analytic", "compiled", "measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Immutable bytes under their SHA-256.

    Attributes:
        digest: 64 hexadecimal digits.
        public: whether anybody who knows the digest may read it; submitted models
            are not public.
    """

    digest: str
    media_type: str
    content: bytes
    public: bool = True

    @classmethod
    def of(cls, content: bytes, media_type: str, *, public: bool = True) -> Blob:
        """The blob of some bytes."""
        digest = hashlib.sha256(content).hexdigest()
        return cls(digest=digest, media_type=media_type, content=content, public=public)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanIdentity:
    """What a plan key stands for.

    Attributes:
        parts: hash of each part of the key (graph, target, toolchain, options).
        options: the options themselves, JSON-ready.
    """

    key: str
    graph_hash: str
    target: str
    parts: Mapping[str, str]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRevision:
    """A plan body to be stored.

    Attributes:
        body: canonical bytes; their SHA-256 is the digest.
        blobs: everything that the body names.
        seconds: by what plans of equal evidence are compared, less is better:
            measured time of the whole plan, or the predicted one.
        contended: whether others disturbed its measurement; it then replaces nothing.
        job: the job that found it, if one did.
    """

    evidence: Evidence
    body: bytes
    seconds: float
    objective_seconds: float
    bound_seconds: float
    kernels: int
    blobs: tuple[Blob, ...] = ()
    contended: bool = False
    job: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        trials: measurements made.
        best_seconds: best time of the whole plan so far, predicted until measured.
        gap: greatest relative distance from the optimum.
        remaining_seconds: at most how long it will still take.
        kernels: kernels of the best plan so far.
    """

    trials: int = 0
    best_seconds: float | None = None
    gap: float | None = None
    remaining_seconds: float | None = None
    kernels: int | None = None
