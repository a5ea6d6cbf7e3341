"""The loop nest: the one object that counts, schedules and texts come from.

A nest is a row of independent groups. A group walks over ``outer x inner`` points,
and for each of them over its ``serial`` points:

* POINTWISE: every point stores its outputs; there are no reductions.
* ROW: the serial and inner loops are reduced. A team of threads walks along the
  inner ones together, for one serial point after the other.
* COLUMN: the serial loops are reduced. A thread owns a point of the inner loops.
* TILE: the serial loops are reduced. The result has ``rows x inner`` points for each
  outer point; the reduced value is a product of one operand that does not change
  along the inner loops and one that does not change along the rows, so a block of
  threads stages tiles of both on chip.

A group is a list of scalar values in order of computation, and of stores. Passes:
the reductions of stage ``p`` are filled in pass ``p`` over the reduced loops; what
is stored at stage ``p`` is stored in the first pass in which it is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from tuner.kernel.index import ZERO, Atom, AtomKind, Guards, Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tuner.ir.expr import Expr
    from tuner.ir.graph import Graph
    from tuner.ir.types import DType
    from tuner.plan import Family


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a tensor; zero where the guards do not hold."""

    tensor: int
    index: Index
    guards: Guards


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: float | int


@dataclass(frozen=True, slots=True)
class Apply:
    """An expression of the kernel language applied to values.

    Attributes:
        operand: dtype in which the arguments enter the expression.
    """

    expression: Expr
    args: tuple[int, ...]
    operand: DType


@dataclass(frozen=True, slots=True)
class Select:
    """`chosen` where the guards hold, else `other`."""

    guards: Guards
    chosen: int
    other: int


@dataclass(frozen=True, slots=True)
class Reduced:
    """The finished result of a reduction of the group."""

    reduction: int


@dataclass(frozen=True, slots=True)
class Value:
    """One scalar that a thread computes.

    Attributes:
        what: how it is computed.
        dtype: of the result; 16-bit floats are held in float32.
        loops: bit mask of the loops that it depends on.
        stage: the first pass in which it can be known.
    """

    what: Load | Constant | Apply | Select | Reduced
    dtype: DType
    loops: int
    stage: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction over the reduced loops.

    Attributes:
        op: row of the operator table.
        source: the value that is reduced.
        dtype: of the accumulator.
        stage: the pass that fills it.
    """

    op: str
    source: int
    dtype: DType
    stage: int


@dataclass(frozen=True, slots=True)
class Store:
    """An output element.

    Attributes:
        per_row: whether one value is stored for all reduced points together.
        stage: the pass in which (or, per row, before which) it is stored.
    """

    tensor: int
    index: Index
    guards: Guards
    value: int
    per_row: bool
    stage: int


class Kind(StrEnum):
    """How a group's reductions lie."""

    POINTWISE = "pointwise"
    ROW = "row"
    COLUMN = "column"
    TILE = "tile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A pointer argument. The name is that of the graph, and never rendered."""

    name: str
    dtype: DType
    elements: int
    is_output: bool


