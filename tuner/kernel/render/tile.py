"""Text of a TILE group: staged tiles, partial sums in registers, the epilogue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuner.kernel.nest import Load
from tuner.kernel.render.block import BlockText
from tuner.kernel.tiles import PADDING, Operand, tile_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.render.scope import Scope

_UNROLLED_LOADS: Final = 16
"""Elements of a tile that a thread may read in one straight run."""
_UNROLLED_WINDOWS: Final = 4
"""Likewise where each has conditions of its own, which take registers."""


class TileText(BlockText):
    """Writes a TILE group.

    Beside the names of the other groups: ``t`` for the thread, ``left`` and ``right``
    for the staged tiles, ``row0`` and ``column0`` for the block's first point,
    ``base`` for its first term, ``y`` and ``x`` for a thread's rows and columns, ``z``
    for a term, ``sums`` for its partial results.
    """

    def __init__(self, scope: Scope) -> None:
        single = replace(scope.mapping, items=1)
        super().__init__(replace(scope, mapping=single))
        self.block = scope.mapping
        self.tile = tile_values(self.group)
        self.held = self.dialect.held[self.group.reductions[0].dtype]

    def write(self) -> None:
        """Write the whole group."""
        self._place()
        self.values.write(self.tile.block)
        self._declare_sums()
        self._shared("left", self.block.height)
        self._shared("right", self.block.tile)
        terms, depth = self.group.serial_points, self.block.depth
        kind = self.scope.index_type
        self.lines.open(f"for ({kind} base = 0; base < {terms}; base += {depth})")
        self._stage(self.tile.left, "left")
        self._stage(self.tile.right, "right")
        self.lines.add(self.dialect.barrier)
        self._multiply()
        self.lines.add(self.dialect.barrier)
        self.lines.close()
        self._epilogue()

    def _place(self) -> None:
        block, group = self.block, self.group
        bands = -(-group.row_points // block.height)
        self._declare_part(block.first_block)
        column, row, outer = (
            f"part % {block.chunks} * {block.tile}",
            f"part / {block.chunks} % {bands} * {block.height}",
            f"part / {block.chunks * bands}",
        )
        self.scope.declare("column0", column)
        self.scope.declare("row0", row)
        self.scope.declare("q", outer)
        self.lines.add(f"const int t = team * {block.lanes} + lane;")

    def _declare_sums(self) -> None:
        shape = f"[{self.block.repeat}][{self.block.items}]"
        self.lines.add(f"{self.held} sums{shape} = {{{{0}}}};")

    def _shared(self, name: str, extent: int) -> None:
        size = self.block.depth * (extent + PADDING)
        declared = f"{self.dialect.wide_rows}{self.held} {name}[*]"
        self.collectives.shared[declared] = size

    def _stage(self, operand: Operand, name: str) -> None:
        """All threads compute one factor's values for a tile."""
        is_left = name == "left"
        extent = self.block.height if is_left else self.block.tile
        self._walk_tile(operand, extent)
        axis, first = ("i", "row0") if is_left else ("p", "column0")
        self.scope.declare(axis, f"{first} + e")
        self.scope.declare("r", "base + z")
        points = self.group.row_points if is_left else self.group.inner_points
        place = self._place_of(name, extent)
        self._staged(operand, place, self._tests(axis, points % extent, points))
        self.lines.close()

    def _place_of(self, name: str, extent: int) -> str:
        """Where element `e` of term `z` is staged."""
        return f"{name}[z * {extent + PADDING} + e]"

    def _walk_tile(self, operand: Operand, extent: int) -> None:
        """Neighbouring threads take neighbours in memory."""
        depth, threads = self.block.depth, self.block.lanes * self.block.teams
        count = extent * depth
        steps = min(count // threads, self._most_loads(operand))
        self._loop_steps(count, threads, steps)
        fast, slow = ("z", "e") if operand.along_terms else ("e", "z")
        period = depth if operand.along_terms else extent
        self.lines.add(f"const int {fast} = s % {period};")
        self.lines.add(f"const int {slow} = s / {period};")

    def _loop_steps(self, count: int, threads: int, unroll: int = 4) -> None:
        """The threads share out so many steps."""
        if unroll > 1:
            self.lines.add(self.dialect.unroll.format(n=unroll))
        self.lines.open(f"for (int s = t; s < {count}; s += {threads})")

    def _most_loads(self, operand: Operand) -> int:
        values = (self.group.values[number].what for number in operand.staged)
        guarded = any(isinstance(what, Load) and what.guards for what in values)
        return _UNROLLED_WINDOWS if guarded else _UNROLLED_LOADS

    def _tests(self, axis: str, tail: int, points: int) -> list[str]:
        """Conditions under which an element of a tile exists."""
        tests = [f"{axis} < {points}"] if tail else []
        if self.group.serial_points % self.block.depth:
            tests.append(f"r < {self.group.serial_points}")
        return tests

    def _staged(self, operand: Operand, place: str, tests: Sequence[str]) -> None:
        value = self.values.operand(operand.value, 0)
        if not tests:
            self.values.write(operand.staged)
            self.lines.add(f"{place} = {value};")
            return
        self.lines.add(f"{self.held} staged = 0;")
        self.lines.open(f"if ({' && '.join(tests)})")
        self.values.write(operand.staged)
        self.lines.add(f"staged = {value};")
        self.lines.close()
        self.lines.add(f"{place} = staged;")

    def _multiply(self) -> None:
        block = self.block
        self._loop_over("z", block.depth, limit=16)
        self.lines.add(f"{self.held} above[{block.repeat}], beside[{block.items}];")
        self._loop_over("y", block.repeat)
        stride = block.height + PADDING
        place = f"z * {stride} + team * {block.repeat} + y"
        self.lines.add(f"above[y] = left[{place}];")
        self.lines.close()
        self._loop_over("x", block.items)
        stride = block.tile + PADDING
        place = f"z * {stride} + x * {block.lanes} + lane"
        self.lines.add(f"beside[x] = right[{place}];")
        self.lines.close()
        self._loop_over("y", block.repeat)
        self._loop_over("x", block.items)
        self.lines.add("sums[y][x] += above[y] * beside[x];")
        for _ in range(3):
            self.lines.close()

    def _loop_over(self, name: str, count: int, limit: int = 64) -> None:
        if count > 1:
            self.lines.add(self.dialect.unroll.format(n=min(count, limit)))
        self.lines.open(f"for (int {name} = 0; {name} < {count}; {name}++)")

    def _rows_of_thread(self) -> tuple[int, str]:
        """How many rows a thread has, and which is number `y`."""
        block = self.block
        return block.repeat, f"row0 + team * {block.repeat} + y"

    def _columns_of_thread(self) -> tuple[int, str]:
        """How many inner points a thread has, and which is number `x`."""
        return self.block.items, f"column0 + x * {self.block.lanes} + lane"

    def _epilogue(self) -> None:
        block, group = self.block, self.group
        rows, row = self._rows_of_thread()
        columns, column = self._columns_of_thread()
        self._loop_over("y", rows)
        self.scope.declare("i", row)
        row_tail = group.row_points % block.height != 0
        if row_tail:
            self.lines.open(f"if (i < {group.row_points})")
        self.values.write(self.tile.row)
        self._loop_over("x", columns)
        self.scope.declare("p", column)
        tail = group.inner_points % block.tile != 0
        if tail:
            self.lines.open(f"if (p < {group.inner_points})")
        self.values.write(self.tile.point)
        self.stores.write(group.stores, "")
        for _ in range(2 + row_tail + tail):
            self.lines.close()

    def _partial(self, reduction: int, copy: int) -> str:
        del reduction, copy
        return "sums[y][x]"
