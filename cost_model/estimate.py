"""The model's answer: seconds by term, and on what evidence they rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Evidence(StrEnum):
    """What a number rests on, weakest first."""

    ANALYTIC = "analytic"
    COMPILED = "compiled"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Predicted time of one launch, by term.

    `seconds` is launch, memory, compute and latency without what is hidden: their sum
    less `hidden_seconds`; each term can be read alone.

    Attributes:
        dram_seconds, l2_seconds, l1_seconds: traffic at each level over its rate.
        in_flight_seconds: what the traffic would take at the bandwidth that the bytes
            in flight can draw; memory takes the longer of it and the three levels.
        hidden_seconds: of memory and compute time, what runs beside the other.
        spill_seconds: part of `seconds` that spilled registers cost.

    Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
    """

    seconds: float
    launch_seconds: float
    memory_seconds: float
    compute_seconds: float
    latency_seconds: float
    dram_bytes: float
    cache_bytes: float
    occupancy: float
    occupancy_limiter: str
    waves: float
    bound_by: str
    registers: int
    spill_bytes: int
    evidence: Evidence
    dram_seconds: float = 0.0
    l2_seconds: float = 0.0
    l1_seconds: float = 0.0
    in_flight_seconds: float = 0.0
    hidden_seconds: float = 0.0
    spill_seconds: float = 0.0


def in_turn(launches: Sequence[Estimate]) -> Estimate:
    """The estimate of launches one after the other: what takes time adds up.

    Registers and spills are the greatest; what else describes a launch is that of the
    longest.
    """
    longest = max(launches, key=lambda each: each.seconds)
    if len(launches) == 1:
        return longest
    added = {name: sum(getattr(e, name) for e in launches) for name in _ADDED}
    most = {name: max(getattr(e, name) for e in launches) for name in _GREATEST}
    return replace(longest, **added, **most)


_ADDED = (
    "seconds",
    "launch_seconds",
    "memory_seconds",
    "compute_seconds",
    "latency_seconds",
    "dram_bytes",
    "cache_bytes",
    "dram_seconds",
    "l2_seconds",
    "l1_seconds",
    "in_flight_seconds",
    "hidden_seconds",
    "spill_seconds",
)
_GREATEST = ("registers", "spill_bytes")
