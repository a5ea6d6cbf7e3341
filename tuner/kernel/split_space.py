"""Schedules of reductions in two launches: how many parts, and how each launch walks.

Cutting pays where the rows leave multiprocessors idle. The second launch does little,
so it keeps the schedule that needs no tuning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.kernel.errors import CannotLower
from tuner.kernel.mapping import blocks_of, divided, map_groups
from tuner.kernel.nest import Kind
from tuner.kernel.schedule import default, is_legal, space
from tuner.kernel.split import halves, joined, part_length, reduced_axis, uncut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cost_model.device import Device
    from tuner.kernel.nest import Group, LoopNest
    from tuner.plan import Schedule

FEWEST_PART_POINTS: Final = 2048
"""Points of the rows of a block, below which a second launch takes longer than what
the first saves."""
BLOCKS_PER_CORE: Final = (1, 2, 4, 8)
"""Blocks of the first launch for each multiprocessor that are worth trying."""
CPU_BLOCKS_PER_CORE: Final = (1, 8, 64)
"""The same of a processor's few cores: more parts err less, and cost it nothing."""


def split_default(nest: LoopNest, device: Device) -> tuple[Schedule, ...]:
    """For each number of parts, the schedule that is good without tuning.

    Empty where rows keep the device busy, or two launches cannot compute the kernel.
    """
    return tuple(_defaults(nest, device))


def split_space(nest: LoopNest, device: Device) -> tuple[Schedule, ...]:
    """Every schedule worth trying of a kernel that may be split, one launch or two.

    All have the same knobs. Without number of parts that is worth trying the space is
    that of one launch.
    """
    plain = space(nest, device)
    cut = dict.fromkeys(_cut(nest, device))
    return (*map(uncut, plain), *cut) if cut else plain


def _cut(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    yield from _defaults(nest, device)
    for parts in _parts(nest, device):
        try:
            first, second = halves(nest, parts)
        except CannotLower:
            continue
        behind = default(second, device)
        if not is_legal(second, behind, device):
            continue
        for schedule in space(first, device):
            yield joined(parts, schedule, behind)


def _defaults(nest: LoopNest, device: Device) -> Iterator[Schedule]:
    for parts in _parts(nest, device):
        try:
            first, second = halves(nest, parts)
        except CannotLower:
            continue
        ahead, behind = default(first, device), default(second, device)
        if is_legal(first, ahead, device) and is_legal(second, behind, device):
            yield joined(parts, ahead, behind)


def split_fault(nest: LoopNest, device: Device) -> str:
    """Why a kernel is not cut into parts on a device; empty if it may be."""
    kinds = {group.kind for group in nest.groups}
    if not kinds or not kinds <= {Kind.ROW, Kind.COLUMN}:
        return "a reduction is not all that it computes"
    points = _points(nest, device)
    if points < 2 * FEWEST_PART_POINTS:
        return f"{points} elements for a block are too few to be cut"
    blocks = _blocks(nest, device)
    if blocks >= device.multiprocessors:
        return f"{blocks} blocks keep {device.multiprocessors} multiprocessors busy"
    return _graph_fault(nest)


def _graph_fault(nest: LoopNest) -> str:
    """Why no graphs of two launches compute the kernel, or ""."""
    if nest.graph is None:
        return "its graph is not known"
    try:
        reduced_axis(nest.graph)
    except CannotLower as refused:
        return f"{refused.where}: {refused.problem}"
    return ""


def _parts(nest: LoopNest, device: Device) -> tuple[int, ...]:
    """Numbers of parts that are worth trying, fewest first."""
    if nest.graph is None or split_fault(nest, device):
        return ()
    extent = reduced_axis(nest.graph)
    points = _points(nest, device)
    most = min(points // FEWEST_PART_POINTS, extent // 2)
    total = sum(g.outer_points * g.serial_points * g.inner_points for g in nest.groups)
    counts = CPU_BLOCKS_PER_CORE if device.kind == "cpu" else BLOCKS_PER_CORE
    wanted = (divided(device.multiprocessors * n * points, total) for n in counts)
    found = {_even(extent, min(parts, most)) for parts in wanted}
    return tuple(sorted(parts for parts in found if parts > 1))


def _points(nest: LoopNest, device: Device) -> int:
    """Elements that a block reduces in one launch, of the longest loop."""
    return max(each.serial_points * _across(each, device) for each in nest.groups)


def _across(group: Group, device: Device) -> int:
    """Neighbours along the inner loops that a block takes: of a row all of them."""
    if group.kind is Kind.ROW:
        return group.inner_points
    return min(group.inner_points, device.subgroup_threads)


def _blocks(nest: LoopNest, device: Device) -> int:
    """Blocks of one launch."""
    return blocks_of(map_groups(nest, default(nest, device)))


def _even(extent: int, parts: int) -> int:
    """A number of parts near this one, so that no part is shorter than the others."""
    low, high = divided(3 * parts, 4), parts + divided(parts, 3)
    even = [n for n in range(low, high + 1) if extent % n == 0]
    if even:
        return min(even, key=lambda n: (extent // n % 4 != 0, abs(n - parts)))
    return divided(extent, part_length(extent, parts))
