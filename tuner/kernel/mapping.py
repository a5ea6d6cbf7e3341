"""How a schedule lays threads over the loops of a group."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Table
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tuner.kernel.nest import Group, Kind, LoopNest

if TYPE_CHECKING:
    from tuner.plan import Schedule

Knobs = Table[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Threads over loops. All groups of a kernel have blocks of equal size.

    A block is `lanes x teams` threads. Lanes are neighbours along the inner loops.
    Teams are neighbours along the outer loops, or share out the serial loops of a
    COLUMN group between them. A TILE block makes `height x tile` points of the result:
    lanes are neighbours along the inner loops, and a team owns `repeat` neighbouring
    rows.

    Attributes:
        vector: neighbouring inner points that a thread takes at once.
        items: how many such steps a thread takes along the inner loops (ROW: until
            the row is done).
        repeat: outer points that a team takes, one after the other.
        chunks: blocks along the inner loops (ROW: 1).
        blocks: of the group.
        first_block: where the group's blocks begin in the grid.
        is_persistent: whether values are kept between passes.
        unroll: factor for the loop over serial points or row steps.
        streams: whether large results go past the caches, where that can be.
        depth: of a TILE, serial points that are staged at once.
        is_tensor: whether a TILE multiplies on tensor cores, where the language has
            them; a team is then a sub-group.
    """

    lanes: int
    teams: int
    vector: int
    items: int
    repeat: int
    chunks: int
    blocks: int
    first_block: int
    is_persistent: bool
    unroll: int
    streams: bool = False
    depth: int = 1
    is_tensor: bool = False

    @property
    def height(self) -> int:
        """Rows of a TILE's block."""
        return self.teams * self.repeat

    @property
    def tile(self) -> int:
        """Inner points of a block (ROW: of one step of a team)."""
        return self.lanes * self.vector * self.items


def power_above(number: int) -> int:
    """The least power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()


def divided(number: int, by: int) -> int:
    """Division rounded up."""
    return -(-number // by)


def map_groups(nest: LoopNest, schedule: Schedule) -> tuple[Mapping, ...]:
    """The mapping of every group, in order of their blocks."""
    knobs = schedule.as_dict
    lanes = _lanes(nest, knobs)
    found: list[Mapping] = []
    first = 0
    for group in nest.groups:
        mapping = _RULES[group.kind](group, knobs, lanes, first)
        first += mapping.blocks
        found.append(mapping)
    return tuple(found)


def _lanes(nest: LoopNest, knobs: Knobs) -> int:
    """Lanes of every block: one number for a kernel."""
    if nest.groups and nest.groups[0].kind is not Kind.POINTWISE:
        return knobs["lanes"]
    widest = max((g.inner_points // _vector(g, knobs) for g in nest.groups), default=1)
    return min(knobs["threads"], power_above(widest))


def _vector(group: Group, knobs: Knobs) -> int:
    return knobs["vector"] if group.inner_points % knobs["vector"] == 0 else 1


def _map_pointwise(group: Group, knobs: Knobs, lanes: int, first: int) -> Mapping:
    teams = knobs["threads"] // lanes
    vector = _vector(group, knobs)
    repeat = min(knobs["repeat"], divided(group.outer_points, teams))
    items = min(knobs.get("items", 1), divided(group.inner_points, lanes * vector))
    chunks = divided(group.inner_points, lanes * vector * items)
    return Mapping(
        lanes=lanes,
        teams=teams,
        vector=vector,
        items=items,
        repeat=repeat,
        chunks=chunks,
        blocks=chunks * divided(group.outer_points, teams * repeat),
        first_block=first,
        is_persistent=False,
        unroll=1,
        streams=bool(knobs.get("stream", 0)),
    )


def _map_row(group: Group, knobs: Knobs, lanes: int, first: int) -> Mapping:
    teams = knobs["threads"] // lanes
    vector = _vector(group, knobs)
    repeat = min(knobs["repeat"], divided(group.outer_points, teams))
    return Mapping(
        lanes=lanes,
        teams=teams,
        vector=vector,
        items=max(divided(group.inner_points, lanes * vector), 1),
        repeat=repeat,
        chunks=1,
        blocks=divided(group.outer_points, teams * repeat),
        first_block=first,
        is_persistent=bool(knobs.get("persistent", 0)),
        unroll=knobs.get("unroll", 1),
        streams=bool(knobs.get("stream", 0)),
    )


def _map_column(group: Group, knobs: Knobs, lanes: int, first: int) -> Mapping:
    vector = _vector(group, knobs)
    chunks = divided(group.inner_points, lanes * vector)
    return Mapping(
        lanes=lanes,
        teams=knobs["threads"] // lanes,
        vector=vector,
        items=1,
        repeat=1,
        chunks=chunks,
        blocks=chunks * group.outer_points,
        first_block=first,
        is_persistent=False,
        unroll=knobs.get("unroll", 1),
    )


def _map_tile(group: Group, knobs: Knobs, lanes: int, first: int) -> Mapping:
    teams = knobs["threads"] // lanes
    chunks = divided(group.inner_points, lanes * knobs["columns"])
    bands = divided(group.row_points, teams * knobs["rows"])
    return Mapping(
        lanes=lanes,
        teams=teams,
        vector=1,
        items=knobs["columns"],
        repeat=knobs["rows"],
        chunks=chunks,
        blocks=chunks * bands * group.outer_points,
        first_block=first,
        is_persistent=False,
        unroll=1,
        depth=knobs["depth"],
        is_tensor=bool(knobs.get("tensor", 0)),
    )


_RULES: Final[Table[Kind, Callable[[Group, Knobs, int, int], Mapping]]] = (
    MappingProxyType(
        {
            Kind.POINTWISE: _map_pointwise,
            Kind.ROW: _map_row,
            Kind.COLUMN: _map_column,
            Kind.TILE: _map_tile,
        }
    )
)


def blocks_of(mappings: tuple[Mapping, ...]) -> int:
    """Blocks of the whole grid; a kernel without work still has one."""
    return max(sum(mapping.blocks for mapping in mappings), 1)
