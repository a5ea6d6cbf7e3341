"""All rules, by operator of the standard domain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuner.frontend.call import Rule
from tuner.frontend.rules import anchors, movement, pointwise, reductions, sources

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **pointwise.RULES,
        **movement.RULES,
        **sources.RULES,
        **reductions.RULES,
        **anchors.RULES,
    }
)
