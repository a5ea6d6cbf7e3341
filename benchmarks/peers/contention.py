"""How much of the processor others take while we measure."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

SHARE: Final = 0.03
"""CPU time of other processes, as a share of one core, above which a round does not
count."""
_PROC: Final = Path("/proc")
_NANOSECONDS: Final = 1e9


class Others:
    """CPU time of all processes but some, from the making of this object on.

    The scheduler's own clock of each thread is read, in nanoseconds: ticks are too
    coarse for a round. A process that both begins and ends in between is not seen.
    """

    def __init__(self, ours: Collection[int], proc: Path = _PROC) -> None:
        self._proc = proc
        self._ours = {*ours, os.getpid()}
        self._before = self._spent()
        self._start = time.perf_counter()

    def share(self) -> float:
        """Of one core, since."""
        seconds = max(time.perf_counter() - self._start, 1e-9)
        now = self._spent()
        spent = sum(now[key] - self._before.get(key, 0) for key in now)
        return spent / _NANOSECONDS / seconds

    def _spent(self) -> dict[tuple[str, str], int]:
        found = {}
        for process in self._proc.glob("[0-9]*"):
            if int(process.name) in self._ours:
                continue
            try:
                for thread in (process / "task").iterdir():
                    text = (thread / "schedstat").read_text()
                    found[process.name, thread.name] = int(text.split()[0])
            except OSError:  # it ended meanwhile
                continue
        return found
