"""Text of a TILE group on tensor cores: factors of 16 bits, staged as they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.kernel.fragments import COLUMNS, GROUPS, LEFT, MEMBERS, PAIR, RIGHT, ROWS
from tuner.kernel.fragments import TERMS as FRAGMENT_TERMS
from tuner.kernel.index import runs
from tuner.kernel.nest import Load
from tuner.kernel.render.tile import TileText
from tuner.kernel.tiles import TENSOR_PADDING, tensor_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.tiles import Operand

WIDE: Final = 8
"""Neighbours that a thread stages at once where they lie side by side."""
_UNROLLED_LOADS: Final = 4
"""Such loads that a thread may have under way."""
_UNROLLED_ELEMENTS: Final = 8
"""The same where they do not lie side by side."""


class TensorText(TileText):
    """Writes a TILE group whose products run on tensor cores.

    A team is a sub-group; it owns `repeat` rows and all inner points of the block.
    Beside the names of `TileText`: ``group`` and ``member`` for the thread's place in
    a fragment (see `tuner.kernel.fragments`), ``above`` and ``beside`` for fragments.
    """

    def write(self) -> None:
        """Write the whole group."""
        kind = tensor_dtype(self.scope.nest)
        assert kind is not None
        self.kind = kind
        self.stride = self.block.depth + TENSOR_PADDING
        self.down = self.block.repeat // ROWS
        self.across = self.block.tile // COLUMNS
        super().write()

    def _place(self) -> None:
        super()._place()
        self.lines.add(f"const int group = lane / {MEMBERS};")
        self.lines.add(f"const int member = lane % {MEMBERS};")

    def _declare_sums(self) -> None:
        shape = f"[{self.down}][{self.across}][4]"
        self.lines.add(f"{self.held} sums{shape} = {{{{{{0}}}}}};")

    def _shared(self, name: str, extent: int) -> None:
        element = self.dialect.storage[self.kind].type
        declared = f"{self.dialect.wide_rows}{element} {name}[*]"
        self.collectives.shared[declared] = extent * self.stride

    # Staging

    def _stage(self, operand: Operand, name: str) -> None:
        """All threads bring one factor's elements, a row of terms for each point."""
        group = self.group
        axis = group.rows if name == "left" else group.inner
        points = group.row_points if name == "left" else group.inner_points
        depth = self.block.depth
        if depth % WIDE == 0 and self._follow(
            operand, group.serial, group.serial_points
        ):
            self._stage_eight(operand, name, (WIDE, 1))
        elif self._follow(operand, axis, points):
            self._stage_eight(operand, name, (1, WIDE))
        else:
            super()._stage(operand, name)

    def _most_loads(self, operand: Operand) -> int:
        """Elements one by one: each takes an address of 64 bits, and conditions."""
        return min(super()._most_loads(operand), _UNROLLED_ELEMENTS)

    def _place_of(self, name: str, extent: int) -> str:
        del extent
        return f"{name}[e * {self.stride} + z]"

    def _staged(self, operand: Operand, place: str, tests: Sequence[str]) -> None:
        element = self.dialect.storage[self.kind].type
        if tests:
            self.lines.add(f"{element} staged = 0;")
            self.lines.open(f"if ({' && '.join(tests)})")
        self.values.write(
            number for number in operand.staged if number != operand.value
        )
        text = self._raw(operand)
        self.lines.add(f"staged = {text};" if tests else f"{place} = {text};")
        if tests:
            self.lines.close()
            self.lines.add(f"{place} = staged;")

    def _raw(self, operand: Operand) -> str:
        """The stored element of a factor."""
        what = self.group.values[operand.value].what
        assert isinstance(what, Load)
        text = self.dialect.storage[self.kind].pointer_load.format(
            p=self.scope.names[what.tensor], i=self.values.index(what.index, 0)
        )
        return (
            f"{self.values.test(what.guards, 0)} ? {text} : 0" if what.guards else text
        )

    def _follow(self, operand: Operand, loops: tuple[int, ...], points: int) -> bool:
        """Whether eight neighbours along loops begin at 16 bytes and lie in a row."""
        what = self.group.values[operand.value].what
        assert isinstance(what, Load)
        if what.guards or points % WIDE:
            return False
        along = runs(self.group.atoms, what.index, loops)
        if len(along) != 1 or along[0].coefficient != 1 or along[0].below != 1:
            return False
        inside = set(loops)
        rest = [c for atom, c in what.index.terms if atom not in inside]
        return all(c % WIDE == 0 for c in (*rest, what.index.constant))

    def _stage_eight(self, operand: Operand, name: str, taken: tuple[int, int]) -> None:
        """A thread takes eight terms of a point, or one term of eight points.

        Neighbouring threads take neighbouring terms either way, so that what they
        write on chip lies side by side.
        """
        is_left, (terms, across) = name == "left", taken
        extent = self.block.height if is_left else self.block.tile
        threads, pieces = self.block.lanes * self.block.teams, self.block.depth // terms
        count = extent // across * pieces
        self._loop_steps(count, threads, min(count // threads, _UNROLLED_LOADS))
        self.lines.add(f"const int z = {_times(f's % {pieces}', terms)};")
        self.lines.add(f"const int e = {_times(f's / {pieces}', across)};")
        axis, first = ("i", "row0") if is_left else ("p", "column0")
        self.scope.declare(axis, f"{first} + e")
        self.scope.declare("r", "base + z")
        points = self.group.row_points if is_left else self.group.inner_points
        self._load_eight(operand, self._tests(axis, points % extent, points))
        if terms == WIDE:
            place = f"*({self.dialect.wide_word}*)({name} + e * {self.stride} + z)"
            self.lines.add(f"{place} = staged;")
        else:
            self._scatter(name)
        self.lines.close()

    def _load_eight(self, operand: Operand, tests: Sequence[str]) -> None:
        word = self.dialect.wide_word
        self.lines.add(f"{word} staged = {{0, 0, 0, 0}};")
        self.values.write(
            number for number in operand.staged if number != operand.value
        )
        what = self.group.values[operand.value].what
        assert isinstance(what, Load)
        source = f"{self.scope.names[what.tensor]} + {self.values.index(what.index, 0)}"
        test = f"if ({' && '.join(tests)}) " if tests else ""
        self.lines.add(f"{test}staged = *(const {word}*)({source});")

    def _scatter(self, name: str) -> None:
        """Eight neighbours go into eight rows of terms."""
        element = self.dialect.storage[self.kind].type
        self.lines.add(f"const {element}* each = (const {element}*)&staged;")
        self._loop_over("n", WIDE)
        self.lines.add(f"{name}[(e + n) * {self.stride} + z] = each[n];")
        self.lines.close()

    # Products

    def _multiply(self) -> None:
        word = self.dialect.word
        self._loop_over("z", self.block.depth // FRAGMENT_TERMS)
        self.lines.add(f"{word} above[{self.down}][{len(LEFT)}];")
        self._loop_over("y", self.down)
        for number, (row, term) in enumerate(LEFT):
            place = f"team * {self.block.repeat} + y * {ROWS} + group + {row}"
            pair = self._pair("left", place, term)
            self.lines.add(f"above[y][{number}] = {pair};")
        self.lines.close()
        self._loop_over("x", self.across)
        self.lines.add(f"{word} beside[{len(RIGHT)}];")
        for number, term in enumerate(RIGHT):
            pair = self._pair("right", f"x * {COLUMNS} + group", term)
            self.lines.add(f"beside[{number}] = {pair};")
        self._loop_over("y", self.down)
        self.lines.add(
            self.dialect.multiply[self.kind].format(
                c="sums[y][x]", a="above[y]", b="beside"
            )
        )
        for _ in range(3):
            self.lines.close()

    def _pair(self, name: str, place: str, term: int) -> str:
        terms = f"z * {FRAGMENT_TERMS} + member * {PAIR} + {term}"
        return self.dialect.pair.format(
            p=name, i=f"({place}) * {self.stride} + {terms}"
        )

    # Results

    def _rows_of_thread(self) -> tuple[int, str]:
        """A thread has one row of every eight."""
        repeat = self.block.repeat
        return repeat // GROUPS, f"row0 + team * {repeat} + y * {GROUPS} + group"

    def _columns_of_thread(self) -> tuple[int, str]:
        """A thread has two neighbours of every eight inner points."""
        place = f"column0 + x / {PAIR} * {COLUMNS} + member * {PAIR} + x % {PAIR}"
        return self.across * PAIR, place

    def _partial(self, reduction: int, copy: int) -> str:
        del reduction, copy
        halves = ROWS // GROUPS
        number = f"y % {halves} * {PAIR} + x % {PAIR}"
        return f"sums[y / {halves}][x / {PAIR}][{number}]"


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"
