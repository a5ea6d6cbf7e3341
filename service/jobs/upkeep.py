"""Retention as the settings want it."""

from __future__ import annotations

from datetime import datetime, timedelta

from service.settings import Settings
from service.store import Database
from service.store import retention as stored
from service.store.retention import Collected, Retention


def retention(settings: Settings, now: datetime) -> Retention:
    """What is too old at a moment."""

    def before(days: float) -> datetime:
        return now - timedelta(days=days)

    return Retention(
        revisions_before=before(settings.retain_days),
        keep_revisions=settings.retain_revisions,
        jobs_before=before(settings.retain_jobs_days),
        audit_before=before(settings.retain_audit_days),
    )


def collect(database: Database, wanted: Retention, *, keep: bool) -> Collected:
    """Remove what is too old, in one transaction.

    Args:
        database: where.
        wanted: what is too old.
        keep: only tell what would go.
    """
    with database.write() as session, session.begin_nested() as point:
        gone = stored.collect(session, wanted)
        if keep:
            point.rollback()
    return gone
