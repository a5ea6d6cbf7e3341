"""What an operator watches: requests, lookups, jobs, workers, in Prometheus' format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.store import Database, heartbeats, jobs, measurements, plans

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30)
"""Bounds of the histogram: a cached lookup takes milliseconds, a plan seconds."""


class Metrics:
    """Counters of one application; nothing is global, so that tests do not mix.

    Args:
        database: told of at each scrape.
        clock: gives the present moment.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "fuseplan_http_requests",
            "Requests by route and status",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "fuseplan_http_request_seconds",
            "Time from a request's head to its answer's end",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._lookups = Counter(
            "fuseplan_lookups",
            "Plans looked up by key: hit, compatible, or why not",
            ("result",),
            registry=self._registry,
        )
        self._problems = Counter(
            "fuseplan_problems",
            "Problem documents by code",
            ("code",),
            registry=self._registry,
        )
        self._counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._hits = self._lookups.labels("hit")
        self._registry.register(_StoreCollector(database, clock))

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        place = (method, route, status)
        found = self._counted.get(place)
        if found is None:
            found = self._counted[place] = (
                self._requests.labels(method, route, str(status)),
                self._seconds.labels(route),
            )
        count, times = found
        count.inc()
        times.observe(seconds)

    def looked_up(self, *, hits: int = 0, reasons: Iterable[str] = ()) -> None:
        """Count lookups: found ones, and the others by reason."""
        if hits:
            self._hits.inc(hits)
        for reason in reasons:
            self._lookups.labels(reason).inc()

    def problem(self, code: str) -> None:
        """Count a problem document."""
        self._problems.labels(code).inc()

    def text(self) -> bytes:
        """Everything, as it stands now."""
        return generate_latest(self._registry)


class _StoreCollector(Collector):
    """Reads the database when it is asked."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: the database may not be there yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Gauges of what is stored."""
        with self._database.read() as session:
            by_state = jobs.count(session)
            waiting = jobs.waiting(session)
            by_evidence = plans.count(session)
            measured = measurements.count(session)
            failed = measurements.failures(session)
            beats = heartbeats.all_workers(session)
        now = self._clock()
        yield _family("jobs", "Jobs by state", "state", by_state.items())
        yield _family(
            "queue_depth", "Jobs that wait, by queue", "queue", waiting.items()
        )
        yield _family(
            "plans", "Keys with a plan, by evidence", "evidence", by_evidence.items()
        )
        yield _family(
            "measurement_failures",
            "Kernel runs that failed or were killed, by cause",
            "cause",
            failed.items(),
        )
        yield GaugeMetricFamily(
            "fuseplan_measurements", "Kernel runs stored", value=measured
        )
        yield GaugeMetricFamily(
            "fuseplan_workers", "Workers that did not end in order", value=len(beats)
        )
        yield _family(
            "worker_silence_seconds",
            "Time since a worker's last sign of life",
            "worker",
            ((b.worker, max(0.0, (now - b.seen_at).total_seconds())) for b in beats),
        )


def _family(
    name: str, text: str, label: str, values: Iterable[tuple[str, float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"fuseplan_{name}", text, labels=(label,))
    for value, number in values:
        family.add_metric((value,), number)
    return family
