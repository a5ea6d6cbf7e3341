"""What a group's threads keep in registers, counted pass by pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuner.ir.expr import calls
from tuner.kernel.addresses import divisions
from tuner.kernel.nest import Apply, Constant, Group, Kind, Load, LoopNest, Pass
from tuner.kernel.registers import (
    Computed,
    Pressure,
    least_live,
    registers,
    thread_limit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cost_model.device import Device
    from tuner.ir.types import DType
    from tuner.kernel.mapping import Mapping

_BASE_REGISTERS: Final = 10
_TRIGONOMETRY: Final = frozenset({"sin", "cos", "tan"})
_ERROR_FUNCTIONS: Final = frozenset({"erf", "tanh"})
_COMPILER_UNROLL: Final = 4
"""Steps of a loop that NVIDIA's compiler unrolls unasked."""
_NARROW_BITS: Final = 32


def size_of(dtype: DType) -> int:
    """32-bit registers that hold a value."""
    return max(1, dtype.bytes // 4)


def computed(each: Pass, mapping: Mapping) -> tuple[int, ...]:
    """Values that a pass computes: what was kept is not computed again."""
    return each.fresh if mapping.is_persistent else each.values


def copies(group: Group, mapping: Mapping, number: int) -> int:
    """How many of a value a thread has at once."""
    is_many = group.values[number].loops & group.inner_mask
    return mapping.vector if is_many else 1


class RegisterCounter:
    """Counts the registers of one group under one mapping.

    Args:
        nest, group, mapping, device: what a kernel is, and where.
        tensors: how many of them the group touches.
    """

    def __init__(
        self,
        nest: LoopNest,
        group: Group,
        mapping: Mapping,
        device: Device,
        tensors: int,
    ) -> None:
        self._nest, self._group, self._mapping = nest, group, mapping
        self._device, self._tensors = device, tensors

    def registers(self) -> int:
        """Estimate of 32-bit registers per thread; see `registers`."""
        device = self._device
        limit = thread_limit(
            device.registers_per_multiprocessor,
            self._mapping.lanes * self._mapping.teams,
            device.max_registers_per_thread,
        )
        found = (
            registers(self._under(each, limit), limit) for each in self._group.plan
        )
        return max(found, default=_BASE_REGISTERS)

    def _under(self, each: Pass, limit: int) -> Pressure:
        """The pressure of a pass; the least only where it decides."""
        pressure = self._pressure(each)
        if pressure.needed <= limit:
            return pressure
        return replace(pressure, least=self._least(each))

    def _pressure(self, each: Pass) -> Pressure:
        group, mapping = self._group, self._mapping
        done = [group.values[number].what for number in computed(each, mapping)]
        loads = [what for what in done if isinstance(what, Load)]
        indices = [what.index for what in loads]
        indices += [store.index for store in each.stores]
        called = {
            call.function
            for what in done
            if isinstance(what, Apply)
            for call in calls(what.expression)
        }
        return Pressure(
            tensors=self._tensors,
            live=self._live(each),
            kept=self._kept(),
            steps=self._unrolled_steps(),
            vector=mapping.vector,
            loads=len(loads),
            divisions=sum(divisions(group, index) for index in indices),
            is_row=group.kind is Kind.ROW,
            is_column=group.kind is Kind.COLUMN,
            is_persistent=mapping.is_persistent,
            repeats=mapping.repeat > 1,
            has_trigonometry=not called.isdisjoint(_TRIGONOMETRY),
            has_error_function=not called.isdisjoint(_ERROR_FUNCTIONS),
            is_wide=self._nest.index_bits > _NARROW_BITS,
        )

    def _unrolled_steps(self) -> int:
        """Steps of the inner loop that a compiler unrolls, asked to or not."""
        group, mapping = self._group, self._mapping
        if mapping.is_persistent or group.kind is Kind.POINTWISE:
            return mapping.items
        steps = mapping.items
        if group.kind is Kind.COLUMN:
            steps = max(1, group.serial_points // mapping.teams)
        return min(steps, max(mapping.unroll, _COMPILER_UNROLL))

    def _live(self, each: Pass) -> int:
        """Most registers alive at once within one walked point."""
        values = self._group.values
        literals = {n for n, v in enumerate(values) if isinstance(v.what, Constant)}
        order = [
            number for number in computed(each, self._mapping) if number not in literals
        ]
        last: dict[int, int] = {}
        for place, number in enumerate(order):
            for need in self._group.needs(number):
                if need not in literals:
                    last[need] = place
        for root in self._roots(each):
            last[root] = len(order)
        ends: dict[int, int] = {}
        inside = set(order)
        alive = sum(size_of(values[n].dtype) for n in last if n not in inside)
        peak = alive
        for place, number in enumerate(order):
            size = size_of(values[number].dtype) * copies(
                self._group, self._mapping, number
            )
            alive += size
            peak = max(peak, alive)
            end = last.get(number, place)
            ends[end] = ends.get(end, 0) + size
            alive -= ends.pop(place, 0)
        return peak

    def _least(self, each: Pass) -> int:
        """The same, in the order of a compiler that is short of registers."""
        values, order = self._group.values, self._without_literals(each)
        inside = {
            number: Computed(
                tuple(self._group.needs(number)),
                size_of(values[number].dtype)
                * copies(self._group, self._mapping, number),
            )
            for number in order
        }
        touched = {need for row in inside.values() for need in row.needs}
        held = touched.union(self._roots(each)).difference(inside)
        outside = sum(
            size_of(values[number].dtype)
            for number in held
            if not isinstance(values[number].what, Constant)
        )
        return outside + least_live(inside)

    def _without_literals(self, each: Pass) -> list[int]:
        values = self._group.values
        return [
            number
            for number in computed(each, self._mapping)
            if not isinstance(values[number].what, Constant)
        ]

    def _roots(self, each: Pass) -> Iterator[int]:
        for reduction in each.reductions:
            yield self._group.reductions[reduction].source
        for store in each.stores:
            yield store.value

    def _kept(self) -> int:
        if not self._mapping.is_persistent:
            return 0
        most = 0
        for each in self._group.plan:
            sizes = sum(size_of(self._group.values[n].dtype) for n in each.kept)
            most = max(most, sizes)
        values = self._group.serial_points * self._mapping.items * self._mapping.vector
        return most * values
