"""Jobs as lines of a list and as the head of their own page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

Json = Mapping[str, Any]

STATES: Final = ("queued", "running", "succeeded", "partial", "failed", "cancelled")
OVER: Final = frozenset({"succeeded", "partial", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One tuning job.

    Attributes:
        title: how its submitter calls the model; the key's start where it has no name.
        elapsed_seconds: from submission to the end, or to now.
        problem: what a failed job says, else "".
    """

    id: str
    title: str
    target: str
    state: str
    plan_key: str
    trials: int
    best_seconds: float | None
    gap: float | None
    remaining_seconds: float | None
    created_at: datetime | None
    elapsed_seconds: float | None
    problem: str
    names: Mapping[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in OVER


def job_line(job: Json, now: datetime) -> JobLine:
    """A job of the API, ready to be shown."""
    progress = job.get("progress") or {}
    created = moment(job.get("created_at"))
    finished = moment(job.get("finished_at"))
    until = finished or now
    error = job.get("error") or {}
    return JobLine(
        id=job["id"],
        title=str(job.get("title") or f"plan {job['plan_key'][:12]}"),
        target=str(job.get("target") or ""),
        state=job["state"],
        plan_key=job["plan_key"],
        trials=int(progress.get("trials") or 0),
        best_seconds=progress.get("best_seconds"),
        gap=progress.get("gap"),
        remaining_seconds=progress.get("remaining_seconds"),
        created_at=created,
        elapsed_seconds=(until - created).total_seconds() if created else None,
        problem=str(error.get("detail") or error.get("title") or ""),
        names=job.get("names") or {},
    )


def moment(text: str | None) -> datetime | None:
    """A moment of the API; one without a zone is UTC."""
    if not text:
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
