"""Text of the values of a group: their names, what computes them, where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.ir.types import DType
from tuner.kernel.index import AtomKind, Guards, Index, Run, bounds, runs
from tuner.kernel.nest import Apply, Constant, Kind, Load, Reduced, Select
from tuner.kernel.render.scalar import atomic, converted, expression, number
from tuner.kernel.render.scope import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tuner.kernel.render.scope import Scope

COMPONENTS: Final = "xyzw"
"""Of a vector, in order."""


class Values:
    """Writes values, and the positions that they are read at.

    Args:
        scope: the group.
        partial: name of a reduction's partial result, for one of the points that a
            thread takes at once.

    Attributes:
        staged: where values that were read before lie, by number.
    """

    def __init__(self, scope: Scope, partial: Callable[[int, int], str]) -> None:
        self._scope = scope
        self._group = scope.group
        self._dialect = scope.dialect
        self._lines = scope.lines
        self._partial = partial
        self.staged: dict[int, str] = {}

    def copies(self, value: int) -> range:
        """For which of the points that a thread takes at once a value differs."""
        is_many = self._group.values[value].loops & self._group.inner_mask
        return range(self._scope.mapping.vector if is_many else 1)

    def name(self, value: int, copy: int) -> str:
        """What a value is called at one of those points."""
        if self._scope.mapping.vector == 1 or len(self.copies(value)) == 1:
            return f"v{value}"
        return f"v{value}_{copy}"

    def operand(self, value: int, copy: int) -> str:
        """A value as it stands in an expression."""
        what = self._group.values[value].what
        if isinstance(what, Constant):
            dtype = self._group.values[value].dtype
            return atomic(number(what.value, dtype, self._dialect))
        return self.name(value, copy)

    def write(self, numbers: Iterable[int]) -> None:
        """Compute values, in order; a constant stands where it is used."""
        for value in numbers:
            what = self._group.values[value].what
            if isinstance(what, Constant):
                continue
            if isinstance(what, Load) and self.is_wide(
                what.tensor, what.index, what.guards
            ):
                self._wide_load(value, what)
                continue
            held = self._dialect.held[self._group.values[value].dtype]
            for copy in self.copies(value):
                text = self._text(value, copy)
                self._lines.add(f"const {held} {self.name(value, copy)} = {text};")

    def _text(self, value: int, copy: int) -> str:
        row = self._group.values[value]
        what = row.what
        if isinstance(what, Load):
            return self.staged.get(value) or self.load(what, copy)
        if isinstance(what, Reduced):
            return self._partial(what.reduction, copy)
        if isinstance(what, Select):
            test = self.test(what.guards, copy)
            chosen = self.operand(what.chosen, copy)
            return f"{test} ? {chosen} : {self.operand(what.other, copy)}"
        assert isinstance(what, Apply)
        return self._apply(what, row.dtype, copy)

    def _apply(self, what: Apply, dtype: DType, copy: int) -> str:
        parts = []
        for arg in what.args:
            text, source = self.operand(arg, copy), self._group.values[arg].dtype
            if source not in (what.operand, DType.BOOL):
                text = atomic(converted(text, source, what.operand, self._dialect))
            parts.append(text)
        text = expression(what.expression, parts, what.operand, self._dialect)
        if len(what.args) == 1 and dtype is not what.operand and text == parts[0]:
            return converted(text, what.operand, dtype, self._dialect)
        return text

    # Reads

    def load(self, what: Load, copy: int, *, outer: str = "q", inner: str = "p") -> str:
        """An element in the form in which it is held; for the positions see `index`."""
        scope = self._scope
        storage = self._dialect.storage[scope.nest.tensors[what.tensor].dtype]
        place = self.index(what.index, copy, outer=outer, inner=inner)
        element = storage.pointer_load.format(p=scope.names[what.tensor], i=place)
        text = storage.load.format(x=element)
        if not what.guards:
            return text
        return f"{self.test(what.guards, copy)} ? ({text}) : 0"

    def is_wide(self, tensor: int, index: Index, guards: Guards) -> bool:
        """Whether the neighbours that a thread takes can be moved at once."""
        scope, group = self._scope, self._group
        width = scope.mapping.vector
        storage = self._dialect.storage[scope.nest.tensors[tensor].dtype]
        if width == 1 or guards or width not in storage.vectors:
            return False
        along = runs(group.atoms, index, group.inner)
        if len(along) != 1 or along[0].coefficient != 1:
            return False
        if along[0].below != 1 or along[0].extent % width:
            return False
        inner = set(group.inner)
        rest = [c for atom, c in index.terms if atom not in inner]
        return all(c % width == 0 for c in (*rest, index.constant))

    def _wide_load(self, value: int, what: Load) -> None:
        scope = self._scope
        width = scope.mapping.vector
        storage = self._dialect.storage[scope.nest.tensors[what.tensor].dtype]
        text = self._dialect.vector_load.format(
            n=width,
            v=storage.vectors[width],
            p=scope.names[what.tensor],
            i=self.index(what.index, 0),
        )
        self._lines.add(f"const {storage.vectors[width]} w{value} = {text};")
        held = self._dialect.held[self._group.values[value].dtype]
        for copy in range(width):
            element = storage.load.format(x=f"w{value}.{COMPONENTS[copy]}")
            self._lines.add(f"const {held} {self.name(value, copy)} = {element};")

    # Positions

    def index(
        self, index: Index, copy: int, *, outer: str = "q", inner: str = "p"
    ) -> str:
        """Text of an index for one of the points that a thread takes at once.

        Args:
            index: where the element lies.
            copy: number of the point.
            outer: position in the outer loops.
            inner: position of the first point in the inner loops.
        """
        group = self._group
        parts: list[str] = []
        if copy:
            inner = f"({inner} + {copy})"
        for loops, name in (
            (group.outer, outer),
            (group.rows, "i"),
            (group.serial, "r"),
            (group.inner, inner),
        ):
            parts += [self._run(run, name) for run in runs(group.atoms, index, loops)]
        for atom, coefficient in index.terms:
            if group.atoms[atom].kind is not AtomKind.LOOP:
                parts.append(scaled(self._derived(atom, copy), coefficient))
        if index.constant or not parts:
            parts.append(str(index.constant))
        return " + ".join(parts)

    def _run(self, run: Run, name: str) -> str:
        """Text of a run's part of an index, for a position of that name."""
        text = name
        if run.below > 1:
            is_one = name == "p" and self._is_one(run.below)
            text = f"{'(p - lane)' if is_one else name} / {run.below}"
        if not run.is_first:
            text = f"{text} % {run.extent}"
        return scaled(text, run.coefficient)

    def _is_one(self, below: int) -> bool:
        """Whether packed lanes all stand in one part of so many inner points.

        The part is then that of the first lane: computed once for all of them, and what
        lies there is read once instead of gathered.
        """
        group, mapping = self._group, self._scope.mapping
        if not self._dialect.packs_lanes or mapping.vector > 1 or mapping.lanes == 1:
            return False
        is_whole = (
            group.kind is not Kind.TILE and not group.inner_points % mapping.lanes
        )
        return is_whole and not below % mapping.lanes

    def _derived(self, number: int, copy: int) -> str:
        atom = self._group.atoms[number]
        if atom.kind is AtomKind.VALUE:
            return f"({self._scope.index_type}){self.operand(atom.value, copy)}"
        operator = "/" if atom.kind is AtomKind.QUOTIENT else "%"
        return f"({self.index(atom.operand, copy)}) {operator} {atom.divisor}"

    def test(self, guards: Guards, copy: int) -> str:
        """Condition under which a guarded element is there."""
        parts: list[str] = []
        for guard in guards:
            low, high = bounds(self._group.atoms, guard.subject)
            text = self.index(guard.subject, copy)
            if low < guard.low:
                parts.append(f"{text} >= {guard.low}")
            if high >= guard.high:
                parts.append(f"{text} < {guard.high}")
        return " && ".join(parts) if parts else "true"
