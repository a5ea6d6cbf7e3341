"""Plans for builds: pinned by a lock, found without a network, never in the way.

Places are asked in this order: the lock (which pins a digest, so that only immutable
blobs are read), the user's own folder, bundles, the service. All of it together has one
time budget; a build that finds nothing gets None and goes on with an analytic plan.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.bundle import Bundle
from service.client import Miss, StoredPlan
from service.errors import BadLock

LOCK_SCHEMA: Final = "fuseplan.lock/1"

Evidence = Literal["analytic", "compiled", "measured"]
Source = Literal["folder", "bundle", "service"]

RANK: Final[Mapping[Evidence, int]] = MappingProxyType(
    {"analytic": 0, "compiled": 1, "measured": 2}
)

REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "not_here": "kept nowhere here and no service asked",
        "not_locked": "not in the lock",
        "unknown": "never asked for",
        "never_tuned": "never tuned",
        "tuning": "still being tuned",
        "failed": "tuning failed",
        "toolchain_mismatch": "made by another toolchain only",
        "evicted": "evicted",
    }
)
"""Why there is no plan, as people are told it: our own reasons, and the service's."""

_DIGEST: Final = re.compile("[0-9a-f]{64}")
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class LockedPlan(BaseModel):
    """A pinned plan.

    Attributes:
        model: the file that it was locked for, for people only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: Sha256
    evidence: Evidence
    target: str
    model: str


class LockFile(BaseModel):
    """What `fuseplan.lock` holds.

    Attributes:
        toolchain: code generator and compilers that the keys were made with.
        plans: plan key -> what is pinned.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Annotated[
        Literal["fuseplan.lock/1"], Field(alias="schema", default=LOCK_SCHEMA)
    ]
    toolchain: dict[str, Any]
    plans: dict[Sha256, LockedPlan]

    @classmethod
    def read(cls, path: Path) -> LockFile:
        """The lock of a file.

        Raises:
            BadLock: it is not there, or is no lock.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise _bad(path, f"it cannot be read: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise _bad(path, f"{place} {first['msg']}".strip()) from error

    def text(self) -> str:
        """The file's text: sorted and indented, so that a diff shows what changed."""
        told = self.model_dump(mode="json", by_alias=True)
        return json.dumps(told, indent=2, sort_keys=True) + "\n"


def _bad(path: Path, problem: str) -> BadLock:
    return BadLock(str(path), problem, hint="make it again with `fuseplan lock`")


class Folder:
    """The user's own store: bytes by digest, and which digest a key had last.

    Nothing in it is believed: bytes count only when they have their digest.

    Args:
        root: a folder; made when something is kept.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def blob(self, digest: str) -> bytes | None:
        """The bytes of this digest."""
        try:
            data = self._path("blobs/sha256", digest).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def pointer(self, key: str) -> tuple[str, Evidence] | None:
        """Digest and evidence that a key had when it was kept."""
        try:
            told = json.loads(self._path("keys", key).read_bytes())
            digest, evidence = told["digest"], told["evidence"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        is_known = evidence in RANK and _DIGEST.fullmatch(str(digest))
        return (digest, evidence) if is_known else None

    def keep(self, key: str, evidence: str, body: bytes) -> None:
        """Keep a plan; a folder that cannot be written is no fault of the build's."""
        digest = hashlib.sha256(body).hexdigest()
        pointer = json.dumps({"digest": digest, "evidence": evidence}).encode()
        try:
            self._write(self._path("blobs/sha256", digest), body)
            self._write(self._path("keys", key), pointer)
        except OSError:
            return

    def _path(self, kind: str, name: str) -> Path:
        if not _DIGEST.fullmatch(name):
            msg = f"{name!r} is no digest"
            raise ValueError(msg)
        return self._root / kind / name

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        draft.write_bytes(data)
        draft.replace(path)


