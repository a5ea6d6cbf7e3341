"""What an index asks for, counted: divisions, elements, sectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.kernel.index import AtomKind, Index, runs

if TYPE_CHECKING:
    from tuner.kernel.nest import Group


def divisions(group: Group, index: Index) -> int:
    """Divisions and remainders that finding an index takes, at most."""
    return round(sum(divisions_by_loop(group, index)))


def divisions_by_loop(group: Group, index: Index) -> tuple[float, float, float]:
    """Those of the inner loops, of the serial loops, and of what is made from them."""
    inner, serial = (
        float(
            sum(
                (run.below > 1) + (not run.is_first)
                for run in runs(group.atoms, index, loops)
            )
        )
        for loops in (group.inner, group.serial)
    )
    derived = 0.0
    for number, _ in index.terms:
        atom = group.atoms[number]
        if atom.kind in (AtomKind.QUOTIENT, AtomKind.REMAINDER):
            derived += 1 + divisions(group, atom.operand)
    return inner, serial, derived


def depends(group: Group, number: int) -> int:
    """Loops behind an atom that is no loop itself, as a bit mask."""
    atom = group.atoms[number]
    if atom.kind is AtomKind.LOOP:
        return 0
    if atom.kind is AtomKind.VALUE:
        return group.values[atom.value].loops
    found = 0
    for inside, _ in atom.operand.terms:
        is_loop = group.atoms[inside].kind is AtomKind.LOOP
        found |= 1 << inside if is_loop else depends(group, inside)
    return found


def elements(group: Group, index: Index, loops: int) -> int:
    """Distinct elements that an index reaches, were all its points different."""
    seen = 0
    count = 1
    for number, _ in index.terms:
        atom = group.atoms[number]
        if atom.kind is AtomKind.LOOP:
            seen |= 1 << number
            count *= atom.extent
        elif atom.kind is AtomKind.VALUE:
            count *= points_of(group, group.values[atom.value].loops & ~seen)
            seen |= group.values[atom.value].loops
        else:
            count *= atom.extent
    return min(count, points_of(group, loops)) if loops else count


def points_of(group: Group, loops: int) -> int:
    """Points of some loops, given as a bit mask."""
    return math.prod(
        atom.extent
        for number, atom in enumerate(group.atoms)
        if atom.kind is AtomKind.LOOP and loops >> number & 1
    )


def sectors(
    group: Group, index: Index, elements: float, width: int, sector: int
) -> float:
    """Bytes of the distinct sectors that an index touches."""
    if not elements:
        return 0.0
    steps = sorted(
        (abs(c), group.atoms[a].extent)
        for a, c in index.terms
        if group.atoms[a].kind is AtomKind.LOOP
    )
    if not steps:
        return elements * sector if index.terms else float(sector)
    if steps[0][0] > 1:
        return elements * min(sector, steps[0][0] * width)
    length = 1
    for step, extent in steps:
        if step != length:
            break
        length *= extent
    pieces = elements / length
    if pieces <= 1:
        return math.ceil(elements * width / sector) * sector
    return pieces * math.ceil(length * width / sector) * sector
