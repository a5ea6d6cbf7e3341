"""On-chip memory that a block declares: tiles of operands, and partial results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.kernel.nest import Kind
from tuner.kernel.staged import staged_tile_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost_model.device import Device
    from tuner.ir.types import DType
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import Group, LoopNest

STATIC_SHARED_BYTES: Final = 48 * 1024
"""On-chip memory that a kernel may declare (CUDA C++ Programming Guide, 16.8)."""


def room_bytes(device: Device) -> int:
    """On-chip memory that a block may declare on a device."""
    room = device.max_shared_bytes_per_block
    return room if device.kind == "cpu" else min(STATIC_SHARED_BYTES, room)


def onchip_bytes(nest: LoopNest, mappings: Sequence[Mapping], device: Device) -> int:
    """On-chip memory of a block of POINTWISE, ROW or COLUMN groups, at most.

    Groups side by side share an array of each type. A GPU whose sub-groups exchange
    values takes less for partial results; a text in OpenCL has the array in any case.
    """
    tiles = 0
    results: dict[DType, int] = {}
    for group, mapping in zip(nest.groups, mappings, strict=True):
        if device.kind == "cpu":
            tiles += staged_tile_bytes(nest, group, mapping)
        if _meet(group, mapping):
            threads = mapping.lanes * mapping.teams
            for reduction in group.reductions:
                dtype = reduction.dtype
                results[dtype] = max(results.get(dtype, 0), threads)
    return tiles + sum(dtype.bytes * size for dtype, size in results.items())


def _meet(group: Group, mapping: Mapping) -> bool:
    """Whether threads of a block put partial results together."""
    if group.kind is Kind.COLUMN:
        return mapping.teams > 1
    return group.kind is Kind.ROW and mapping.lanes > 1
