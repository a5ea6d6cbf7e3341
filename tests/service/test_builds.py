"""Tests of how builds find plans: order, budget, pins, and never in the way."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import get_args

import pytest

from service.api.comparing import Reason
from service.builds import (
    REASONS,
    Evidence,
    Folder,
    LockedPlan,
    LockFile,
    Resolver,
    in_words,
)
from service.bundle import Bundle, BundledPlan, Content
from service.client import Miss, StoredPlan
from service.errors import BadLock

KEY = "a" * 64
BODY = b'{"schema":"fuseplan.plan/1"}'
DIGEST = hashlib.sha256(BODY).hexdigest()


class Shelf:
    """A service that has these plans, and counts what it is asked.

    Args:
        plans: key -> evidence and bytes.
        seconds: how long each answer takes, on the test's own clock.
    """

    def __init__(
        self, plans: dict[str, tuple[Evidence, bytes]], seconds: float = 0.0
    ) -> None:
        self.plans = plans
        self.asked: list[str] = []
        self.now = 0.0
        self._seconds = seconds

    def lookup(self, key: str, *, evidence: Evidence = "analytic") -> StoredPlan | Miss:
        """The plan of a key."""
        self.asked.append(key)
        self.now += self._seconds
        if key not in self.plans:
            return Miss(reason="unknown")
        kind, body = self.plans[key]
        digest = hashlib.sha256(body).hexdigest()
        return StoredPlan(
            key=key,
            digest=digest,
            evidence=kind,
            match="exact",
            body={},
            content=body,
        )

    def blob(self, digest: str) -> bytes | Miss:
        """The bytes of a digest."""
        self.asked.append(digest)
        self.now += self._seconds
        for _, body in self.plans.values():
            if hashlib.sha256(body).hexdigest() == digest:
                return body
        return Miss(reason="evicted")


def lock() -> LockFile:
    """A lock that pins the one plan."""
    pinned = LockedPlan(
        digest=DIGEST, evidence="measured", target="cpu", model="m.onnx"
    )
    return LockFile(
        schema_="fuseplan.lock/1",
        toolchain={"codegen_revision": 1},
        plans={KEY: pinned},
    )


def bundle() -> Bundle:
    """A bundle that holds the one plan."""
    plan = BundledPlan(
        key=KEY,
        graph_hash="b" * 64,
        nodes=1,
        tensors=2,
        target="cpu",
        parts={},
        options={},
        evidence="measured",
        digest=DIGEST,
        blobs=(),
        seconds=1.0,
        objective_seconds=1.0,
        bound_seconds=1.0,
        kernels=1,
    )
    content = Content(media_type="application/octet-stream", data=BODY)
    return Bundle(plans=(plan,), contents={DIGEST: content})


def test_what_a_service_gave_is_kept(tmp_path: Path) -> None:
    """The second build finds it in the user's folder and asks nobody."""
    shelf = Shelf({KEY: ("measured", BODY)})
    first = Resolver(folder=Folder(tmp_path), remote=shelf).find(KEY, "measured")
    second = Resolver(folder=Folder(tmp_path), remote=shelf).find(KEY, "measured")
    assert first is not None
    assert second is not None
    assert (first.source, second.source) == ("service", "folder")
    assert second.body == BODY
    assert shelf.asked == [KEY]


def test_a_kept_plan_of_less_evidence_is_passed_over(tmp_path: Path) -> None:
    """A better plan is asked for as long as the kept one does not do."""
    folder = Folder(tmp_path)
    folder.keep(KEY, "analytic", b"{}")
    shelf = Shelf({KEY: ("measured", BODY)})
    found = Resolver(folder=folder, remote=shelf).find(KEY, "measured")
    assert found is not None
    assert found.source == "service"


def test_a_bundle_comes_before_the_service(tmp_path: Path) -> None:
    """What lies beside the build is taken without a network."""
    shelf = Shelf({})
    resolver = Resolver(folder=Folder(tmp_path), bundles=(bundle(),), remote=shelf)
    found = resolver.find(KEY, "measured")
    assert found is not None
    assert found.source == "bundle"
    assert shelf.asked == []