class Remote(Protocol):
    """A service, as builds ask it; neither call raises."""

    def lookup(self, key: str, *, evidence: Evidence = "analytic") -> StoredPlan | Miss:
        """The stored plan of a key, or why there is none."""

    def blob(self, digest: str) -> bytes | Miss:
        """The bytes of a digest, or why there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A plan that was found for a build."""

    body: bytes
    digest: str
    evidence: Evidence
    source: Source
    is_locked: bool


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the lookups of one build met; errors apart from misses."""

    hits: dict[str, int] = field(default_factory=dict)
    misses: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def summary(self, seconds: float) -> str:
        """One line for the end of a build."""
        hits, misses = sum(self.hits.values()), sum(self.misses.values())
        reasons = {in_words(name): number for name, number in self.misses.items()}
        line = (
            f"fuseplan: {hits} found{_listed(self.hits)}, "
            f"{misses} not{_listed(reasons)}, {len(self.errors)} errors"
        )
        why = f" ({self.errors[0]})" if self.errors else ""
        return f"{line}{why}, {seconds:.1f} s"


def in_words(reason: str) -> str:
    """A reason as people are told it; one of a newer service with spaces."""
    return REASONS.get(reason, reason.replace("_", " "))


def _listed(counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    return f" ({', '.join(f'{number} {name}' for name, number in counts.items())})"


class _Missing(Exception):
    """There is no such plan; the text is the reason, in one word."""


class _Trouble(Exception):
    """A place that should answer did not."""


class Resolver:
    """Finds plans for one build.

    Args:
        lock: what is pinned; a locked key is looked up by its digest alone.
        folder: the user's own store.
        bundles: bundles that lie beside the build.
        remote: the service; None when there is none or the build is offline.
        budget_seconds: what all lookups may take together.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        *,
        folder: Folder,
        lock: LockFile | None = None,
        bundles: tuple[Bundle, ...] = (),
        remote: Remote | None = None,
        budget_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = lock
        self._folder = folder
        self._bundles = bundles
        self._remote = remote
        self._clock = clock
        self._ends_at = clock() + budget_seconds
        self.tally = Tally()

    def find(self, key: str, least: Evidence) -> Resolved | None:
        """The plan of a key, or None: then the build plans for itself.

        Args:
            key: plan key.
            least: least evidence that will do; a pin is taken as it is.
        """
        try:
            found = self._found(key, least)
        except _Missing as miss:
            reason = str(miss)
            self.tally.misses[reason] = self.tally.misses.get(reason, 0) + 1
            return None
        except _Trouble as trouble:
            self.tally.errors.append(str(trouble))
            return None
        name = "locked" if found.is_locked else found.source
        self.tally.hits[name] = self.tally.hits.get(name, 0) + 1
        return found

    def _found(self, key: str, least: Evidence) -> Resolved:
        if self._lock is None:
            near = self._in_folder(key, least) or self._in_bundles(key, least)
            return near or self._from_service(key, least)
        pinned = self._lock.plans.get(key)
        if pinned is None:
            raise _Missing("not_locked")
        body, source = self._bytes(pinned.digest)
        self._folder.keep(key, pinned.evidence, body)
        return Resolved(
            body=body,
            digest=pinned.digest,
            evidence=pinned.evidence,
            source=source,
            is_locked=True,
        )

    def _bytes(self, digest: str) -> tuple[bytes, Source]:
        """The bytes of a digest, from the nearest place that has them."""
        held = self._folder.blob(digest)
        if held is not None:
            return held, "folder"
        for bundle in self._bundles:
            if digest in bundle.contents:
                return bundle.contents[digest].data, "bundle"
        told = _given(self._service().blob(digest))
        return _checked(told, digest), "service"

    def _from_service(self, key: str, least: Evidence) -> Resolved:
        told = _given(self._service().lookup(key, evidence=least))
        body = _checked(told.content, told.digest)
        self._folder.keep(key, told.evidence, body)
        return _resolved(body, _evidence(told.evidence), "service")

    def _service(self) -> Remote:
        """The service, while there is time."""
        if self._remote is None:
            raise _Missing("not_here")
        if self._clock() >= self._ends_at:
            raise _Trouble("the time budget is spent")
        return self._remote

    def _in_folder(self, key: str, least: Evidence) -> Resolved | None:
        held = self._folder.pointer(key)
        if held is None or RANK[held[1]] < RANK[least]:
            return None
        body = self._folder.blob(held[0])
        return None if body is None else _resolved(body, held[1], "folder")

    def _in_bundles(self, key: str, least: Evidence) -> Resolved | None:
        for bundle in self._bundles:
            for plan in bundle.plans:
                if plan.key == key and RANK[plan.evidence] >= RANK[least]:
                    return _resolved(bundle.body(plan), plan.evidence, "bundle")
        return None


Told = TypeVar("Told")


def _given(told: Told | Miss) -> Told:
    if isinstance(told, Miss):
        raise _Trouble(told.error) if told.error else _Missing(told.reason)
    return told


def _checked(data: bytes, digest: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != digest:
        raise _Trouble(f"{digest[:12]} came with other bytes")
    return data


def _resolved(body: bytes, evidence: Evidence, source: Source) -> Resolved:
    return Resolved(
        body=body,
        digest=hashlib.sha256(body).hexdigest(),
        evidence=evidence,
        source=source,
        is_locked=False,
    )


def _evidence(word: str) -> Evidence:
    return next((known for known in RANK if known == word), "analytic")
