"""The time that the lookups of a build may take, and what they meet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from service.client.answers import UNSENT, in_words
from service.client.values import ClientError, Miss

T = TypeVar("T")

LOOKUP_BUDGET_SECONDS: Final = 2.0
"""What all lookups of one client may take together, before they fail open."""

SPENT: Final = Miss(reason="error", error="the time budget is spent")

LEFT_OUT: Final = Miss(reason="error", error="the answer leaves this key out")

FAILURES: Final = (*UNSENT, ClientError, TimeoutError)
"""What a lookup may meet, and never raises."""


@dataclass(slots=True, kw_only=True)
class Counts:
    """What the lookups of one build met; errors apart from misses."""

    hits: int = 0
    misses: int = 0
    errors: int = 0

    @property
    def summary(self) -> str:
        """One line for the end of a build."""
        return f"fuseplan: {self.hits} hits, {self.misses} misses, {self.errors} errors"


class Budget:
    """Time that lookups share; those that run side by side spend it once.

    Safe to use from many threads.

    Args:
        seconds: all of it.
        clock: seconds that only grow.
    """

    def __init__(
        self, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.counts = Counts()
        self._lock = threading.Lock()
        self._left = seconds
        self._clock = clock
        self._running = 0
        self._since = 0.0

    @contextmanager
    def spending(self) -> Iterator[float]:
        """Spend time for as long as the block lasts; gives when it will be over."""
        with self._lock:
            if self._running == 0:
                self._since = self._clock()
            self._running += 1
            deadline = self._since + self._left
        try:
            yield deadline
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._left -= self._clock() - self._since

    def left(self, deadline: float) -> float:
        """Seconds until a deadline; never below zero."""
        return max(0.0, deadline - self._clock())

    def count(self, found: T) -> T:
        """Count what a lookup found; gives it back."""
        with self._lock:
            if not isinstance(found, Miss):
                self.counts.hits += 1
            elif found.reason == "error":
                self.counts.errors += 1
            else:
                self.counts.misses += 1
        return found


def failed(error: Exception) -> Miss:
    """What a failed lookup is to a build."""
    return (
        SPENT
        if isinstance(error, TimeoutError)
        else Miss(reason="error", error=in_words(error))
    )
