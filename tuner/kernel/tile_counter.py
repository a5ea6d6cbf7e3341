"""What a TILE group does, counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from cost_model.work import Pipe
from tuner.kernel.counter import DIVISION, Counter, pipe_of
from tuner.kernel.fragments import LEFT, RIGHT, ROWS
from tuner.kernel.index import Guards, Index, runs
from tuner.kernel.mapping import divided
from tuner.kernel.nest import Load
from tuner.kernel.pressure import size_of
from tuner.kernel.tiles import (
    Operand,
    fragment_share,
    register_share,
    staged_bytes,
    tensor_bytes,
    tile_values,
)

if TYPE_CHECKING:
    from cost_model.device import Device
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import Group, LoopNest

_BASE_REGISTERS: Final = 36
_GPU_SHARE: Final = 0.8
"""Reads of a tile and products of the one before do not overlap inside a block.

Source: S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance",
2022: two-dimensional register tiles reach 69 % of cuBLAS, with vectorised reads 78 %.
"""
_CPU_SHARE: Final = 0.8
"""Products in vector registers, beside multiplications and additions in chains.

Source: matrix products and convolutions of eight shapes under all 319 schedules each,
two cores with AVX-512, Intel's OpenCL: 55e9 products a second and core in full tiles.
With `_CPU_STAGED_OPERATIONS`, `_CPU_WALKED_OPERATIONS` and the barriers of each step
that is the fit of a line, 14 % off in the mean.
"""
_CPU_APART_SHARE: Final = 1 / 6
"""Rows shorter than a vector: its lanes lie in several rows and are gathered.

Source: the same kernels, 8 lanes beside 16.
"""
_CPU_CROWDED_SHARE: Final = 1 / 1.2
"""More sums, columns and a factor than a processor has vector registers.

Source: the same kernels, 8 x 4 sums beside 8 x 2 in blocks of the same size.
"""
_FEW_REGISTERS: Final = frozenset({"avx2", "sse"})
"""Instruction sets with 16 vector registers; the others have 32."""
_CPU_STAGED_OPERATIONS: Final = 13
_CPU_WALKED_OPERATIONS: Final = 250
"""Operations of a processor for each element of a tile that it stages. Behind guards
and divisions it walks through the tile element by element.

Source: the same kernels, 0.31 ns an element of a matrix, 6.4 ns of an image under a
window of 3 x 3.
"""


_CPU_WALK_START: Final = 1.4
"""Elements in whose time a thread begins to walk through a tile.

