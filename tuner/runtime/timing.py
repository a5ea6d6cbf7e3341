"""Samples of a time, their median, its confidence, and who disturbed it."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tuner.plan import Measurement

MIN_SAMPLES: Final = 7
"""The interval from the least to the greatest of 7 covers the median with 98 %."""
_CONFIDENCE: Final = 0.95
_SAMPLE_SECONDS: Final = 1e-3
_MAX_LAUNCHES: Final = 2000
_WARM_UP_SECONDS: Final = 5e-3
_SLOW_SECONDS: Final = 0.1
"""A kernel that takes so long is warm after one launch."""
_EARLY_SAMPLES: Final = 3
CONTENDED_SHARE: Final = 0.05
"""CPU time of other processes, as a share of one core, above which samples count as
disturbed."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LEAST_TICKS: Final = 2
_STEAL_FIELD: Final = 8
"""Of the first line of `/proc/stat`: cpu, user, nice, system, idle, iowait, irq,
softirq, steal."""

Run = Callable[[int], float]
"""Launches a kernel so many times and gives the seconds that all took together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How long and how often to measure; see `MeasureRequest`."""

    repeats: int = 15
    budget_seconds: float = 0.5
    abandon_above_seconds: float = math.inf
    attempts: int = 1


def confidence_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Narrowest symmetric order statistics that cover the median with 95 %.

    Source: H. A. David, H. N. Nagaraja, "Order Statistics", 3rd ed., section 7.1.
    """
    ordered = sorted(samples)
    count = len(ordered)
    tail, cut = 0.5**count, 0
    while cut + 1 < (count + 1) // 2:
        wider = tail + math.comb(count, cut + 1) * 0.5**count
        if 1 - 2 * wider < _CONFIDENCE:
            break
        tail, cut = wider, cut + 1
    return ordered[cut], ordered[count - 1 - cut]


def summarise(samples: Sequence[float], *, contended: bool = False) -> Measurement:
    """Median and interval of samples in seconds."""
    low, high = confidence_interval(samples)
    return Measurement(
        seconds=statistics.median(samples),
        samples=tuple(samples),
        low_seconds=low,
        high_seconds=high,
        contended=contended,
    )


def pooled(rounds: Sequence[Measurement]) -> Measurement:
    """The samples of several rounds as one measurement; a failure if one has failed.

    Args:
        rounds: of one program; at least one.
    """
    for each in rounds:
        if each.failure:
            return each
    samples = [sample for each in rounds for sample in each.samples]
    contended = any(each.contended for each in rounds)
    return replace(
        summarise(samples, contended=contended),
        max_abs_error=max(each.max_abs_error for each in rounds),
        max_rel_error=max(each.max_rel_error for each in rounds),
    )


def measure(run: Run, protocol: Protocol) -> Measurement:
    """Warm up, then sample one kernel."""
    return measure_by_turns([run], protocol)[0]


def measure_by_turns(
    runs: Sequence[Run], protocol: Protocol
) -> tuple[Measurement, ...]:
    """Sample several kernels A B A B ..., so that a drift hits all alike.

    A batch that others disturbed is taken again, up to `attempts` times in all.
    """
    launches = [_launches(run) for run in runs]
    results: tuple[Measurement, ...] = ()
    for _ in range(max(protocol.attempts, 1)):
        watch = Contention()
        samples = _samples(runs, launches, protocol)
        contended = watch.is_contended()
        results = tuple(summarise(part, contended=contended) for part in samples)
        if not contended:
            break
    return results


def _launches(run: Run) -> int:
    """Warm up, and find how many launches make a sample long enough to time."""
    once = run(1)
    if once > _SLOW_SECONDS:
        return 1
    again = max(1, min(int(_WARM_UP_SECONDS / max(once, 1e-7)), _MAX_LAUNCHES))
    each = max(run(again) / again, 1e-8)
    return max(1, min(math.ceil(_SAMPLE_SECONDS / each), _MAX_LAUNCHES))


def _samples(
    runs: Sequence[Run], launches: Sequence[int], protocol: Protocol
) -> list[list[float]]:
    samples: list[list[float]] = [[] for _ in runs]
    start = time.perf_counter()
    for turn in range(max(protocol.repeats, MIN_SAMPLES)):
        for run, count, part in zip(runs, launches, samples, strict=True):
            part.append(run(count) / count)
        if turn + 1 == _EARLY_SAMPLES and _hopeless(samples, protocol):
            break
        spent = time.perf_counter() - start
        if turn + 1 >= MIN_SAMPLES and spent > protocol.budget_seconds:
            break
    return samples


def _hopeless(samples: Sequence[Sequence[float]], protocol: Protocol) -> bool:
    return all(min(part) > protocol.abandon_above_seconds for part in samples)


class Contention:
    """CPU time that others take from the making of this object on.

    Others are the processes of this machine, and of a virtual one also the machines
    beside it: what the host gave to them is counted as stolen.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Note where every process stands, and what was stolen.

        Args:
            proc: the process file system; where there is none, nothing is contended.
        """
        self._proc = proc
        self._own = str(os.getpid())
        self._before = self._ticks()
        self._start = time.perf_counter()

    def is_contended(self) -> bool:
        """Whether others took more than `CONTENDED_SHARE` of a core since."""
        now = self._ticks()
        seconds = max(time.perf_counter() - self._start, 1e-9)
        spent = sum(max(t - self._before.get(p, t), 0) for p, t in now.items())
        return spent > max(_LEAST_TICKS, CONTENDED_SHARE * seconds * _TICKS)

    def _ticks(self) -> dict[str, int]:
        found = {}
        for folder in self._proc.glob("[0-9]*"):
            if folder.name == self._own:
                continue
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            found[folder.name] = int(fields[11]) + int(fields[12])  # utime, stime
        stolen = self._stolen()
        return found if stolen is None else {**found, "stolen": stolen}

    def _stolen(self) -> int | None:
        """Ticks of all processors that the host gave to others; see `proc(5)`."""
        try:
            words = (self._proc / "stat").read_text().partition("\n")[0].split()
        except OSError:
            return None
        is_known = words[:1] == ["cpu"] and len(words) > _STEAL_FIELD
        return int(words[_STEAL_FIELD]) if is_known else None
