"""Graph JSON, `fuseplan.graph/1`: what both directions share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

Json = Any

SCHEMA: Final = "fuseplan.graph/1"
METADATA: Final = ("input_ranges", "dim_defaults", "gain")
"""Optional entries beside the graph; their meaning is that of ONNX metadata."""
SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How numbers are written that JSON does not have."""


def repeated_name(pairs: Sequence[tuple[str, object]]) -> str:
    """The first name that an object has twice (RFC 8259, 4), of which it has one.

    One pass: who sends the object says how many names it has.
    """
    times = Counter(name for name, _ in pairs)
    return next(name for name in times if times[name] > 1)
