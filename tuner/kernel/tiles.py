"""TILE groups: which values belong to which operand, and good sizes of tiles."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.ir.types import DType
from tuner.kernel.fragments import COLUMNS, LANES, LEFT, RIGHT, ROWS, TERMS
from tuner.kernel.index import runs
from tuner.kernel.mapping import divided, map_groups
from tuner.kernel.nest import Apply, Group, Load, LoopNest
from tuner.kernel.onchip import STATIC_SHARED_BYTES
from tuner.plan import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cost_model.device import Device
    from tuner.kernel.mapping import Mapping

PADDING: Final = 4
"""Elements between the rows of a staged tile: stores along the terms then meet
different banks, and rows still begin at a multiple of 16 bytes."""
MOST_SUMS: Final = 64
"""Most 32-bit registers for partial sums of one thread."""
TENSOR_PADDING: Final = 8
"""Elements of 16 bits between the rows of a tile for tensor cores: the threads of a
sub-group then read a fragment from 32 different banks, at any depth, and rows begin at
a multiple of 16 bytes."""
_MOST_TENSOR_SUMS: Final = 128
"""The same on tensor cores, whose factors take few registers."""
_FIRST_TENSOR: Final = 80
"""Architectures from here on have the instruction (sm_75 has a smaller one)."""
_PRODUCT_CLOCKS: Final = 8
"""A sub-core multiplies and adds 16 x 8 x 16 in so many clocks: 1024 a clock on a
multiprocessor of four (NVIDIA A100 Tensor Core GPU Architecture, 2020, table 2)."""
_READ_CLOCKS: Final = 4
"""One read of on-chip memory by a sub-group, when all four sub-cores read: 128 bytes a
clock (CUDA C++ Best Practices Guide, 10.2.3)."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor of the summed product.

    Attributes:
        value: its number.
        staged: values that change with its tile, in order of computation.
        axis: loops beside the serial ones that it runs along: rows, or inner.
        along_terms: whether neighbouring threads take neighbouring terms.
    """

    value: int
    staged: tuple[int, ...]
    axis: tuple[int, ...]
    along_terms: bool


@dataclass(frozen=True, slots=True)
class TileValues:
    """The values of a TILE group, by where they are computed.

    Attributes:
        block: once in a block.
        left, right: the factors of the product.
        row: once in a row of the result.
        point: at each point of the result.
    """

    block: tuple[int, ...]
    left: Operand
    right: Operand
    row: tuple[int, ...]
    point: tuple[int, ...]


def tile_values(group: Group) -> TileValues:
    """Sort the values of a TILE group."""
    (reduction,) = group.reductions
    product = group.values[reduction.source].what
    assert isinstance(product, Apply)
    left, right = product.args
    rows, inner, serial = map(_mask, (group.rows, group.inner, group.serial))
    walked = rows | inner | serial
    roots: list[int] = []
    for store in group.stores:
        roots.append(store.value)
        roots += group.index_needs(store.index, store.guards)
    behind = _closure(group, roots, walked)
    return TileValues(
        block=tuple(
            number
            for number, value in enumerate(group.values)
            if not value.loops & walked
        ),
        left=_operand(group, left, group.rows, walked),
        right=_operand(group, right, group.inner, walked),
        row=tuple(n for n in behind if not group.values[n].loops & inner),
        point=tuple(n for n in behind if group.values[n].loops & inner),
    )


def _mask(loops: tuple[int, ...]) -> int:
    return sum(1 << loop for loop in loops)


def _closure(group: Group, roots: Iterable[int], walked: int) -> tuple[int, ...]:
    found: set[int] = set()
    stack = list(roots)
    while stack:
        number = stack.pop()
        if number not in found and group.values[number].loops & walked:
            found.add(number)
            stack.extend(group.needs(number))
    return tuple(sorted(found))


def _operand(group: Group, value: int, axis: tuple[int, ...], walked: int) -> Operand:
    staged = _closure(group, (value,), walked)
    return Operand(value, staged, axis, _along_terms(group, staged, axis))


def _along_terms(group: Group, staged: tuple[int, ...], axis: tuple[int, ...]) -> bool:
    """Whether loads are neighbours along the terms, and not along the other axis."""
    score = 0
    for number in staged:
        what = group.values[number].what
        if isinstance(what, Load):
            steps = dict(what.index.terms)
            score += bool(group.serial) and steps.get(group.serial[-1]) == 1
            score -= bool(axis) and steps.get(axis[-1]) == 1
    return score > 0


def staged_bytes(group: Group, mapping: Mapping) -> int:
    """On-chip memory of both tiles of a block."""
    width = held_bytes(group)
    return width * mapping.depth * (mapping.height + mapping.tile + 2 * PADDING)


def held_bytes(group: Group) -> int:
    """Bytes of a factor as it is staged."""
    return group.reductions[0].dtype.bytes


def tensor_bytes(mapping: Mapping) -> int:
    """On-chip memory of both tiles of a block that multiplies on tensor cores."""
    width = DType.F16.bytes
    return width * (mapping.depth + TENSOR_PADDING) * (mapping.height + mapping.tile)


def tensor_dtype(nest: LoopNest) -> DType | None:
    """The 16-bit type of all factors, if tensor cores multiply them as they lie.

    A factor that is computed has more bits than the tensor cores take.
    """
    kinds = set()
    for group in nest.groups:
        values = tile_values(group)
        for operand in (values.left, values.right):
            what = group.values[operand.value].what
            kinds.add(
                nest.tensors[what.tensor].dtype if isinstance(what, Load) else None
            )
    kind = kinds.pop()
    return kind if not kinds and kind in (DType.F16, DType.BF16) else None


def has_tensor_cores(device: Device) -> bool:
    """Whether a device multiplies 16 x 8 x 16 elements in one instruction."""
    name, _, number = device.architecture.partition("_")
    return name == "sm" and number.isdecimal() and int(number) >= _FIRST_TENSOR


def is_legal_tiles(nest: LoopNest, mappings: Sequence[Mapping], device: Device) -> bool:
    """Whether a device can run the blocks of all groups."""
    return all(
        is_legal_tile(nest, group, mapping, device)
        for group, mapping in zip(nest.groups, mappings, strict=True)
    )


def is_legal_tile(
    nest: LoopNest, group: Group, mapping: Mapping, device: Device
) -> bool:
    """Whether a device can hold a block's tiles and a thread's partial sums.

    A schedule for tensor cores must also be one without: the text in a language that
    cannot name them has the same blocks.
    """
    room = min(STATIC_SHARED_BYTES, device.max_shared_bytes_per_block)
    sums = mapping.items * mapping.repeat * (held_bytes(group) // 4)
    if staged_bytes(group, mapping) > room:
        return False
    if not mapping.is_tensor:
        return sums <= MOST_SUMS
    return (
        has_tensor_cores(device)
        and tensor_dtype(nest) is not None
        and mapping.lanes == LANES
        and not mapping.repeat % ROWS
        and not mapping.depth % TERMS
        and sums <= _MOST_TENSOR_SUMS
    )


# threads, lanes, rows, columns, depth
_Shape = tuple[int, int, int, int, int]
_Rated = tuple[_Shape, float]
_GPU_SHAPES: Final[tuple[_Shape, ...]] = (
    (256, 16, 8, 8, 8),
    (256, 16, 8, 4, 16),
    (256, 16, 4, 4, 16),
    (128, 16, 4, 4, 16),
    (128, 16, 4, 2, 16),
    (128, 16, 2, 2, 32),
    (64, 16, 2, 2, 32),
)
_CPU_SHAPES: Final[tuple[_Rated, ...]] = (
    ((256, 32, 8, 2, 32), 1.0),
    ((64, 16, 8, 2, 64), 0.8),
    ((64, 16, 4, 2, 32), 0.53),
)
"""Speed of full tiles beside that of the first (measured: products of 128 to 1000 rows
on two cores with AVX-512). 128 threads of 8 x 4 sums, the same tile as the first, took
0.97 to 2 times as long."""
_CPU_WINDOW_SHAPES: Final[tuple[_Shape, ...]] = (
    (128, 16, 8, 4, 64),
    (64, 16, 8, 2, 64),
    (64, 16, 4, 2, 32),
)
"""For images under windows, which are staged element by element: up to 1.7 times as
fast as the others."""

_CPU_DEPTHS: Final = (32, 64)
_CPU_WINDOW_DEPTHS: Final = (8, *_CPU_DEPTHS)
"""Of tiles that are tried: under windows of 3 x 3 over 32 and 64 channels, the best of
depth 8 took 16 and 13 % less time than the best of the others."""


_TENSOR_SHAPES: Final[tuple[_Shape, ...]] = (
    (256, 32, 32, 4, 32),
    (128, 32, 32, 4, 32),
    (256, 32, 32, 2, 32),
    (128, 32, 32, 2, 32),
    (128, 32, 16, 2, 32),
    (64, 32, 16, 2, 32),
    (64, 32, 16, 1, 32),
    (32, 32, 16, 1, 64),
)


def default_tile(nest: LoopNest, device: Device) -> Schedule:
    """A schedule that is good without tuning: the one with least padded work.

    Of those that the device can run; of the last, which is the smallest, if of none.
    """
    groups = nest.groups
    if _takes_tensors(nest, device):
        chosen = min(
            _legal(nest, device, _TENSOR_SHAPES, tensor=1),
            key=lambda shape: _tensor_cost(groups, shape, device),
        )
        return _schedule(chosen, tensor=1)
    speeds = dict(_rated(nest, device))
    return _schedule(
        min(
            _legal(nest, device, tuple(speeds)),
            key=lambda shape: _busiest(groups, shape, device) / speeds[shape],
        )
    )


def _legal(
    nest: LoopNest, device: Device, shapes: Sequence[_Shape], **more: int
) -> Sequence[_Shape]:
    """Of some shapes, largest first, those that a device can run; one at least."""
    found = [
        shape
        for shape in shapes
        if is_legal_tiles(nest, map_groups(nest, _schedule(shape, **more)), device)
    ]
    return found or shapes[-1:]


def _rated(nest: LoopNest, device: Device) -> Sequence[_Rated]:
    """Shapes to choose from, and how fast each is when its tiles are full."""
    if device.kind == "cpu" and not slides(nest):
        return _CPU_SHAPES
    shapes = _CPU_WINDOW_SHAPES if device.kind == "cpu" else _GPU_SHAPES
    return [(shape, register_share(*shape[2:4])) for shape in shapes]


def slides(nest: LoopNest) -> bool:
    """Whether some operand of some group lies under a window."""
    return any(map(_slides, nest.groups))


def _slides(group: Group) -> bool:
    """Whether some operand lies under a window: behind guards, or in several runs."""
    loads = (v.what for v in group.values if isinstance(v.what, Load))
    return any(
        load.guards or len(runs(group.atoms, load.index, group.serial)) > 1
        for load in loads
    )


def _takes_tensors(nest: LoopNest, device: Device) -> bool:
    return has_tensor_cores(device) and tensor_dtype(nest) is not None


def _schedule(shape: _Shape, **more: int) -> Schedule:
    threads, lanes, rows, columns, depth = shape
    return Schedule.of(
        threads=threads, lanes=lanes, rows=rows, columns=columns, depth=depth, **more
    )


def _tensor_cost(groups: Sequence[Group], shape: _Shape, device: Device) -> float:
    """The same on tensor cores; more terms in a tile need fewer barriers."""
    rows, columns, depth = shape[2:]
    terms = max(group.serial_points for group in groups)
    padded = divided(terms, depth) * depth / max(terms, 1)
    return padded * _busiest(groups, shape, device) / fragment_share(rows, columns)


def _busiest(groups: Sequence[Group], shape: _Shape, device: Device) -> float:
    """Groups side by side have as many terms, and share out the multiprocessors."""
    threads, lanes, rows, columns, _ = shape
    blocks = 0
    for group in groups:
        bands = divided(group.row_points, threads // lanes * rows)
        chunks = divided(group.inner_points, lanes * columns)
        blocks += bands * chunks * group.outer_points
    most = divided(blocks, device.multiprocessors)
    fed = min(1.0, most * threads / device.saturation_threads_per_multiprocessor)
    return most * threads * rows * columns / fed


def register_share(rows: int, columns: int) -> float:
    """Share of a thread's instructions that are products, not reads of the tiles."""
    return rows * columns / (rows * columns + rows + columns)


