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
    from collections.abc import Container, Iterable, Sequence

    from cost_model.device import Device
    from cost_model.work import Reuse
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import Group
    from tuner.kernel.reuse import Operand, Terms

FOLLOWED_PLACES: Final = 32
HELD_PAGES: Final = 64
UNHELD_HOPS: Final = 3.0
"""A piece on a page whose address is not held costs as much as so many that are."""
TURN_HOPS: Final = 0.4
"""Hops of a line for each row of its page that is taken in turn.

Source: maps of 64 and of 56 columns, 6 MiB a tensor: with 4 rows in turn 0.4 and 1.1 ns
a line more than with whole rows, with 16 rows 3.9 and 5."""
NEAR_TURN: Final = 0.25
"""What such a line costs in a private cache, as a share: 512 KiB a tensor, 1 ns."""
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
    staged: Container[tuple[int, Terms]] = (),
) -> float:
    """Pieces that a core waits for, in all blocks of a group together.

    Args:
        group: the loops.
        mapping: threads over them.
        device: what runs them; lanes of a GPU do not walk one after the other.
        moved: operands, each with what is asked for again.
        staged: slots and terms of those that a block copies on chip, along the order
            of memory.
    """
    kept = [one for one in moved if one[0].sector_bytes > device.nearest_bytes]
    if device.kind != "cpu" or not kept:
        return 0.0
    walk = _Walk(group, mapping, device, _walks_alone(group, mapping, kept))
    found = [
        (_far(operand, again, device), _piece_of(walk, operand, staged))
        for operand, again in kept
    ]
    beyond = _beyond((operand for operand, _ in kept), device)
    turned = max(beyond, NEAR_TURN) * sum(
        far / device.sector_bytes * _turns(walk, operand)
        for (far, _), (operand, _) in zip(found, kept, strict=True)
    )
    away = [(far, piece) for far, piece in found if piece and piece.places > 1]
    if sum(piece.places for _, piece in away) <= FOLLOWED_PLACES:
        return turned
    pages = sum(piece.pages for _, piece in away)
    each = FAR_HOPS if pages > FAR_PAGES else UNHELD_HOPS
    pieces = sum(far / piece.nbytes for far, piece in away)
    if pages > FAR_PAGES:
        beyond = 1.0  # addresses are waited for wherever the lines are
    return max(turned, beyond * (pieces if pages <= HELD_PAGES else each * pieces))


class _Walk(NamedTuple):
    """How a core goes through a group.

    Attributes:
        is_alone: whether each lane walks down its columns before the next lane does.
    """

    group: Group
    mapping: Mapping
    device: Device
    is_alone: bool

    @property
    def lanes(self) -> int:
        """Neighbouring points that are taken together."""
        mapping = self.mapping
        if self.is_alone:
            return mapping.vector
        return min(mapping.lanes, self.device.subgroup_threads) * mapping.vector


def _walks_alone(
    group: Group, mapping: Mapping, moved: Sequence[tuple[Operand, Sequence[Reuse]]]
) -> bool:
    """Whether each lane walks down its columns before the next lane does.

    Where a lane takes vectors of two tensors, and meets no others at a barrier, a
    compiler leaves the lanes unpacked (squares of 2048 x 1024 summed down: 3.5 ms, with
    four teams 0.74): a line is passed over again for each lane.
    """
    if group.kind is not Kind.COLUMN or mapping.vector == 1 or mapping.teams > 1:
        return False
    written = {store.tensor for store in group.stores}
    read = {operand.slot for operand, _ in moved if operand.slot not in written}
    return len(read) > 1


def _beyond(operands: Iterable[Operand], device: Device) -> float:
    """Share of the bytes of operands that the private caches together do not hold."""
    room = device.l1_bytes * device.multiprocessors
    return max(0.0, 1.0 - room / sum(operand.sector_bytes for operand in operands))


def _turns(walk: _Walk, operand: Operand) -> float:
    """Hops of a line of rows that a block takes in turn, some lanes of each at a time.

    Hardware follows one walk in a page. Of several rows that lie in one it fetches
    nothing ahead, and between two lines lies the arithmetic that finds a row: fewer of
    them are under way. Rows a multiple of a page apart fall to the same places of the
    first cache, which has as many ways as pages.
    """
    group, mapping, device = walk.group, walk.mapping, walk.device
    is_wide = mapping.lanes > device.subgroup_threads
    taken = walk.lanes * (1 if is_wide else mapping.items)
    if group.kind is not Kind.POINTWISE or taken >= group.inner_points:
        return 0.0
    index = Index(0, operand.terms)
    inner, outer = (runs(group.atoms, index, n) for n in (group.inner, group.outer))
    if inner and abs(inner[-1].coefficient) * operand.width >= device.sector_bytes:
        return 0.0  # rows share the lines that lanes gather from
    if mapping.repeat == 1 or not outer or outer[-1].below > 1:
        return 0.0
    step = abs(outer[-1].coefficient) * operand.width * mapping.teams
    if step < PAGE_BYTES:
        return TURN_HOPS * min(mapping.repeat, PAGE_BYTES / step)
    ways = device.nearest_bytes // PAGE_BYTES
    return float(step % PAGE_BYTES == 0 and mapping.repeat > ways)


def _far(operand: Operand, again: Sequence[Reuse], device: Device) -> float:
    """Bytes that come from beyond the nearest cache."""
    return operand.sector_bytes + sum(
        each.requested_bytes
        for each in again
        if each.distance_bytes > device.nearest_bytes
    )


def _piece_of(
    walk: _Walk, operand: Operand, staged: Container[tuple[int, Terms]]
) -> _Piece | None:
    """Of a staged operand a row of a tile; the next begins on another page."""
    if (operand.slot, operand.terms) not in staged:
        return _piece(walk, operand)
    mapping = walk.mapping
    nbytes = float(mapping.repeat * operand.width)
    return _Piece(nbytes, mapping.tile, mapping.tile)


def _piece(walk: _Walk, operand: Operand) -> _Piece | None:
    """None where lanes do not read neighbours: what is gathered is counted as such."""
    group, mapping = walk.group, walk.mapping
    along = runs(group.atoms, Index(0, operand.terms), group.inner)
    if not is_plain(group, operand.terms) or not along:
        return None
    if along[-1].below > 1 or abs(along[-1].coefficient) > 1:
        return None
    length = min(walk.lanes, group.inner_points) * operand.width
    places, pages = 1, 1
    for step, count in sorted(_between(group, mapping, operand)):
        if step <= length:
            length += step * (count - 1)
            continue
        places *= count
        pages *= count if step >= PAGE_BYTES else math.ceil(step * count / PAGE_BYTES)
    least = 0 if walk.is_alone else walk.device.sector_bytes
    return _Piece(float(max(length, least)), places, pages)


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
