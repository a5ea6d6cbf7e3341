"""Graph JSON, `fuseplan.graph/1`: what both directions share."""

from __future__ import annotations

import math
from typing import Any, Final

Json = Any

SCHEMA: Final = "fuseplan.graph/1"
METADATA: Final = ("input_ranges", "dim_defaults", "gain")
"""Optional entries beside the graph; their meaning is that of ONNX metadata."""
SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How numbers are written that JSON does not have."""