Source: 428 schedules of two convolutions over those kernels' predictions: 1.02 where a
thread stages 32 elements, 1.07 at 16, 1.17 at 8, 1.35 at 4, 1.38 at 2, 1.08 at one.
"""
_CPU_WALK_UNROLL: Final = 4
"""Elements that the text takes at once: shorter walks begin no oftener."""


def _walk_share(steps: float) -> float:
    """Time of an element that a thread stages, for so many of them in turn.

    One alone needs no loop; where there is less than one, threads are idle.
    """
    if steps <= 1:
        return 1 / steps
    return 1 + _CPU_WALK_START / max(steps, _CPU_WALK_UNROLL)


class TileCounter(Counter):
    """Counts one TILE group under one mapping."""

    def __init__(
        self, nest: LoopNest, group: Group, mapping: Mapping, device: Device
    ) -> None:
        super().__init__(nest, group, mapping, device)
        self._tile = tile_values(group)
        self._chunks = divided(group.inner_points, mapping.tile)
        self._bands = divided(group.row_points, mapping.height)
        self._steps = divided(group.serial_points, mapping.depth)
        self._walk: tuple[tuple[int, ...], int] = (group.inner, mapping.lanes)
        self._is_axis_fixed = False

    def _walk_points(self) -> None:
        group, mapping = self.group, self.mapping
        threads = mapping.blocks * mapping.lanes * mapping.teams
        for number in self._tile.block:
            self._value(number, float(threads))
        terms = group.outer_points * group.serial_points
        left, right = self._tile.left, self._tile.right
        of_left = float(terms * group.row_points * self._chunks)
        self._staged(left, mapping.height, of_left)
        of_right = float(terms * group.inner_points * self._bands)
        self._staged(right, mapping.tile, of_right)
        points = group.outer_points * group.row_points * group.inner_points
        pipe = pipe_of(group.reductions[0].dtype)
        self._add(
            Pipe.TENSOR if mapping.is_tensor else pipe,
            float(points) * group.serial_points,
        )
        self._epilogue(points)
        self.barriers = 2 * self._steps
        self.shared_bytes = staged_bytes(group, mapping)
        if mapping.is_tensor:
            self.shared_bytes = tensor_bytes(mapping)

    def _staged(self, operand: Operand, extent: int, times: float) -> None:
        """Reads of one factor: threads are neighbours along its axis, or the terms."""
        self._walk = (operand.axis, extent)
        if operand.along_terms:
            self._walk = (self.group.serial, self.mapping.depth)
        threads = self.mapping.lanes * self.mapping.teams
        self._is_axis_fixed = not operand.along_terms and threads % extent == 0
        for number in operand.staged:
            self._value(number, times)
        if self.mapping.is_tensor:  # elements are staged as they lie
            self._add(Pipe.CONVERT, -times)
        if self.device.kind == "cpu":
            each = float(_CPU_STAGED_OPERATIONS)
            if any(map(self._is_walked, operand.staged)):
                steps = extent * self.mapping.depth / threads
                each = _CPU_WALKED_OPERATIONS * _walk_share(steps)
            self._add(Pipe.INTEGER, times * each)
        self._is_axis_fixed = False

    def _is_walked(self, number: int) -> bool:
        """Whether guards, or divisions that change with terms, lie before it."""
        what = self.group.values[number].what
        if not isinstance(what, Load):
            return False
        along = runs(self.group.atoms, what.index, self.group.serial)
        return bool(what.guards) or len(along) > 1

    def _epilogue(self, points: int) -> None:
        self._walk = (self.group.inner, self.mapping.lanes)
        rows = self.group.outer_points * self.group.row_points
        for number in self._tile.row:
            self._value(number, float(rows * self._chunks * self.mapping.lanes))
        for number in self._tile.point:
            self._value(number, float(points))
        for store in self.group.stores:
            self._store(store, float(points))

    def _address(self, index: Index, guards: Guards, times: float) -> None:
        """Quotients and remainders are computed once for an index and its guards.

        Those of the axis are the same for all elements that a thread stages, where
        neighbouring threads are neighbours along the axis.
        """
        walked = [self.group.rows, self.group.inner, self.group.serial]
        if self._is_axis_fixed:
            walked = [self.group.serial]
        found = {
            (loops, run.below, run.extent, run.is_first)
            for each in (index, *(guard.subject for guard in guards))
            for loops in walked
            for run in runs(self.group.atoms, each, loops)
        }
        count = 2.0 + 2 * len(guards)
        for _, below, _, is_first in found:
            count += DIVISION * ((below > 1) + (not is_first))
        self._add(Pipe.INTEGER, times * count)

    def _asked(self, index: Index, width: int) -> float:
        """Sector bytes of one access by all threads of a sub-group."""
        sector, (loops, extent) = self.device.sector_bytes, self._walk
        neighbours = min(extent, self._subgroup)
        along = runs(self.group.atoms, index, loops)
        reached = 0.0
        if along:
            apart = min(abs(along[-1].coefficient) * width, sector)
            reached = neighbours * apart / along[-1].below
        return max(reached, float(sector)) * self._subgroup / neighbours

    def registers(self) -> int:
        """Partial sums, one row and column of factors, and what reads need.

        The base fits kernels compiled by NVRTC 13.5 for sm_80 and sm_90.
        """
        mapping = self.mapping
        each = size_of(self.group.reductions[0].dtype)
        sums = mapping.repeat * mapping.items
        held = each * (sums + mapping.repeat + mapping.items)
        if mapping.is_tensor:
            held = sums + len(LEFT) * mapping.repeat // ROWS + len(RIGHT)
        wide = 8 * (self.nest.index_bits // 32 - 1)
        return _BASE_REGISTERS + held + wide

    def compute_share(self) -> float:
        """Padding of the last tiles, and reads of the tiles between the products."""
        group, mapping = self.group, self.mapping
        padded = self._bands * mapping.height * self._chunks * mapping.tile
        padded *= self._steps * mapping.depth
        points = group.row_points * group.inner_points * group.serial_points
        share = points / max(padded, 1)
        if mapping.is_tensor:
            return share * fragment_share(mapping.repeat, mapping.items) * _GPU_SHARE
        if self.device.kind != "cpu":
            share *= register_share(mapping.repeat, mapping.items)
            return share * _GPU_SHARE
        if mapping.lanes < self._subgroup:
            share *= _CPU_APART_SHARE
        sums = mapping.repeat * mapping.items
        few = self.device.architecture in _FEW_REGISTERS
        if sums + mapping.items + 1 > (16 if few else 32):
            share *= _CPU_CROWDED_SHARE
        return share * _CPU_SHARE

    def in_flight(self) -> int:
        """Bytes of the elements that a thread stages at once."""
        mapping, threads = self.mapping, self.mapping.lanes * self.mapping.teams
        size = 0
        sides = ((self._tile.left, mapping.height), (self._tile.right, mapping.tile))
        for operand, extent in sides:
            each = math.ceil(extent * mapping.depth / threads)
            for number in operand.staged:
                what = self.group.values[number].what
                if isinstance(what, Load):
                    size += self.nest.tensors[what.tensor].dtype.bytes * each
        return max(size, 4)
