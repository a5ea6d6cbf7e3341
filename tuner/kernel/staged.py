"""Reads across the order of memory, which a block of a processor stages on chip.

Where neighbouring lanes read elements that are not neighbours, neighbouring rows may (a
transposed operand). If rows of such an operand are a multiple of 4 KiB apart, the lines
of one gather fall to the same places of the smallest cache, and push each other out
before their other elements are used. A block then copies its tile of the operand along
the order of memory first, and its lanes gather from the copy: 4096 x 4096 transposed
and added in 12.0 ms instead of 15.3. Other operands are better read where they lie
(1021 x 1031: 0.55 ms, staged 0.65; 256 x 256, which stays in the caches: 9 us, 12).

What is left is the way through memory: rows that are 4 KiB apart come in pieces of 256
bytes. Of each core's time the sum of 4096 x 4096 takes 11.1 ms; loops in C that turn
16 x 16 elements in registers take 13.4 in tiles of 64 x 64, 10.4 from a staged tile,
and 9.7 where they turn it while they stage it. The same sum in order takes 5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.kernel.index import AtomKind, runs
from tuner.kernel.nest import Group, Kind, Load, LoopNest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.mapping import Mapping

STAGED_LANES: Final = 16
"""Fewest lanes, and so rows and columns of a tile: four bytes each fill a line."""
STAGED_OPERAND_BYTES: Final = 1 << 22
"""Smallest operand that is staged: the caches of a core keep smaller ones."""
ALIAS_BYTES: Final = 1 << 12
"""Lines so far apart share their places in the smallest cache (64 sets of 64 bytes)."""
STAGED_BYTES: Final = 80 << 10
"""Most on-chip memory of a block for its tiles."""
STAGED_PADDING: Final = 1
"""Elements between the rows of a tile, so that a gather meets different lines."""


def staged_values(nest: LoopNest, group: Group, mapping: Mapping) -> tuple[int, ...]:
    """The values of a group that are read through tiles; see `pitch`."""
    if mapping.vector > 1 or mapping.teams > 1:
        return ()
    if mapping.lanes < STAGED_LANES or mapping.repeat % mapping.lanes:
        return ()
    found = turned_values(nest, group)
    return found if tile_bytes(group, mapping, found) <= STAGED_BYTES else ()


def staged_tile_bytes(nest: LoopNest, group: Group, mapping: Mapping) -> int:
    """On-chip memory that a block takes for the tiles of such values."""
    return tile_bytes(group, mapping, staged_values(nest, group, mapping))


def tile_bytes(group: Group, mapping: Mapping, values: Sequence[int]) -> int:
    """The same of some values, of which it is known that they are staged."""
    size = sum(group.values[number].dtype.bytes for number in values)
    return size * mapping.tile * pitch(mapping)


def turned_values(nest: LoopNest, group: Group) -> tuple[int, ...]:
    """The values of a group that are better staged, whatever the mapping."""
    if group.kind is not Kind.POINTWISE or len(nest.groups) > 1:
        return ()
    return tuple(
        number
        for number, value in enumerate(group.values)
        if isinstance(value.what, Load) and _is_turned(nest, group, value.what)
    )


def pitch(mapping: Mapping) -> int:
    """Elements from a row of a tile to the next; it has a row for each inner point."""
    return mapping.repeat + STAGED_PADDING


def _is_turned(nest: LoopNest, group: Group, load: Load) -> bool:
    """Whether neighbours in memory lie along the outer loops, and lines alias."""
    tensor = nest.tensors[load.tensor]
    if load.guards or tensor.elements * tensor.dtype.bytes < STAGED_OPERAND_BYTES:
        return False
    if any(group.atoms[n].kind is not AtomKind.LOOP for n, _ in load.index.terms):
        return False
    inner = runs(group.atoms, load.index, group.inner)
    outer = runs(group.atoms, load.index, group.outer)
    if not inner or not outer or inner[-1].below > 1 or outer[-1].below > 1:
        return False
    apart = abs(inner[-1].coefficient) * tensor.dtype.bytes
    return outer[-1].coefficient == 1 and apart % ALIAS_BYTES == 0