def fragment_share(rows: int, columns: int) -> float:
    """Share of a sub-group's time that is products, not reads of the fragments.

    Args:
        rows: of a team.
        columns: of a lane; a team has 32 times as many.
    """
    down, across = rows // ROWS, LANES * columns // COLUMNS
    products = _PRODUCT_CLOCKS * down * across
    reads = _READ_CLOCKS * (len(LEFT) * down + len(RIGHT) * across)
    return products / (products + reads)


def tile_candidates(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    """Sizes worth trying; where tensor cores can help, with them and without."""
    if device.kind == "cpu":
        depths = _CPU_WINDOW_DEPTHS if slides(nest) else _CPU_DEPTHS
        grid = itertools.product((64, 128, 256), (16, 32), (4, 8), (1, 2, 4), depths)
    else:
        grid = itertools.product(
            (64, 128, 256), (8, 16, 32), (2, 4, 8), (2, 4, 8), (8, 16, 32)
        )
    if not _takes_tensors(nest, device):
        yield from map(_schedule, grid)
        return
    for shape in grid:
        yield _schedule(shape, tensor=0)
    for shape in itertools.product(
        (32, 64, 128, 256), (LANES,), (16, 32, 64), (1, 2, 4), (16, 32, 64)
    ):
        yield _schedule(shape, tensor=1)
