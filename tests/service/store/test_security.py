"""Tests of tokens, audit events and repeated requests."""

from __future__ import annotations

from datetime import datetime, timedelta

from service.store import Database, audit, idempotency, tokens
from service.store.audit import AuditDraft
from service.store.idempotency import LIFETIME, Repeated
from service.store.tokens import Token


def token(now: datetime, name: str = "build", **given: object) -> Token:
    """A token that may read."""
    told = {"expires_at": None, **given}
    return Token(
        id=name,
        name=name,
        hash=tokens.hash_of(name),
        scopes=("plans:read",),
        created_at=now,
        **told,  # type: ignore[arg-type]
    )


def test_a_token_is_found_by_its_hash_alone(database: Database, now: datetime) -> None:
    """The text of a token is nowhere in the table."""
    with database.write() as session:
        tokens.add(session, token(now))
        hashes = [tokens.hash_of(text) for text in ("build", "other")]
        known = tokens.by_hashes(session, hashes)
    assert list(known) == hashes[:1]
    found = known[hashes[0]]
    assert found.is_valid(now)
    assert found.allows("plans:read")
    assert not found.allows("admin")


def test_a_revoked_or_expired_token_opens_nothing(
    database: Database, now: datetime
) -> None:
    """Both stay in the list, so that it says who had access."""
    later = now + timedelta(days=1)
    with database.write() as session:
        tokens.add(session, token(now, "old", expires_at=later))
        tokens.add(session, token(now, "bad"))
        revoked = tokens.revoke(session, "bad", now=now)
        assert tokens.revoke(session, "nobody", now=now) is None
        old, bad = tokens.find(session, "old"), tokens.find(session, "bad")
        assert tokens.count(session) == 2
    assert revoked is not None
    assert bad == revoked
    assert old is not None
    assert old.is_valid(now)
    assert not old.is_valid(later)
    assert not revoked.is_valid(now)


def test_audit_events_come_page_by_page(database: Database, now: datetime) -> None:
    """The newest first, each once."""
    with database.write() as session:
        for number in range(5):
            draft = AuditDraft(actor="a", action="job.submit", subject=str(number))
            audit.record(session, draft, now=now)
        first = audit.page(session, limit=3)
        second = audit.page(session, before=first[-1].id, limit=3)
    assert [one.draft.subject for one in (*first, *second)] == list("43210")


def test_a_repeated_request_is_known_for_a_day(
    database: Database, now: datetime
) -> None:
    """The first answer stays, a second one with the key changes nothing."""
    first = Repeated(key_hash="k", fingerprint="f", plan_key="p", job="j")
    other = Repeated(key_hash="k", fingerprint="g", plan_key="q", job=None)
    with database.write() as session:
        idempotency.remember(session, first, now=now)
        idempotency.remember(session, other, now=now)
    with database.read() as session:
        assert idempotency.find(session, "k", now=now) == first
        later = now + LIFETIME + timedelta(seconds=1)
        assert idempotency.find(session, "k", now=later) is None
