"""Which number of a device a partition hangs on: the smallest change that changes it.

Each number is scaled, alone, and the partition is solved again. Whether it changes is
taken to be monotonic between 1 and the largest factor, so that the smallest change is
found by halving the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cost_model.device import Device
from cost_model.refining import scaled
from tuner.model import Model
from tuner.pipeline import Planner
from tuner.plan import Options, Partition

NUMBERS: Final = (
    "dram_bytes_per_second",
    "l2_bytes_per_second",
    "l1_bytes_per_second",
    "l2_bytes",
    "l1_bytes",
    "dram_latency_seconds",
    "launch_seconds",
    "graph_launch_seconds",
    "block_launch_seconds",
    "library_launch_seconds",
    "library_operator_seconds",
    "library_wake_seconds",
    "library_efficiency",
    "library_memory_efficiency",
    "scattered_share",
    "barrier_seconds",
    "shuffle_seconds",
    "overlap",
    "multiprocessors",
    "registers_per_multiprocessor",
    "operations_per_second.fma32",
    "operations_per_second.special",
    "operations_per_second.integer",
    "operations_per_second.convert",
    "operations_per_second.tensor",
)
"""What is scaled, one after the other."""

LARGEST: Final = 4.0
"""Numbers are not doubted by more than this factor."""
HALVINGS: Final = 4
"""The factor is found within the sixteenth part of its logarithm."""

Kernels = frozenset[tuple[tuple[str, ...], tuple[str, ...], str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What one number decides.

    Attributes:
        number: field of the device, a rate with its pipe.
        value: what it is.
        factor: smallest factor found that changes the partition; None if none up to
            the largest does.
        kernels_before, kernels_after: of the partition; the same without a change.
        new_kernels: kernels that the first partition does not have.
        examined: whether there was time to look.
    """

    number: str
    value: float
    factor: float | None
    kernels_before: int
    kernels_after: int
    new_kernels: int
    examined: bool = True


def sensitivity(
    model: Model,
    device: Device,
    options: Options,
    clock: Callable[[], float],
    *,
    numbers: Sequence[str] = NUMBERS,
    time_limit_seconds: float = 60.0,
) -> tuple[Sensitivity, ...]:
    """The numbers of a device by how little of a change each can bear.

    Args:
        model: what is planned.
        device: whose numbers are doubted.
        options: of the plan.
        clock: monotonic seconds.
        numbers: which of them; numbers that are 0 cannot be scaled and are left out.
        time_limit_seconds: what was not looked at by then says so.

    Returns:
        The most delicate first, then those that decide nothing, then the rest.
    """
    end = clock() + time_limit_seconds
    first = _solve(model, device, options)
    found = []
    for number in numbers:
        value = _value(device, number)
        if value == 0.0:
            continue
        if clock() > end:
            found.append(_unchanged(number, value, first, examined=False))
            continue
        doubt = _Doubt(model, device, options, number, first)
        found.append(doubt.answer(value))
    return tuple(sorted(found, key=_delicacy))


def _delicacy(one: Sensitivity) -> tuple[bool, float]:
    change = math.inf if one.factor is None else abs(math.log(one.factor))
    return (not one.examined, change)


def _value(device: Device, number: str) -> float:
    field, _, pipe = number.partition(".")
    found = getattr(device, field)
    return float(found[pipe] if pipe else found)


def _solve(model: Model, device: Device, options: Options) -> Partition:
    return Planner(model=model, device=device, options=options).solve().partition


def _kernels(partition: Partition) -> Kernels:
    return frozenset(
        (choice.region.nodes, choice.region.outputs, str(choice.family))
        for choice in partition.choices
    )


def _unchanged(
    number: str, value: float, first: Partition, *, examined: bool = True
) -> Sensitivity:
    count = len(first.choices)
    return Sensitivity(
        number=number,
        value=value,
        factor=None,
        kernels_before=count,
        kernels_after=count,
        new_kernels=0,
        examined=examined,
    )


class _Doubt:
    """One number under doubt."""

    def __init__(
        self,
        model: Model,
        device: Device,
        options: Options,
        number: str,
        first: Partition,
    ) -> None:
        self._model, self._device, self._options = model, device, options
        self._number, self._first = number, first
        self._known = _kernels(first)

    def answer(self, value: float) -> Sensitivity:
        ends = [found for sign in (1, -1) if (found := self._smallest(sign))]
        if not ends:
            return _unchanged(self._number, value, self._first)
        factor, changed = min(ends, key=lambda pair: abs(math.log(pair[0])))
        return Sensitivity(
            number=self._number,
            value=value,
            factor=factor,
            kernels_before=len(self._first.choices),
            kernels_after=len(changed.choices),
            new_kernels=len(_kernels(changed) - self._known),
        )

    def _smallest(self, sign: int) -> tuple[float, Partition] | None:
        """Smallest factor in one direction, and the partition behind it."""
        low, high = 0.0, math.log(LARGEST)
        changed = self._changed(math.exp(sign * high))
        if changed is None:
            return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            found = self._changed(math.exp(sign * middle))
            if found is None:
                low = middle
            else:
                high, changed = middle, found
        return math.exp(sign * high), changed

    def _changed(self, factor: float) -> Partition | None:
        """The partition under a scaled number, if it is another one."""
        device = scaled(self._device, self._number, factor)
        partition = _solve(self._model, device, self._options)
        return None if _kernels(partition) == self._known else partition
