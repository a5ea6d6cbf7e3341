"""The model's answer: seconds by term, and on what evidence they rest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Evidence(StrEnum):
    """What a number rests on, weakest first."""

    ANALYTIC = "analytic"
    COMPILED = "compiled"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Predicted time of one launch, by term.

    `seconds` is the launch, the overlapped memory and compute terms and the serial
    latencies together; each term can be read alone.

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