def test_a_lock_reads_immutable_bytes_only(tmp_path: Path) -> None:
    """A better plan that came since changes nothing; the digest is asked for."""
    shelf = Shelf({KEY: ("measured", b"better"), "c" * 64: ("measured", BODY)})
    resolver = Resolver(lock=lock(), folder=Folder(tmp_path), remote=shelf)
    found = resolver.find(KEY, "measured")
    assert found is not None
    assert (found.body, found.is_locked) == (BODY, True)
    assert shelf.asked == [DIGEST]


def test_a_locked_build_works_offline_from_a_bundle(tmp_path: Path) -> None:
    """No service is needed when the bundle has the pinned bytes."""
    resolver = Resolver(lock=lock(), folder=Folder(tmp_path), bundles=(bundle(),))
    found = resolver.find(KEY, "measured")
    assert found is not None
    assert found.source == "bundle"


def test_a_key_that_is_not_locked_is_a_miss(tmp_path: Path) -> None:
    """A locked build takes nothing that nobody pinned."""
    shelf = Shelf({"d" * 64: ("measured", BODY)})
    resolver = Resolver(lock=lock(), folder=Folder(tmp_path), remote=shelf)
    assert resolver.find("d" * 64, "analytic") is None
    assert resolver.tally.misses == {"not_locked": 1}
    assert shelf.asked == []


def test_all_lookups_share_one_budget(tmp_path: Path) -> None:
    """Once it is spent nobody is asked any more, and the build is told."""
    shelf = Shelf({}, seconds=1.5)
    resolver = Resolver(
        folder=Folder(tmp_path),
        remote=shelf,
        budget_seconds=2.0,
        clock=lambda: shelf.now,
    )
    keys = [f"{number:064x}" for number in range(10)]
    assert [resolver.find(key, "measured") for key in keys] == [None] * 10
    assert len(shelf.asked) == 2
    assert resolver.tally.misses == {"unknown": 2}
    assert len(resolver.tally.errors) == 8
    line = resolver.tally.summary(2.04)
    assert line == (
        "fuseplan: 0 found, 2 not (2 never asked for), 8 errors (the time budget is"
        " spent), 2.0 s"
    )


def test_bytes_that_do_not_fit_are_not_used(tmp_path: Path) -> None:
    """A damaged folder is passed over, a lying service is an error."""
    folder = Folder(tmp_path)
    folder.keep(KEY, "measured", BODY)
    (tmp_path / "blobs" / "sha256" / DIGEST).write_bytes(b"damaged")
    (tmp_path / "keys" / ("e" * 64)).write_text("[]")

    class Liar(Shelf):
        def blob(self, digest: str) -> bytes | Miss:
            return b"something else"

    resolver = Resolver(lock=lock(), folder=folder, remote=Liar({}))
    assert resolver.find(KEY, "measured") is None
    assert "came with other bytes" in resolver.tally.errors[0]
    assert folder.pointer("e" * 64) is None
    assert folder.blob(DIGEST) is None


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    """The plan is used all the same."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    shelf = Shelf({KEY: ("measured", BODY)})
    found = Resolver(folder=Folder(blocked), remote=shelf).find(KEY, "measured")
    assert found is not None


def test_every_reason_is_told_in_words() -> None:
    """Those of the service and our own; one of a newer service is readable too."""
    assert set(get_args(Reason)) < set(REASONS)
    assert not any("_" in words for words in REASONS.values())
    assert in_words("moved_away") == "moved away"


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    """And one that is damaged, or from the future, is explained."""
    path = tmp_path / "fuseplan.lock"
    path.write_text(lock().text())
    assert LockFile.read(path) == lock()
    for text in ("", "[]", '{"schema": "fuseplan.lock/9"}', lock().text()[:-10]):
        path.write_text(text)
        with pytest.raises(BadLock, match="fuseplan lock"):
            LockFile.read(path)
    with pytest.raises(BadLock, match="cannot be read"):
        LockFile.read(tmp_path / "none")
