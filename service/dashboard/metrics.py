"""The service's own counters, from the text that Prometheus reads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(
    r"^fuseplan_(lookups_total|queue_depth|measurement_failures)"
    r'\{(?:result|queue|cause)="([^"\\]*)"\} ([0-9.e+]+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the overview shows of them.

    Attributes:
        lookups: lookups since the service started: `hit`, `compatible`, or why not.
        waiting: jobs that wait, by queue.
        failures: measurements that failed, by cause.
    """

    lookups: Mapping[str, int]
    waiting: Mapping[str, int]
    failures: Mapping[str, int]

    @property
    def hit_rate(self) -> float | None:
        """Share of the lookups that found a plan; None before the first one."""
        whole = sum(self.lookups.values())
        return self.lookups.get("hit", 0) / whole if whole else None

    @property
    def misses(self) -> Mapping[str, int]:
        """Lookups that found no exact plan, by reason."""
        return {name: n for name, n in self.lookups.items() if name != "hit"}


def read_counters(text: str) -> Counters:
    """Counters of a scrape; what is missing counts as empty."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for name, label, number in _LINE.findall(text):
        found[name][label] = int(float(number))
    return Counters(
        lookups=found["lookups_total"],
        waiting={queue: n for queue, n in found["queue_depth"].items() if n},
        failures=found["measurement_failures"],
    )
