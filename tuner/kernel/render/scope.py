"""What the text of a group is made of, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.kernel.render.scalar import atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import Group, LoopNest
    from tuner.kernel.render.dialect import Dialect
    from tuner.kernel.render.lines import Lines

_UNROLLED_STEPS: Final = 64
"""Loops of up to so many steps may be unrolled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One group of a kernel while it is written.

    Attributes:
        nest: the whole kernel.
        group: what is written.
        mapping: how its points are dealt out to threads.
        dialect: the language.
        names: of the pointer arguments, in the order of the nest's tensors.
        lines: the text so far.
        suffix: of the names of helper functions, where one text has several kernels.
    """

    nest: LoopNest
    group: Group
    mapping: Mapping
    dialect: Dialect
    names: Sequence[str]
    lines: Lines
    suffix: str = ""

    @property
    def index_type(self) -> str:
        """Type of positions."""
        return self.dialect.index[self.nest.index_bits]

    def declare(self, name: str, text: str) -> None:
        """Write a position under a name."""
        self.lines.add(f"const {self.index_type} {name} = {text};")

    def unroll(self, steps: int) -> None:
        """Ask for a loop to be unrolled, unless that would be a lot of text."""
        if 1 < steps <= _UNROLLED_STEPS:
            self.lines.add(self.dialect.unroll.format(n=steps))


def scaled(text: str, coefficient: int) -> str:
    """A position multiplied by a number."""
    if coefficient == 1:
        return text
    return f"{atomic(text)} * {coefficient}"
