"""Text of the reductions of a group: each thread's part, then all parts joined."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tuner.kernel.held import identity
from tuner.kernel.nest import Kind
from tuner.kernel.render.collective import joined
from tuner.kernel.render.scalar import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuner.kernel.nest import Pass
    from tuner.kernel.render.collective import Collectives
    from tuner.kernel.render.scope import Scope

LEVEL_STEPS: Final = 128
"""Terms of a long floating-point sum that are added up by themselves first."""


class Sums:
    """Writes reductions.

    Long floating-point sums are added up in two levels, so that their rounding error
    grows with the root of the length of either (N. Higham, "The accuracy of floating
    point summation", SIAM J. Sci. Comput. 14, 1993).

    Args:
        scope: the group.
        collectives: helper functions that threads meet in.
    """

    def __init__(self, scope: Scope, collectives: Collectives) -> None:
        self._scope = scope
        self._group = scope.group
        self._dialect = scope.dialect
        self._lines = scope.lines
        self._collectives = collectives
        self._letter = "a"
        self._chain = ""

    def _accumulators(self) -> int:
        is_column = self._group.kind is Kind.COLUMN
        return self._scope.mapping.vector if is_column else 1

    def partial(self, reduction: int, copy: int) -> str:
        """Name of a reduction's partial result."""
        if self._accumulators() == 1:
            return f"{self._letter}{reduction}{self._chain}"
        return f"{self._letter}{reduction}_{copy}"

    @contextmanager
    def in_block(self) -> Iterator[None]:
        """Meanwhile sums are those of a block of the row."""
        self._letter = "s"
        yield
        self._letter = "a"

    @contextmanager
    def in_chain(self, chain: int) -> Iterator[None]:
        """Meanwhile results go to one of several that do not wait for each other."""
        self._chain = f"_{chain}" if chain else ""
        yield
        self._chain = ""

    def join_chains(self, each: Pass, count: int) -> None:
        """Put together what the chains have."""
        for reduction in each.reductions:
            op = self._group.reductions[reduction]
            name = self.partial(reduction, 0)
            for chain in range(1, count):
                parts = (f"{name}_{chain}", name)
                text = joined(op.op, op.dtype, parts, self._dialect)
                self._lines.add(f"{name} = {text};")

    def start(self, each: Pass) -> None:
        """Declare the partial results of a pass."""
        for reduction in each.reductions:
            op = self._group.reductions[reduction]
            held = self._dialect.held[op.dtype]
            start = number(identity(op.op, op.dtype), op.dtype, self._dialect)
            for copy in range(self._accumulators()):
                name = self.partial(reduction, copy)
                self._lines.add(f"{held} {name} = {start};")

    def accumulate(
        self, each: Pass, operand: Callable[[int, int], str], taken: str = ""
    ) -> None:
        """Take the values of one step.

        Args:
            each: the pass.
            operand: text of a value.
            taken: condition under which they are taken; an empty one always holds.
        """
        for reduction in each.reductions:
            op = self._group.reductions[reduction]
            start = number(identity(op.op, op.dtype), op.dtype, self._dialect)
            for copy in range(self._scope.mapping.vector):
                place = copy if self._accumulators() > 1 else 0
                name = self.partial(reduction, place)
                source = operand(op.source, copy)
                if taken:
                    source = f"({taken} ? {source} : {start})"
                text = joined(op.op, op.dtype, (source, name), self._dialect)
                self._lines.add(f"{name} = {text};")

    def is_long(self, each: Pass, steps: int) -> bool:
        """Whether so many steps are added up in two levels."""
        sums = (self._group.reductions[number] for number in each.reductions)
        return steps > 2 * LEVEL_STEPS and any(
            each.op == "reduce_sum" and each.dtype.is_float for each in sums
        )

    def open_level(self, each: Pass, end: int, stride: int) -> None:
        """Begin to add up a part of a long sum by itself."""
        kind = self._scope.index_type
        self._lines.open(f"for ({kind} base = 0; base < {end}; base += {stride})")
        stop = f"base + {stride} < {end} ? base + {stride} : {end}"
        self._scope.declare("stop", stop)
        self._letter = "s"
        self.start(each)

    def close_level(self, each: Pass) -> None:
        """Add the part to the whole."""
        self._letter = "a"
        for reduction in each.reductions:
            op = self._group.reductions[reduction]
            for copy in range(self._accumulators()):
                total = self.partial(reduction, copy)
                parts = (total, total.replace("a", "s", 1))
                text = joined(op.op, op.dtype, parts, self._dialect)
                self._lines.add(f"{total} = {text};")
        self._lines.close()

    def join_lanes(self, each: Pass) -> None:
        """Put together what the lanes of a team have."""
        for reduction in each.reductions:
            op = self._group.reductions[reduction]
            name = f"a{reduction}"
            text = self._collectives.across_lanes(op.op, op.dtype, name)
            if text != name:
                self._lines.add(f"{name} = {text};")

    def join_teams(self, each: Pass) -> None:
        """Put together what the teams of a block have."""
        for reduction in each.reductions:
            op = self._group.reductions[reduction]
            for copy in range(self._accumulators()):
                name = self.partial(reduction, copy)
                text = self._collectives.across_teams(op.op, op.dtype, name)
                if text != name:
                    self._lines.add(f"{name} = {text};")
