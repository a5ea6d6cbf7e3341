"""Text of the loops of a thread: along a row, down a column, and what it keeps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.kernel.ahead import LINE_BYTES, asked_ahead
from tuner.kernel.nest import Kind
from tuner.kernel.online import CHAINS, ONLINE_STEPS
from tuner.kernel.render.collective import joined, subgroup_width
from tuner.kernel.render.scalar import number
from tuner.kernel.render.scope import scaled
from tuner.kernel.render.sums import LEVEL_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuner.kernel.nest import Load, Pass
    from tuner.kernel.online import Online
    from tuner.kernel.render.scope import Scope
    from tuner.kernel.render.stores import Stores
    from tuner.kernel.render.sums import Sums
    from tuner.kernel.render.values import Values


def may_step_back(scope: Scope) -> bool:
    """Whether a last step may end where the inner loops end, and not beyond.

    It then begins at points that the step before has taken: all lanes have work,
    and packed lanes need no masks. What is stored twice is the same both times;
    reductions leave out what they have seen. Not where lanes meet at a barrier:
    Intel's compiler (2026.22) carries an element that is read on both sides of it
    over from one lane to all.
    """
    group, mapping = scope.group, scope.mapping
    if not scope.dialect.packs_lanes or mapping.vector > 1:
        return False
    is_row = group.kind is Kind.ROW
    meet = is_row and mapping.lanes != subgroup_width(mapping, scope.dialect)
    return not meet and group.inner_points >= mapping.lanes


class Walks:
    """Writes the passes of a group.

    Args:
        scope: the group.
        values: what is computed on the way.
        sums: what is added up.
        stores: what is written.
    """

    def __init__(
        self, scope: Scope, values: Values, sums: Sums, stores: Stores
    ) -> None:
        self._scope = scope
        self._group = scope.group
        self._mapping = scope.mapping
        self._dialect = scope.dialect
        self._lines = scope.lines
        self._values = values
        self._sums = sums
        self._stores = stores
        self._ahead: tuple[Load, ...] = ()
        if self._dialect.ask:
            self._ahead = asked_ahead(scope.nest, self._group, self._mapping)

    def along_row(self, each: Pass, condition: str) -> None:
        """ROW: a pass over the inner points of one row.

        Args:
            each: the pass.
            condition: under which results are stored; an empty one always holds.
        """
        group, mapping = self._group, self._mapping
        step = mapping.lanes * mapping.vector
        first = f"lane * {mapping.vector}" if mapping.vector > 1 else "lane"
        end = group.inner_points
        if self._asks(each):
            last, teams = group.outer_points - 1, mapping.teams
            self._scope.declare("next", f"q + {teams} < {last} ? q + {teams} : {last}")
        if group.serial:
            kind = self._scope.index_type
            self._lines.open(f"for ({kind} r = 0; r < {group.serial_points}; r++)")
            self._values.write(self._along_serial(each.values))
        self._row_run(each, (first, end, step), condition)
        if group.serial:
            self._lines.close()

    def along_row_online(self, both: Online) -> None:
        """ROW: the first two passes over a row, block by block."""
        step, end = self._mapping.lanes, self._group.inner_points
        full, tail = divmod(end, step)
        even = full - full % CHAINS
        kind = self._scope.index_type
        self._lines.open(
            f"for ({kind} base = 0; base < {even}; base += {ONLINE_STEPS})"
        )
        stop = f"base + {ONLINE_STEPS} < {even} ? base + {ONLINE_STEPS} : {even}"
        self._scope.declare("stop", stop)
        self._block(both, step, chains=CHAINS)
        self._lines.close()
        if even < full:
            self._last_block(both, step, (even, full))
        if tail:
            self._last_block(both, step, (full, full + 1), tail)

    def _last_block(
        self, both: Online, step: int, span: tuple[int, int], tail: int = 0
    ) -> None:
        """ROW: the block of what steps are left."""
        self._lines.open("")
        self._scope.declare("base", str(span[0]))
        self._scope.declare("stop", str(span[1]))
        self._block(both, step, tail)
        self._lines.close()

    def _block(
        self, both: Online, step: int, tail: int = 0, *, chains: int = 1
    ) -> None:
        """ROW: both passes over a block; of the last step `tail` lanes count."""
        first, second = self._group.plan[:2]
        known = self._group.values[both.known]
        held = self._dialect.held[known.dtype]
        least = number(-math.inf, known.dtype, self._dialect)
        zero = number(0.0, known.dtype, self._dialect)
        top, total = f"a{both.top}", f"a{both.total}"
        with self._sums.in_block():
            for chain in range(chains):
                with self._sums.in_chain(chain):
                    self._sums.start(first)
            if chains > 1:
                self._chained_pass(first, step, chains)
            else:
                self._block_pass(first, step, tail)
            self._sums.join_chains(first, chains)
            parts = (f"s{both.top}", top)
            greatest = joined("reduce_max", known.dtype, parts, self._dialect)
            self._lines.add(f"const {held} greatest = {greatest};")
            # Nothing but minus infinity so far: a difference from it is no number.
            name = self._values.name(both.known, 0)
            text = f"greatest == {least} ? {zero} : greatest"
            self._lines.add(f"const {held} {name} = {text};")
            self._sums.start(second)
            self._block_pass(second, step, tail)
        factor = self.falling(both, top)
        self._lines.add(f"{total} = {total} * {factor} + s{both.total};")
        self._lines.add(f"{top} = greatest;")

    def falling(self, both: Online, top: str) -> str:
        """What a sum is multiplied by once a greater element than `top` is known."""
        known = self._group.values[both.known]
        text = f"{top} - {self._values.name(both.known, 0)}"
        return self._dialect.spelling["exp"][known.dtype].format(text)

    def _chained_pass(self, each: Pass, step: int, chains: int) -> None:
        """ROW: a pass over a block, whose steps take turns at several results."""
        kind = self._scope.index_type
        head = f"{kind} item = base; item < stop; item += {chains}"
        self._lines.open(f"for ({head})")
        for chain in range(chains):
            item = f"(item + {chain})" if chain else "item"
            self._lines.open("")
            self._scope.declare("p", f"lane + {item} * {step}")
            with self._sums.in_chain(chain):
                self._step(each, "")
            self._lines.close()
        self._lines.close()

    def _block_pass(self, each: Pass, step: int, tail: int) -> None:
        kind, end = self._scope.index_type, self._group.inner_points
        if not tail:
            self._scope.unroll(self._mapping.unroll)
        self._lines.open(f"for ({kind} item = base; item < stop; item++)")
        steps_back = tail > 0 and may_step_back(self._scope)
        place = f"lane + {end - step}" if steps_back else f"lane + item * {step}"
        self._scope.declare("p", place)
        if not tail and each is self._group.plan[1]:
            self._ask(step, "q", f"(item + {ONLINE_STEPS}) * {step}")
        guarded = tail > 0 and not steps_back
        if guarded:
            self._lines.open(f"if (p < {end})")
        self._step(each, "", taken=f"lane >= {step - tail}" if steps_back else "")
        if guarded:
            self._lines.close()
        self._lines.close()

    def down_column(self, each: Pass, condition: str) -> None:
        """COLUMN: a pass over the serial points of an inner point."""
        teams = self._mapping.teams
        first = "team" if teams > 1 else "0"
        span = (first, self._group.serial_points, teams)
        self._walk(each, "r", span, condition)

    def _along_serial(self, values: Iterable[int]) -> list[int]:
        """ROW: those of some walked values that are one along the inner loops."""
        rows, mask = self._group.values, self._group.inner_mask
        return [value for value in values if not rows[value].loops & mask]

    def _along_inner(self, values: Iterable[int]) -> list[int]:
        """Those of some walked values that the innermost loop computes."""
        rows, mask = self._group.values, self._group.inner_mask
        if self._group.kind is Kind.COLUMN:
            return list(values)
        return [value for value in values if rows[value].loops & mask]

    # Steps

    def _row_run(self, each: Pass, span: tuple[str, int, int], condition: str) -> None:
        """Steps along a row that all lanes take, then one that only some do.

        Loops that all lanes leave together need no masks where lanes are packed.
        """
        first, end, step = span
        if not self._dialect.packs_lanes:
            self._masked_run(each, span, condition)
            return
        full, tail = divmod(end, step)
        if full:
            self._full_steps(each, first, step, condition)
        if not tail:
            return
        self._lines.open("")
        self._scope.declare("item", str(full))
        if may_step_back(self._scope):
            self._scope.declare("p", f"lane + {end - step}")
            self._step(each, condition, taken=f"lane >= {step - tail}")
        else:
            self._scope.declare("p", f"{first} + item * {step}")
            self._lines.open(f"if (p < {end})")
            self._step(each, condition)
            self._lines.close()
        self._lines.close()

    def _masked_run(
        self, each: Pass, span: tuple[str, int, int], condition: str
    ) -> None:
        """Steps along a row, each lane as far as it has points."""
        first, end, step = span
        if not self._mapping.is_persistent:
            self._walk(each, "p", span, condition)
            return
        self._scope.unroll(self._mapping.items)
        self._lines.open(f"for (int item = 0; item < {self._mapping.items}; item++)")
        self._scope.declare("p", f"{first} + item * {step}")
        guarded = end % step != 0
        if guarded:
            self._lines.open(f"if (p < {end})")
        self._kept_step(each, condition)
        if guarded:
            self._lines.close()
        self._lines.close()

    def _full_steps(self, each: Pass, first: str, step: int, condition: str) -> None:
        """The steps that lie in the row with all lanes; long sums in two levels."""
        full = self._group.inner_points // step
        keeps = self._mapping.is_persistent
        is_long = not keeps and self._sums.is_long(each, full)
        start, stop = "0", str(full)
        if is_long:
            self._sums.open_level(each, full, LEVEL_STEPS)
            start, stop = "base", "stop"
        self._scope.unroll(full if keeps else self._mapping.unroll)
        kind = self._scope.index_type
        self._lines.open(f"for ({kind} item = {start}; item < {stop}; item++)")
        self._scope.declare("p", f"{first} + item * {step}")
        if self._asks(each):
            self._ask(step, "next", f"item * {step}")
        self._step(each, condition)
        self._lines.close()
        if is_long:
            self._sums.close_level(each)

    def _asks(self, each: Pass) -> bool:
        """Whether a pass over a row asks for the next one."""
        return bool(self._ahead) and each is self._group.plan[1]

    def _ask(self, step: int, outer: str, inner: str) -> None:
        """Ask for what the lanes take at a place that they come to later."""
        scope = self._scope
        for load in self._ahead:
            size = scope.nest.tensors[load.tensor].dtype.bytes
            for begin in range(0, step, max(LINE_BYTES // size, 1)):
                at = inner + (f" + {begin}" if begin else "")
                place = self._values.index(load.index, 0, outer=outer, inner=at)
                name = scope.names[load.tensor]
                self._lines.add(self._dialect.ask.format(p=name, i=place))

    def _step(self, each: Pass, condition: str, taken: str = "") -> None:
        """What a team does at its points of one step; reductions take some of them."""
        if self._mapping.is_persistent:
            self._kept_step(each, condition, taken)
            return
        self._values.write(self._along_inner(each.values))
        self._sums.accumulate(each, self._values.operand, taken)
        self._stores.write(each.stores, condition)

    def _walk(
        self, each: Pass, name: str, span: tuple[str, int, int], condition: str
    ) -> None:
        """A loop over walked points, ``for (name = first; name < end; += step)``."""
        first, end, step = span
        if not self._sums.is_long(each, end // step):
            self._loop(each, name, (first, str(end), step), condition)
            return
        self._sums.open_level(each, end, LEVEL_STEPS * step)
        self._loop(each, name, (f"base + {first}", "stop", step), condition)
        self._sums.close_level(each)

    def _loop(
        self, each: Pass, name: str, span: tuple[str, str, int], condition: str
    ) -> None:
        first, end, step = span
        self._scope.unroll(self._mapping.unroll)
        step_text = f"{name}++" if step == 1 else f"{name} += {step}"
        start = f"{self._scope.index_type} {name} = {first}"
        self._lines.open(f"for ({start}; {name} < {end}; {step_text})")
        self._values.write(self._along_inner(each.values))
        self._sums.accumulate(each, self._values.operand)
        self._stores.write(each.stores, condition)
        self._lines.close()

    # Values that are kept from one pass to the next

    def keep_arrays(self) -> None:
        """Declare where a thread keeps the values of a row."""
        mapping = self._mapping
        kept = sorted({v for each in self._group.plan for v in each.kept})
        for value in kept:
            held = self._dialect.held[self._group.values[value].dtype]
            size = mapping.items * mapping.vector * self._group.serial_points
            self._lines.add(f"{held} k{value}[{size}];")

    def _kept_step(self, each: Pass, condition: str, taken: str = "") -> None:
        values = self._values
        for value in each.kept:
            for copy in values.copies(value):
                name = values.name(value, copy)
                held = self._dialect.held[self._group.values[value].dtype]
                self._lines.add(f"const {held} {name} = {self._kept(value, copy)};")
        values.write(self._along_inner(each.fresh))
        self._sums.accumulate(each, values.operand, taken)
        later = {
            v
            for other in self._group.plan
            for v in other.kept
            if other.stage > each.stage
        }
        for value in each.fresh:
            if value in later:
                for copy in values.copies(value):
                    name = values.name(value, copy)
                    self._lines.add(f"{self._kept(value, copy)} = {name};")
        self._stores.write(each.stores, condition)

    def _kept(self, value: int, copy: int) -> str:
        mapping = self._mapping
        place = "item"
        if self._group.serial:
            place = f"r * {mapping.items} + item"
        if mapping.vector == 1:
            return f"k{value}[{place}]"
        return f"k{value}[{scaled(place, mapping.vector)} + {copy}]"
