"""From the body of a group to the group: loops split, cut and laid out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tuner.kernel.body import Body
from tuner.kernel.errors import CannotLower
from tuner.kernel.index import Guard, Index, Refine, Space, refined
from tuner.kernel.nest import Group, Kind, Load, Select, Store

INNER_POINTS: Final = 32
"""Fewest inner points for which the loops are cut in outer and inner."""
THREAD_PER_ROW_ELEMENTS: Final = 32
"""Rows up to this long are walked by one thread each."""
ROW_RUN_POINTS: Final = 256
"""Fewest points of a run inside a row for which a team takes run after run."""
FEWEST_COLUMNS: Final = 16
"""Fewer rows than this do not fill a vector of threads that own one each."""
_REFINEMENTS: Final = 64


Build = Callable[[Space], Body]


def built(extents: Sequence[int], build: Build) -> Body:
    """Build a body, splitting loops until views are plain sums."""
    factors: dict[int, tuple[int, ...]] = {}
    for _ in range(_REFINEMENTS):
        try:
            return build(Space(extents, factors))
        except Refine as request:
            factors = refined(factors, extents, request)
    raise CannotLower("views", "too many different splits of the same axes")


def _indices(body: Body) -> Iterable[Index]:
    """Every index that the group computes."""
    guards: list[Guard] = []
    for value in body.values:
        what = value.what
        if isinstance(what, Load):
            yield what.index
            guards += what.guards
        elif isinstance(what, Select):
            guards += what.guards
    for store in body.stores:
        yield store.index
        guards += store.guards
    for guard in guards:
        yield guard.subject
    for atom in body.space.atoms[body.space.loops :]:
        yield atom.operand


def _breaks(body: Body, loops: Sequence[int]) -> list[int]:
    """Places in a list of loops over which some index is not one run."""
    atoms = body.space.atoms
    found: set[int] = set()
    for index in set(_indices(body)):
        coefficients = dict(index.terms)
        for place in range(1, len(loops)):
            inner = loops[place]
            run = coefficients.get(inner, 0) * atoms[inner].extent
            if coefficients.get(loops[place - 1], 0) != run:
                found.add(place)
    return sorted(found)


def cut(
    body: Body, loops: tuple[int, ...], fewest: int = INNER_POINTS
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cut loops in outer and inner, so that inner ones are single runs if long."""
    atoms = body.space.atoms
    for place in reversed(_breaks(body, loops)):
        if math.prod(atoms[loop].extent for loop in loops[place:]) >= fewest:
            return loops[:place], loops[place:]
    return (), loops


def arranged(body: Body) -> Group:
    """Choose how threads lie over rows and positions."""
    loops = range(body.space.loops)
    reduced = tuple(loop for loop in loops if body.frame.reduced >> loop & 1)
    kept = tuple(loop for loop in loops if loop not in reduced)
    if not _by_columns(body, kept, reduced):
        serial, inner = cut(body, reduced, ROW_RUN_POINTS)
        return make_group(body, Kind.ROW, kept, inner, serial)
    outer, inner = cut(body, kept)
    return make_group(body, Kind.COLUMN, outer, inner, reduced)


def _by_columns(body: Body, kept: Sequence[int], reduced: Sequence[int]) -> bool:
    if not kept or not reduced:
        return not reduced
    atoms = body.space.atoms
    rows = math.prod(atoms[loop].extent for loop in kept)
    length = math.prod(atoms[loop].extent for loop in reduced)
    if length <= THREAD_PER_ROW_ELEMENTS and rows > length:
        return True
    if rows < FEWEST_COLUMNS:
        return False
    score = 0
    for value in body.values:
        if isinstance(value.what, Load) and value.loops & body.frame.reduced:
            coefficients = dict(value.what.index.terms)
            weight = math.prod(
                atoms[loop].extent for loop in loops_of(value.loops, len(atoms))
            )
            if coefficients.get(kept[-1]) == 1:
                score += weight
            if coefficients.get(reduced[-1]) == 1:
                score -= weight
    return score > 0


def loops_of(mask: int, count: int) -> list[int]:
    """The loops of a bit mask."""
    return [loop for loop in range(count) if mask >> loop & 1]


def make_group(
    body: Body,
    kind: Kind,
    outer: tuple[int, ...],
    inner: tuple[int, ...],
    serial: tuple[int, ...],
    rows: tuple[int, ...] = (),
) -> Group:
    """The group of a finished body."""
    return Group(
        kind=kind,
        atoms=tuple(body.space.atoms),
        outer=outer,
        inner=inner,
        serial=serial,
        rows=rows,
        values=tuple(body.values),
        reductions=tuple(body.reductions),
        stores=_staged(body),
    )


def _staged(body: Body) -> tuple[Store, ...]:
    """Stores in order of their pass."""
    return tuple(sorted(body.stores, key=lambda store: (store.stage, store.tensor)))
