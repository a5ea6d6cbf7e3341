"""The stages of a tuning run: their order, their share of the budget, their rounds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Stage = Literal[
    "open", "cover", "improve", "recover", "prove", "vary", "check", "judge", "done"
]

FOLLOWING: Final[Mapping[Stage, Stage]] = MappingProxyType(
    {
        "open": "cover",
        "cover": "improve",
        "improve": "recover",
        "recover": "prove",
        "prove": "vary",
        "vary": "check",
        "check": "judge",
        "judge": "done",
        "done": "done",
    }
)
SHARES: Final[Mapping[Stage, float]] = MappingProxyType(
    {
        "open": 1.0,
        "cover": 0.7,
        "improve": 0.75,
        "recover": 0.88,
        "prove": 0.95,
        "vary": 1.0,
        "check": 1.0,
        "judge": 1.0,
        "done": 1.0,
    }
)
"""Share of the budget, what is kept back for whole plans apart, that may be spent by
the end of each stage."""

PARTITIONS: Final = 3
"""Distinct partitions that are run whole, the best included."""
MAX_PARTITIONS: Final = 16
"""Whole plans that share the time of one comparison with the others, at most."""
VARY_SHARE: Final = 0.1
"""Share of the whole budget that other partitions may take, solving included."""
OPERATORS_SHARE: Final = 0.1
"""Share of the whole budget that operators by themselves may take in the end."""

COVER_ROUNDS: Final = 4
"""Solves while covering; each either changes the partition or ends the stage."""
RECOVERY_ROUNDS: Final = 2
"""Solves after schedules were improved."""
PROOF_ROUNDS: Final = 512
"""Solves with optimistic bounds."""
CONCLUDING_SHARE: Final = 0.1
"""Share of what is kept back for whole plans that the last of them may take."""
WHOLE_RUNS: Final = 2
"""Runs of the whole plans, if somebody kills the first."""
