"""What a recording holds, as this version sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from benchmarks.search_quality.kernels import (
    KERNELS,
    kernel_named,
    model_of,
    text_of,
)
from tuner.kernel.lower import lower
from tuner.kernel.schedule import default as default_schedule
from tuner.kernel.schedule import regime
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Options
from tuner.pricing import predict_nest
from tuner.search.experience import Lesson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost_model.device import Device
    from tuner.search.kernels import KernelState
    from tuner.search.quality import Space

COMPLETE: Final = 0.97
"""Share of a space that must have run undisturbed, for the space to count."""
COMPARED: Final = 8
"""Schedules of a space whose programs are compared with those that were recorded."""


def target_of(stored: Mapping[str, Any]) -> Device:
    """The device of the catalogue that a recording was made for."""
    return resolve_target(stored["device"].get("target", {}).get("id", "cpu"))


def recorded_kernel(found: Space, device: Device) -> KernelState | None:
    """The recorded kernel; None where this version has none, or other code for it."""
    if found.name not in KERNELS:
        return None
    planner = Planner(model=model_of(found.name), device=device, options=Options())
    state = kernel_named(planner, found.kernel)
    is_same = state is not None and has_same_code(state, found, device)
    return state if is_same else None


def has_same_code(state: KernelState, found: Space, device: Device) -> bool:
    """Whether this version generates what was recorded, as far as that is known."""
    known = list(found.texts)
    some = known[:: max(1, len(known) // COMPARED)]
    return all(text_of(state, each, device) == found.texts[each] for each in some)


def repriced(found: Space, device: Device, kernel: KernelState | None) -> Space:
    """The same measured times under today's default, prices and choice of schedules.

    A kernel with other code than this version's stays as it was recorded.
    """
    if kernel is None:
        return found
    nest = lower(kernel.form.graph)
    predicted = {
        schedule: predict_nest(nest, schedule, device, Options()).estimate.seconds
        for schedule in found.seconds
    }
    first = default_schedule(nest, device)
    order = sorted(found.seconds, key=lambda schedule: schedule != first)
    return replace(
        found,
        seconds={schedule: found.seconds[schedule] for schedule in order},
        predicted=predicted,
        tried=frozenset(kernel.study.space),
    )


def lesson_of(found: Space, kernel: KernelState | None) -> Lesson:
    """What a space teaches of others, as it is priced."""
    return Lesson(
        regime="" if kernel is None else regime(lower(kernel.form.graph)),
        seconds=found.seconds,
        predicted=found.predicted,
    )


def is_whole(found: Space, sizes: Mapping[str, int]) -> bool:
    """Whether no more than a few disturbed schedules are missing."""
    return len(found.seconds) >= COMPLETE * sizes.get(found.name, 0)
