"""Results of batches on disk, so that a benchmark goes on where it was ended."""

from __future__ import annotations

import json
import math
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


Json = dict[str, Any]


class OutOfTime(Exception):
    """This call may measure no longer."""


@contextmanager
def ended_by(end: float) -> Iterator[None]:
    """Ends what is under way when the time is up, a batch that hangs too.

    Args:
        end: in monotonic seconds.

    Raises:
        OutOfTime: it is.
    """

    def ring(_number: int, _frame: object) -> NoReturn:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    if math.isfinite(end):
        signal.setitimer(signal.ITIMER_REAL, max(end - monotonic(), 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(kw_only=True)
class Log:
    """Results of batches by run, on disk after each of them.

    Attributes:
        path: None keeps them nowhere.
        end: monotonic seconds after which nothing more is measured.
    """

    path: Path | None = None
    end: float = math.inf
    runs: dict[str, Json] = field(default_factory=dict)

    @classmethod
    def opened(cls, path: Path | None, minutes: float) -> Log:
        """A log with what an earlier call left in it."""
        found = cls(path=path, end=monotonic() + 60.0 * minutes)
        if path is not None and path.exists():
            found.runs.update(json.loads(path.read_text()))
        return found

    def run(self, label: str) -> Json:
        """What is known of a run: its batches' results, and the seconds they took."""
        return self.runs.setdefault(label, {"batches": [], "wall_seconds": 0.0})

    def write(self) -> None:
        """Write everything, whole or not at all."""
        if self.path is None:
            return
        draft = self.path.with_name(f"{self.path.name}.part")
        draft.write_text(json.dumps(self.runs))
        draft.replace(self.path)
