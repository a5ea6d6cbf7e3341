"""How often a core of a processor goes on elsewhere than at the next line.

Hardware fetches ahead along lines that follow each other, and does so in a few places
side by side. Lanes of which a vector takes all of its steps before the next vector
begins leave a piece of a row in each of many places, and so do lanes that walk down a
column: each piece beyond the few is waited for. Where the places lie on more pages than
addresses are held for, each also waits for its address.

Sources: Intel, "64 and IA-32 Architectures Optimization Reference Manual": the streamer
follows 32 streams; "Golden Cove": 96 entries of the first data translation buffer, of
them 16 for pages that are written, 7 cycles more in the second. Measured, two cores
with AVX-512: 0.6 ns a piece within few pages, 1.2 to 3.5 ns on many (three maps of 12
to 25 MiB a tensor under all schedules, columns of 4 KiB 3.4 to 5.5 ns).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.kernel.index import Index, runs
from tuner.kernel.mapping import divided
from tuner.kernel.nest import Kind
from tuner.kernel.reuse import PAGE_BYTES, Span, is_plain, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cost_model.device import Device
    from cost_model.work import Reuse
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import Group
    from tuner.kernel.reuse import Operand

FOLLOWED_PLACES: Final = 32
HELD_PAGES: Final = 64
UNHELD_HOPS: Final = 3.0
"""A piece on a page whose address is not held costs as much as so many that are."""
FAR_PAGES: Final = 256
FAR_HOPS: Final = 6.0
"""The same down columns: what was fetched beside a piece is gone when it is needed."""


class _Piece(NamedTuple):
    """Lines of an operand that follow each other, and where the next ones lie.

    Attributes:
        nbytes: of the lines.
        places: how many other pieces are walked before the lines behind these.
        pages: that they lie on.
    """

    nbytes: float
    places: int
    pages: int


def hops(
    group: Group,
    mapping: Mapping,
    device: Device,
    moved: Iterable[tuple[Operand, Sequence[Reuse]]],
) -> float:
    """Pieces that a core waits for, in all blocks of a group together.

    Args:
        group: the loops.
        mapping: threads over them.
        device: what runs them; lanes of a GPU do not walk one after the other.
        moved: operands, each with what is asked for again.
    """
    if device.kind != "cpu":
        return 0.0
    found = [
        (_far(operand, again, device), _piece(group, mapping, device, operand))
        for operand, again in moved
        if operand.sector_bytes > device.nearest_bytes
    ]
    away = [(far, piece) for far, piece in found if piece and piece.places > 1]
    if sum(piece.places for _, piece in away) <= FOLLOWED_PLACES:
        return 0.0
    pages = sum(piece.pages for _, piece in away)
    each = FAR_HOPS if pages > FAR_PAGES else UNHELD_HOPS
    pieces = sum(far / piece.nbytes for far, piece in away)
    return pieces if pages <= HELD_PAGES else each * pieces


def _far(operand: Operand, again: Sequence[Reuse], device: Device) -> float:
    """Bytes that come from beyond the nearest cache."""
    return operand.sector_bytes + sum(
        each.requested_bytes
        for each in again
        if each.distance_bytes > device.nearest_bytes
    )


def _piece(
    group: Group, mapping: Mapping, device: Device, operand: Operand
) -> _Piece | None:
    """None where lanes do not read neighbours: what is gathered is counted as such."""
    along = runs(group.atoms, Index(0, operand.terms), group.inner)
    if not is_plain(group, operand.terms) or not along:
        return None
    if along[-1].below > 1 or abs(along[-1].coefficient) > 1:
        return None
    lanes = min(mapping.lanes, device.subgroup_threads) * mapping.vector
    length = min(lanes, group.inner_points) * operand.width
    places, pages = 1, 1
    for step, count in sorted(_between(group, mapping, operand)):
        if step <= length:
            length += step * (count - 1)
            continue
        places *= count
        pages *= count if step >= PAGE_BYTES else math.ceil(step * count / PAGE_BYTES)
    return _Piece(float(max(length, device.sector_bytes)), places, pages)


def _between(group: Group, mapping: Mapping, operand: Operand) -> list[tuple[int, int]]:
    """Bytes and counts of the steps that a vector of lanes takes before the next."""
    if group.kind is Kind.COLUMN:
        walked = [(group.serial, _span(group.serial_points, mapping.teams))]
    else:
        lanes = mapping.lanes * mapping.vector
        walked = [(group.inner, Span(mapping.items, lanes))]
    if group.kind is Kind.POINTWISE:
        walked.append((group.outer, Span(mapping.repeat, mapping.teams)))
    return [
        step for loops, span in walked for step in steps_of(group, operand, loops, span)
    ]


def _span(points: int, by: int) -> Span:
    return Span(divided(points, by), by)
