"""Schedules: which are worth trying, and which is good unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.kernel.nest import Kind, LoopNest
from tuner.plan import Schedule

if TYPE_CHECKING:
    from cost_model.device import Device


def default(nest: LoopNest, device: Device) -> Schedule:
    """A schedule that is good without tuning."""
    kind = nest.groups[0].kind if nest.groups else Kind.POINTWISE
    if kind is Kind.ROW:
        return Schedule.of(threads=64, lanes=16, vector=1, repeat=1, persistent=1)
    if kind is Kind.COLUMN:
        return Schedule.of(threads=64, lanes=64, vector=1, repeat=1)
    return Schedule.of(threads=64, vector=1, items=1, repeat=1)


def space(nest: LoopNest, device: Device) -> tuple[Schedule, ...]:
    """Every schedule worth trying, legal for the device."""
    return (default(nest, device),)
