"""All rules, by operator of the standard domain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuner.frontend.call import Rule
from tuner.frontend.rules import (
    anchors,
    einsum,
    movement,
    picks,
    pointwise,
    quantize,
    reductions,
    resample,
    scatters,
    sources,
    views,
)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **pointwise.RULES,
        **views.RULES,
        **movement.RULES,
        **sources.RULES,
        **reductions.RULES,
        **anchors.RULES,
        **einsum.RULES,
        **quantize.RULES,
        **picks.RULES,
        **resample.RULES,
        **scatters.RULES,
    }
)