@dataclass(frozen=True, kw_only=True)
class Group:
    """One independent part of a kernel.

    Attributes:
        atoms: loops first (the numbers in outer, inner, serial), then derived atoms.
        outer, inner, serial: loop numbers, slowest first.
        rows: of a TILE group, likewise; the others have none.
        values: in order of computation.
    """

    kind: Kind
    atoms: tuple[Atom, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    serial: tuple[int, ...]
    values: tuple[Value, ...]
    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]
    rows: tuple[int, ...] = ()

    def extent(self, loops: tuple[int, ...]) -> int:
        """Number of points of some loops together."""
        return math.prod(self.atoms[loop].extent for loop in loops)

    @cached_property
    def outer_points(self) -> int:
        """Points of the outer loops."""
        return self.extent(self.outer)

    @cached_property
    def inner_points(self) -> int:
        """Points of the inner loops."""
        return self.extent(self.inner)

    @cached_property
    def serial_points(self) -> int:
        """Points of the serial loops."""
        return self.extent(self.serial)

    @cached_property
    def row_points(self) -> int:
        """Points of the rows."""
        return self.extent(self.rows)

    @cached_property
    def counted_points(self) -> int:
        """The greatest number that a position in the loops may reach."""
        parts = (self.outer_points, self.inner_points, max(self.serial_points, 1))
        if self.kind is Kind.TILE:
            return max(*parts, self.row_points)
        return math.prod(parts)

    @cached_property
    def inner_mask(self) -> int:
        """The inner loops as a bit mask."""
        return sum(1 << loop for loop in self.inner)

    @cached_property
    def walked_mask(self) -> int:
        """The loops that a thread walks in each pass, as a bit mask."""
        walked = self.serial if self.kind is Kind.COLUMN else self.serial + self.inner
        return sum(1 << loop for loop in walked)

    @cached_property
    def plan(self) -> tuple[Pass, ...]:
        """The passes over the walked loops, in order."""
        return plan_passes(self)

    def needs(self, number: int) -> Iterator[int]:
        """Values that a value is computed from, its index values among them."""
        what = self.values[number].what
        if isinstance(what, Apply):
            yield from what.args
        elif isinstance(what, Load):
            yield from self.index_needs(what.index, what.guards)
        elif isinstance(what, Select):
            yield from (what.chosen, what.other)
            yield from self.index_needs(ZERO, what.guards)

    def index_needs(self, index: Index, guards: Guards) -> Iterator[int]:
        """Values read at run time that an index or its guards depend on."""
        for each in (index, *(guard.subject for guard in guards)):
            for number, _ in each.terms:
                atom = self.atoms[number]
                if atom.kind is AtomKind.VALUE:
                    yield atom.value
                elif atom.kind is not AtomKind.LOOP:
                    yield from self.index_needs(atom.operand, ())


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over the walked loops.

    Attributes:
        stage: number of the pass.
        reductions: that it fills.
        stores: that it makes at each point.
        values: that depend on the walked loops, in order, if nothing was kept.
        fresh: of those, what it computes if all values of earlier passes were kept.
        kept: values of earlier passes that it then reads.
    """

    stage: int
    reductions: tuple[int, ...]
    stores: tuple[Store, ...]
    values: tuple[int, ...]
    fresh: tuple[int, ...]
    kept: tuple[int, ...]


def plan_passes(group: Group) -> tuple[Pass, ...]:
    """Which values each pass computes."""
    stages = [r.stage for r in group.reductions]
    stages += [s.stage for s in group.stores if not s.per_row]
    seen: set[int] = set()
    found: list[Pass] = []
    for stage in range(max(stages, default=-1) + 1):
        reductions = tuple(
            i for i, r in enumerate(group.reductions) if r.stage == stage
        )
        stores = tuple(s for s in group.stores if s.stage == stage and not s.per_row)
        if not reductions and not stores:
            continue
        roots = [group.reductions[i].source for i in reductions]
        for store in stores:
            roots.append(store.value)
            roots += group.index_needs(store.index, store.guards)
        values, _ = _closure(group, roots, set())
        fresh, kept = _closure(group, roots, seen)
        seen.update(values)
        found.append(Pass(stage, reductions, stores, values, fresh, kept))
    return tuple(found)


def _closure(
    group: Group, roots: Iterable[int], known: set[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Walked values that the roots need: those to compute, those already known."""
    fresh: set[int] = set()
    kept: set[int] = set()
    stack = list(roots)
    while stack:
        number = stack.pop()
        if number in fresh or not group.values[number].loops & group.walked_mask:
            continue
        if number in known and group.values[number].loops & group.inner_mask:
            kept.add(number)
            continue
        fresh.add(number)
        stack.extend(group.needs(number))
    return tuple(sorted(fresh)), tuple(sorted(kept))


@dataclass(frozen=True, kw_only=True)
class LoopNest:
    """One kernel, before it is known how threads walk through it.

    Attributes:
        graph: what was lowered; a schedule may ask for another lowering of it.
    """

    family: Family
    tensors: tuple[Tensor, ...]
    groups: tuple[Group, ...]
    graph: Graph | None = field(default=None, compare=False, repr=False)

    @cached_property
    def known_halves(self) -> dict[int, tuple[LoopNest, LoopNest]]:
        """Both launches by number of parts, as `tuner.kernel.split` found them."""
        return {}

    @cached_property
    def index_bits(self) -> int:
        """32 where every position fits a signed 32-bit number, else 64."""
        points = [group.counted_points for group in self.groups]
        largest = max([t.elements for t in self.tensors] + points, default=0)
        return 32 if largest < 2**30 else 64
