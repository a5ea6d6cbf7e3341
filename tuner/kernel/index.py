"""Index arithmetic: where an element lies, as a sum of loop counters.

An `Index` is ``constant + sum(coefficient * atom)``. Atoms are loop counters and,
where a sum will not do, quotients, remainders and values read at run time. Almost
all views stay plain sums, because a loop is split in two when a reshape asks for
its quotient and remainder (`Refine`).
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Index(NamedTuple):
    """``constant + sum(coefficient * atom)``; terms are sorted by atom."""

    constant: int
    terms: tuple[tuple[int, int], ...]


Map = tuple[Index, ...]
"""One index per axis of a tensor."""

ZERO: Final = Index(0, ())


class Guard(NamedTuple):
    """The condition ``low <= subject < high``."""

    subject: Index
    low: int
    high: int


Guards = tuple[Guard, ...]


class AtomKind(StrEnum):
    """What an atom stands for."""

    LOOP = "loop"
    QUOTIENT = "quotient"
    REMAINDER = "remainder"
    VALUE = "value"


class Atom(NamedTuple):
    """One term of index arithmetic, at least 0 and below `extent`.

    Attributes:
        operand, divisor: for quotients and remainders.
        value: for values read at run time, the number of the value in the body.
    """

    kind: AtomKind
    extent: int
    operand: Index = ZERO
    divisor: int = 1
    value: int = -1


class Refine(Exception):
    """A loop must be split so that a view becomes a plain sum: start again.

    Attributes:
        axis: the axis whose loop is split.
        place: which of its factors.
        inner: extent of the new inner factor.
    """

    def __init__(self, axis: int, place: int, inner: int) -> None:
        self.axis, self.place, self.inner = axis, place, inner
        super().__init__(axis, place, inner)


def plus(left: Index, right: Index) -> Index:
    """The sum of two indices."""
    if not left.terms and not left.constant:
        return right
    if not right.terms:
        return Index(left.constant + right.constant, left.terms)
    total = dict(left.terms)
    for atom, coefficient in right.terms:
        total[atom] = total.get(atom, 0) + coefficient
    terms = tuple(sorted((a, c) for a, c in total.items() if c))
    return Index(left.constant + right.constant, terms)


def times(index: Index, factor: int) -> Index:
    """An index multiplied by a number."""
    if factor == 1:
        return index
    if factor == 0:
        return ZERO
    terms = tuple((a, c * factor) for a, c in index.terms)
    return Index(index.constant * factor, terms)


def shifted(index: Index, offset: int) -> Index:
    """An index plus a number."""
    return Index(index.constant + offset, index.terms) if offset else index


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each axis, in row-major order."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def flatten(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    """Position of an element in a row-major tensor."""
    constant, stride = 0, 1
    total: dict[int, int] = {}
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        constant += index.constant * stride
        for atom, coefficient in index.terms:
            total[atom] = total.get(atom, 0) + coefficient * stride
        stride *= extent
    return Index(constant, tuple(sorted([(a, c) for a, c in total.items() if c])))


def bounds(atoms: Sequence[Atom], index: Index) -> tuple[int, int]:
    """Least and greatest value of an index."""
    low = high = index.constant
    for atom, coefficient in index.terms:
        reach = coefficient * (atoms[atom].extent - 1)
        if reach > 0:
            high += reach
        else:
            low += reach
    return low, high


def rejoined(atoms: Sequence[Atom], index: Index) -> Index:
    """The same index with d (x / d) + x % d written as x."""
    total, constant = dict(index.terms), index.constant
    while (pair := _torn(atoms, total)) is not None:
        top, left = pair
        factor = total.pop(left)
        del total[top]
        whole = atoms[left].operand
        constant += factor * whole.constant
        for atom, coefficient in whole.terms:
            total[atom] = total.get(atom, 0) + factor * coefficient
    return Index(constant, tuple(sorted((a, c) for a, c in total.items() if c)))


def _torn(atoms: Sequence[Atom], total: Mapping[int, int]) -> tuple[int, int] | None:
    """A quotient and its remainder that together are what was divided."""
    for left, factor in total.items():
        rest = atoms[left]
        if rest.kind is not AtomKind.REMAINDER:
            continue
        for top, coefficient in total.items():
            atom = atoms[top]
            is_quotient = atom.kind is AtomKind.QUOTIENT
            same = atom.operand == rest.operand and atom.divisor == rest.divisor
            if is_quotient and same and coefficient == factor * rest.divisor:
                return top, left
    return None


class Run(NamedTuple):
    """Neighbouring loops that an index walks as if they were one.

    Its counter is ``position // below % extent`` of the position in all the loops.

    Attributes:
        below: points of the loops inside the run.
        extent: points of the run.
        is_first: whether no loop lies outside of it, so that ``%`` is not needed.
        coefficient: by which the counter is multiplied.
    """

    below: int
    extent: int
    is_first: bool
    coefficient: int


def runs(atoms: Sequence[Atom], index: Index, loops: Sequence[int]) -> list[Run]:
    """The runs of an index over a list of loops, slowest first."""
    coefficients = dict(index.terms)
    found: list[Run] = []
    below = 1
    place = len(loops) - 1
    while place >= 0:
        extent = atoms[loops[place]].extent
        coefficient = coefficients.get(loops[place], 0)
        step = extent
        place -= 1
        while coefficient and place >= 0:
            outer = loops[place]
            if coefficients.get(outer, 0) != coefficient * step:
                break
            step *= atoms[outer].extent
            place -= 1
        if coefficient:
            found.append(Run(below, step, place < 0, coefficient))
        below *= step
    found.reverse()
    return found


class Space:
    """The loops of one group, and the atoms made from them, while it is lowered.

    Args:
        extents: of the axes that the group iterates over.
        factors: axes whose loop is split, with the extents of its parts.
    """

    def __init__(
        self, extents: Sequence[int], factors: Mapping[int, tuple[int, ...]]
    ) -> None:
        self.atoms: list[Atom] = []
        self.axis_atoms: list[tuple[int, ...]] = []
        self._places: list[tuple[int, int]] = []
        self._known: dict[Atom, int] = {}
        for axis, extent in enumerate(extents):
            parts = factors.get(axis, (extent,))
            mine = []
            for place, part in enumerate(parts):
                if part == 1:
                    continue
                mine.append(len(self.atoms))
                self.atoms.append(Atom(AtomKind.LOOP, part))
                self._places.append((axis, place))
            self.axis_atoms.append(tuple(mine))
        self.loops = len(self.atoms)
        self.axes: Map = tuple(
            flatten(
                [Index(0, ((atom, 1),)) for atom in mine],
                [self.atoms[atom].extent for atom in mine],
            )
            for mine in self.axis_atoms
        )

    def atom(self, atom: Atom) -> Index:
        """A derived atom, made once."""
        number = self._known.get(atom)
        if number is None:
            number = self._known[atom] = len(self.atoms)
            self.atoms.append(atom)
        return Index(0, ((number, 1),))

    def unique(self, extent: int) -> int:
        """A new atom for a value read at run time; the value is filled in later."""
        self.atoms.append(Atom(AtomKind.VALUE, extent))
        return len(self.atoms) - 1

    def loops_in(self, index: Index) -> int:
        """Mask of the loops that an index depends on, through quotients too."""
        mask = 0
        for atom, _ in index.terms:
            inner = self.atoms[atom].operand
            mask |= 1 << atom if atom < self.loops else self.loops_in(inner)
        return mask

    def bounds(self, index: Index) -> tuple[int, int]:
        """Least and greatest value of an index."""
        return bounds(self.atoms, index)

    def divide(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Quotient and remainder by a positive number.

        Raises:
            Refine: splitting a loop makes both plain sums.
        """
        if divisor == 1:
            return index, ZERO
        whole = tuple((a, c // divisor) for a, c in index.terms if c % divisor == 0)
        quotient, constant = divmod(index.constant, divisor)
        rest = Index(constant, tuple(t for t in index.terms if t[1] % divisor))
        low, high = self.bounds(rest)
        below = low // divisor
        if below < 0:
            # C divides towards zero, and an atom is at least 0.
            quotient, rest = quotient + below, shifted(rest, -below * divisor)
            low, high = low - below * divisor, high - below * divisor
        if high < divisor:
            return Index(quotient, whole), rest
        self._refine(rest, divisor)
        top = Atom(AtomKind.QUOTIENT, high // divisor + 1, rest, divisor)
        left = Atom(AtomKind.REMAINDER, divisor, rest, divisor)
        return plus(Index(quotient, whole), self.atom(top)), self.atom(left)

    def _refine(self, rest: Index, divisor: int) -> None:
        for atom, coefficient in rest.terms:
            if atom >= self.loops or coefficient <= 0 or divisor % coefficient:
                continue
            inner = divisor // coefficient
            extent = self.atoms[atom].extent
            if 1 < inner < extent and extent % inner == 0:
                raise Refine(*self._places[atom], inner)

    def reshape(self, indices: Map, shape: Sequence[int], wanted: Sequence[int]) -> Map:
        """Indices into the same elements in another shape.

        Args:
            indices: of an element of a tensor of shape `shape`.
            shape: where the indices come from.
            wanted: where they shall lead.
        """
        if tuple(shape) == tuple(wanted):
            return indices
        if 0 in wanted:
            return (ZERO,) * len(wanted)
        source = [(n, i) for n, i in zip(shape, indices, strict=True) if n != 1]
        found: list[Index] = []
        targets = [extent for extent in wanted if extent != 1]
        start = 0
        for group in _segments([n for n, _ in source], targets):
            taken, made = group
            part = source[start : start + taken]
            start += taken
            found.extend(self._regroup(part, made))
        rest = iter(found)
        return tuple(ZERO if extent == 1 else next(rest) for extent in wanted)

    def rejoined(self, index: Index) -> Index:
        """The same index without quotients beside their remainders."""
        if all(atom < self.loops for atom, _ in index.terms):
            return index
        return rejoined(self.atoms, index)

    def _regroup(
        self, part: Sequence[tuple[int, Index]], made: Sequence[int]
    ) -> list[Index]:
        if len(part) == 1 and len(made) == 1:
            return [part[0][1]]
        flat = flatten([index for _, index in part], [n for n, _ in part])
        flat = self.rejoined(flat)
        result: list[Index] = []
        for extent in reversed(made[1:]):
            flat, rest = self.divide(flat, extent)
            result.append(rest)
        result.append(flat)
        result.reverse()
        return result


def _segments(
    source: Sequence[int], wanted: Sequence[int]
) -> list[tuple[int, list[int]]]:
    """Cut two shapes of equal count into shortest pieces of equal count.

    Returns:
        for each piece, how many source axes it has, and its wanted extents.
    """
    pieces: list[tuple[int, list[int]]] = []
    i = j = 0
    while i < len(source) and j < len(wanted):
        left, right = source[i], wanted[j]
        first_i, first_j = i, j
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left *= source[i]
                i += 1
            else:
                right *= wanted[j]
                j += 1
        pieces.append((i - first_i, list(wanted[first_j:j])))
    return pieces


def refined(
    factors: Mapping[int, tuple[int, ...]], extents: Sequence[int], request: Refine
) -> dict[int, tuple[int, ...]]:
    """Split one loop as a `Refine` asks."""
    parts = factors.get(request.axis, (extents[request.axis],))
    old = parts[request.place]
    new = (
        *parts[: request.place],
        old // request.inner,
        request.inner,
        *parts[request.place + 1 :],
    )
    assert math.prod(new) == math.prod(parts)
    return {**factors, request.axis: new}
