"""Text of a group whose threads walk along rows or columns: how work is dealt out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.kernel.nest import Kind, Load
from tuner.kernel.online import Online, online
from tuner.kernel.render.block import BlockText
from tuner.kernel.render.scope import scaled
from tuner.kernel.render.sums import Sums
from tuner.kernel.render.walks import Walks, may_step_back
from tuner.kernel.staged import pitch, staged_values

if TYPE_CHECKING:
    from tuner.kernel.render.scope import Scope

_PACKED_UNROLL: Final = 4
"""Steps of packed lanes at once: enough to hide their latencies, and little text."""


class GroupText(BlockText):
    """Writes a POINTWISE, ROW or COLUMN group.

    Beside the names of every group: ``a0`` for the partial result of reduction 0,
    ``k3`` for kept values.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._sums = Sums(scope, self.collectives)
        self._walks = Walks(scope, self.values, self._sums, self.stores)
        self._staged: tuple[int, ...] = ()
        if self.dialect.packs_lanes:
            self._staged = staged_values(scope.nest, self.group, self.mapping)
        self._online: Online | None = None
        if self.dialect.packs_lanes:
            self._online = online(self.group, self.mapping)

    def _partial(self, reduction: int, copy: int) -> str:
        return self._sums.partial(reduction, copy)

    def write(self) -> None:
        """Write the whole group."""
        self._declare_part(self.mapping.first_block)
        if self._staged:
            self._stage()
        if self.group.kind is Kind.COLUMN:
            self._column()
        else:
            self._rows()

    def _rows(self) -> None:
        """POINTWISE and ROW: a team takes outer points one after the other."""
        group, mapping = self.group, self.mapping
        block = "part" if mapping.chunks == 1 else f"part / {mapping.chunks}"
        first = f"{scaled(block, mapping.teams * mapping.repeat)} + team"
        if mapping.repeat > 1:
            self.lines.open(f"for (int turn = 0; turn < {mapping.repeat}; turn++)")
            first += f" + turn * {mapping.teams}"
        tail = group.outer_points % (mapping.teams * mapping.repeat) != 0
        is_collective = group.kind is Kind.ROW and mapping.lanes > 1
        last = group.outer_points - 1
        if tail and is_collective:
            self.scope.declare("wanted", first)
            self.lines.add(f"const bool active = wanted <= {last};")
            self.scope.declare("q", f"active ? wanted : {last}")
        else:
            self.scope.declare("q", first)
        guarded = tail and not is_collective
        if guarded:
            self.lines.open(f"if (q <= {last})")
        condition = "active" if tail and is_collective else ""
        if group.kind is Kind.ROW:
            self._row(condition)
        else:
            self._points()
        if guarded:
            self.lines.close()
        if mapping.repeat > 1:
            self.lines.close()

    def _stage(self) -> None:
        """POINTWISE: copy a block's tiles of what lies across the order of memory."""
        group, mapping = self.group, self.mapping
        chunks = mapping.chunks
        column = f"part % {chunks} * {mapping.tile}" if chunks > 1 else "0"
        block = "part" if chunks == 1 else f"part / {chunks}"
        self.scope.declare("row", scaled(block, mapping.repeat))
        self.scope.declare("column", column)
        height = str(mapping.tile)
        if group.inner_points % mapping.tile:
            rest = f"{group.inner_points} - column"
            self.scope.declare("height", f"{rest} < {height} ? {rest} : {height}")
            height = "height"
        kind = self.scope.index_type
        self.lines.open(f"for ({kind} i = 0; i < {height}; i++)")
        self.scope.unroll(mapping.repeat // mapping.lanes)
        steps = mapping.repeat // mapping.lanes
        self.lines.open(f"for ({kind} step = 0; step < {steps}; step++)")
        self.scope.declare("j", f"row + lane + step * {mapping.lanes}")
        guarded = group.outer_points % mapping.repeat != 0
        if guarded:
            self.lines.open(f"if (j < {group.outer_points})")
        for value in self._staged:
            self._stage_one(value)
        if guarded:
            self.lines.close()
        self.lines.close()
        self.lines.close()
        self.lines.add(self.dialect.barrier)

    def _stage_one(self, value: int) -> None:
        """One element of a tile, and where it is found later."""
        read, mapping = self.group.values[value], self.mapping
        assert isinstance(read.what, Load)
        name, across = f"tile{value}", pitch(mapping)
        text = self.values.load(read.what, 0, outer="j", inner="(column + i)")
        at = f"i * {across} + lane + step * {mapping.lanes}"
        self.lines.add(f"{name}[{at}] = {text};")
        declared = f"{self.dialect.held[read.dtype]} {name}[*]"
        self.collectives.shared[declared] = mapping.tile * across
        place = f"(p - column) * {across} + (q - row)"
        self.values.staged[value] = f"{name}[{place}]"

    def _points(self) -> None:
        """POINTWISE: the inner points of one outer point."""
        mapping = self.mapping
        self._level_values(0)
        step = mapping.lanes * mapping.vector
        first = f"lane * {mapping.vector}" if mapping.vector > 1 else "lane"
        start = (
            f"part % {mapping.chunks} * {mapping.tile}" if mapping.chunks > 1 else ""
        )
        if not self._staged and may_step_back(self.scope) and self._has_tail:
            self._packed_points(start)
            return
        place = f"{start} + {first}" if start else first
        if mapping.items == 1:
            self._point(place)
            return
        packs = self.dialect.packs_lanes
        steps = min(mapping.items, _PACKED_UNROLL) if packs else mapping.items
        self.scope.unroll(steps)
        self.lines.open(f"for (int item = 0; item < {mapping.items}; item++)")
        self._point(f"{place} + item * {step}", guarded=self._has_tail)
        self.lines.close()

    @property
    def _has_tail(self) -> bool:
        """Whether the last block of the inner loops goes beyond their end."""
        return self.group.inner_points % self.mapping.tile != 0

    def _packed_points(self, start: str) -> None:
        """POINTWISE: steps of packed lanes, the last of which steps back."""
        inner, lanes = self.group.inner_points, self.mapping.lanes
        items = self.mapping.items
        if items == 1:
            self._point(f"{self._stepped_back(start)} + lane", guarded=False)
            return
        full = str(inner // lanes)
        place = f"lane + item * {lanes}"
        if start:
            self.scope.declare("begin", start)
            self.scope.declare("rest", f"({inner} - begin) / {lanes}")
            self.scope.declare("full", f"rest < {items} ? rest : {items}")
            full, place = "full", f"begin + {place}"
        steps = _PACKED_UNROLL if start else min(inner // lanes, _PACKED_UNROLL)
        self.scope.unroll(steps)
        self.lines.open(f"for (int item = 0; item < {full}; item++)")
        self._point(place, guarded=False)
        self.lines.close()
        if inner % lanes:
            self.lines.open(f"if (full < {items})" if start else "")
            self._point(f"lane + {inner - lanes}", guarded=False)
            self.lines.close()

    def _stepped_back(self, start: str) -> str:
        """Where a block of one step begins: all its points lie inside."""
        last = self.group.inner_points - self.mapping.lanes
        self.scope.declare("begin", start)
        return f"(begin < {last} ? begin : {last})"

    def _point(self, place: str, *, guarded: bool = True) -> None:
        """POINTWISE: what a thread does in one step."""
        group = self.group
        self.scope.declare("p", place)
        guarded = guarded and self._has_tail
        if guarded:
            self.lines.open(f"if (p < {group.inner_points})")
        for each in group.plan:
            self.values.write(each.values)
            self.stores.write(each.stores, "")
        if guarded:
            self.lines.close()

    def _row(self, condition: str) -> None:
        """ROW: a team walks along the inner points of one row."""
        one = f"lane == 0 && {condition}" if condition else "lane == 0"
        if self.mapping.is_persistent:
            self._walks.keep_arrays()
        done = -1
        passes = self.group.plan
        if self._online is not None:
            done, passes = passes[1].stage, passes[2:]
            self._two_passes(self._online, one)
        for each in passes:
            self._levels(done + 1, each.stage, one)
            done = each.stage
            self._sums.start(each)
            self._walks.along_row(each, condition)
            self._sums.join_lanes(each)
        self._levels(done + 1, self._stages(), one)

    def _two_passes(self, both: Online, one: str) -> None:
        """ROW: a maximum and the sum of exponentials beside it, in one walk."""
        first, second = self.group.plan[:2]
        self._levels(0, first.stage, one)
        self._sums.start(first)
        self._sums.start(second)
        self._walks.along_row_online(both)
        held = self.dialect.held[self.group.reductions[both.top].dtype]
        self.lines.add(f"const {held} own = a{both.top};")
        self._sums.join_lanes(first)
        self._levels(first.stage + 1, second.stage, one)
        total = f"a{both.total}"
        self.lines.add(f"{total} = {total} * {self._walks.falling(both, 'own')};")
        self._sums.join_lanes(second)

    def _column(self) -> None:
        """COLUMN: a thread owns an inner point and walks over the serial points."""
        group, mapping = self.group, self.mapping
        chunks = mapping.chunks
        self.scope.declare("q", "part" if chunks == 1 else f"part / {chunks}")
        first = f"lane * {mapping.vector}" if mapping.vector > 1 else "lane"
        if chunks > 1:
            first = f"part % {chunks} * {mapping.tile} + {first}"
        tail = group.inner_points % mapping.tile != 0
        steps_back = may_step_back(self.scope)
        condition = ""
        if tail and mapping.teams > 1:
            last = group.inner_points - mapping.vector
            self.scope.declare("wanted", first)
            self.lines.add(f"const bool active = wanted <= {last};")
            self.scope.declare("p", f"active ? wanted : {last}")
            condition = "active"
        elif tail and steps_back:
            start = f"part % {chunks} * {mapping.tile}"
            self.scope.declare("p", f"{self._stepped_back(start)} + lane")
        else:
            self.scope.declare("p", first)
        guarded = tail and mapping.teams == 1 and not steps_back
        if guarded:
            self.lines.open(f"if (p < {group.inner_points})")
        self._column_passes(condition)
        if guarded:
            self.lines.close()

    def _column_passes(self, condition: str) -> None:
        one = "team == 0" if self.mapping.teams > 1 else ""
        if condition:
            one = f"{one} && {condition}"
        done = -1
        for each in self.group.plan:
            self._levels(done + 1, each.stage, one)
            done = each.stage
            self._sums.start(each)
            self._walks.down_column(each, condition)
            self._sums.join_teams(each)
        self._levels(done + 1, self._stages(), one)

    # What is known before, between and after the passes

    def _stages(self) -> int:
        values = (value.stage for value in self.group.values)
        return max(values, default=0)

    def _levels(self, first: int, last: int, condition: str) -> None:
        """What is known once per row, of some stages, and its stores."""
        for stage in range(first, last + 1):
            self._level_values(stage)
            stores = [s for s in self.group.stores if s.per_row and s.stage == stage]
            self.stores.write(stores, condition)

    def _level_values(self, stage: int) -> None:
        walked = self.group.walked_mask
        self.values.write(
            number
            for number, value in enumerate(self.group.values)
            if value.stage == stage and not value.loops & walked
        )
