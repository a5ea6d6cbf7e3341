"""Reads that a processor is told of before it needs them.

A team of a row kernel waits for memory in its first pass over a row, and computes on
what the caches hold in the passes behind it, while memory rests. In the second pass it
therefore asks for the row that it takes next, line by line.

Time of a copy kernel that moves as many bytes over that of the kernel, without and with
the request, by turns on two cores, 64 MiB a tensor: layer norm of a sum 0.86 and 1.13,
masked softmax 0.63 and 0.88, group norm 0.56 and 0.67, rows of cross-entropy 0.44 and
0.54.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.kernel.index import AtomKind, runs
from tuner.kernel.nest import Group, Kind, Load, LoopNest
from tuner.kernel.online import online

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuner.kernel.mapping import Mapping

AHEAD_BYTES: Final = 1 << 22
"""Smallest tensor that is asked for: the caches of a core keep smaller ones."""
AHEAD_ROW_BYTES: Final = 1 << 19
"""Longest rows, all tensors together: this one and the next share a core's caches."""
LINE_BYTES: Final = 64


def asked_ahead(nest: LoopNest, group: Group, mapping: Mapping) -> tuple[Load, ...]:
    """The reads that a team asks for in its second pass: of its next row.

    Where both passes go over block after block of a row, those of the next block.
    """
    passes = len(group.plan)
    if group.kind is not Kind.ROW or mapping.vector > 1 or passes < 2:  # noqa: PLR2004
        return ()
    found = tuple(dict.fromkeys(_row_loads(nest, group)))
    if online(group, mapping) is not None:
        return found
    points = group.inner_points * max(group.serial_points, 1)
    width = sum(nest.tensors[load.tensor].dtype.bytes for load in found)
    return found if points * width <= AHEAD_ROW_BYTES else ()


def _row_loads(nest: LoopNest, group: Group) -> Iterator[Load]:
    """Reads of whole rows, neighbours by neighbours, of tensors that are large."""
    outer = set(group.outer)
    for value in group.values:
        load = value.what
        if not isinstance(load, Load) or load.guards:
            continue
        tensor = nest.tensors[load.tensor]
        if tensor.elements * tensor.dtype.bytes < AHEAD_BYTES:
            continue
        atoms = [number for number, _ in load.index.terms]
        if any(group.atoms[number].kind is not AtomKind.LOOP for number in atoms):
            continue
        along = runs(group.atoms, load.index, group.inner)
        whole = len(along) == 1 and along[0].below == 1 and along[0].is_first
        if whole and along[0].coefficient == 1 and not outer.isdisjoint(atoms):
            yield load
