"""Where plans are, as a lookup of many keys found it a moment ago.

The builds of a farm ask for the same thousand keys one after the other. What one of
them was told is believed for at most a second (`FRESH_SECONDS`), as what a key points
to is (`service.api.hot`), so that the others do not search for each key again. Only
plans are remembered, never that there is none.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from service.api.hot import FRESH_SECONDS
from service.store.plans import PlanPlace
from service.store.values import Evidence

MOST_KEYS: Final = 20_000
"""Keys that are remembered; those told first make room."""


class Places:
    """Places of plans by key; safe to use from many threads.

    Args:
        clock: seconds that only grow.

    Of a key that was forgotten the time is kept: older answers may still come.
    If it made room, nothing that was read by then is taken (`_lost`), of any key.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: OrderedDict[str, tuple[float, PlanPlace | None]] = OrderedDict()
        self._lost = -math.inf

    def now(self) -> float:
        """The present moment of the clock by which places grow old."""
        return self._clock()

    def known(
        self, keys: Iterable[str], wanted: Collection[Evidence]
    ) -> dict[str, PlanPlace]:
        """Those of some keys whose best plan was told a moment ago, and will do.

        Args:
            keys: plan keys.
            wanted: kinds of evidence that will do. Where the plan that is known has
                another one, a better may be stored by now: the database must tell.
        """
        since = self._clock() - FRESH_SECONDS
        with self._lock:
            found = ((key, self._told[key]) for key in keys if key in self._told)
            return {
                key: place
                for key, (read_at, place) in found
                if read_at > since and place is not None and place.evidence in wanted
            }

    def keep(self, found: Mapping[str, PlanPlace], *, read_at: float) -> None:
        """Remember the best plans of some keys, unless something newer is known.

        Args:
            found: what the database told.
            read_at: when it was asked, before it answered.
        """
        with self._lock:
            for key, place in found.items():
                told_at, _ = self._told.get(key, (self._lost, None))
                if read_at > told_at:  # who asked first may be the last to come
                    self._tell(key, read_at, place)

    def forget(self, key: str) -> None:
        """Believe nothing of a key that was read up to this moment."""
        with self._lock:
            self._tell(key, self._clock(), None)

    def _tell(self, key: str, at: float, place: PlanPlace | None) -> None:
        self._told[key] = (at, place)
        self._told.move_to_end(key)
        if len(self._told) > MOST_KEYS:
            _, (told_at, gone) = self._told.popitem(last=False)
            if gone is None:
                self._lost = max(self._lost, told_at)
