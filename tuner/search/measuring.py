"""The items of a batch on a device: the only part of a run that touches one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cost_model.device import Device
from tuner.assembly import kernel_sources
from tuner.errors import DeviceUnavailable
from tuner.execution import whole_request
from tuner.model import Model
from tuner.plan import GENERATED, Language, Measurement, Options, Plan, Schedule
from tuner.runtime.requests import Cache, MeasureRequest, Measures, PlanRequest
from tuner.search.contest import APART, judge
from tuner.search.kernels import KernelState
from tuner.search.near import near_key, sizes
from tuner.search.records import Json, to_json, toolchain_id

SAMPLE_SECONDS: Final = 0.1
"""Timed samples of one kernel run."""
WHOLE_SAMPLE_SECONDS: Final = 2.5
"""Timed samples of all whole plans together."""
ALONE_SAMPLE_SECONDS: Final = 1.5
"""Timed samples of the plan that is kept and of the user's model, alone, together."""
ALONE_ROUNDS: Final = 3
"""Turns of the two, each alone in its process."""
ATTEMPTS: Final = 4
"""A batch of samples that others disturbed is repeated up to three times."""


PRICES: Final = "price_revision"
"""What a plan key names beside all that decides a time."""
FLUSH_FACTOR: Final = 2
"""A flush is so many times larger than all caches: what is evicted first is not ours
to know, and writes take lines too."""


def flush_bytes(cache: Cache, device: Device) -> int:
    """How much to touch before every launch, so that the caches are as asked.

    A calibrated device's last-level cache is where its measured copy curve bends, not
    what the host reports: a shared host may report a cache that is not ours.
    """
    if cache == "warm":
        return 0
    private = device.l1_bytes * device.multiprocessors
    return FLUSH_FACTOR * (device.l2_bytes + private)


def describe(device: Measures, planned: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a time beside kernel and schedule.

    A prediction decides none: what was measured stays, whatever it was priced.

    Args:
        device: that measures.
        planned: code generator and compiler, as in the plan key.

    Raises:
        DeviceUnavailable: the device is not there.
    """
    return {
        **{name: part for name, part in planned.items() if name != PRICES},
        "device": device.device_name,
        "versions": device.toolchain,
    }


@dataclass(frozen=True, kw_only=True)
class Measurer:
    """How kernels and plans of one run are measured.

    Attributes:
        planned: code generator and compiler, as in the plan key.
        seed: of all inputs.
        flush_bytes: touched before every timed launch; 0 leaves the caches warm.
        clock: seconds; read around measurements only, and recorded in their results.
    """

    model: Model
    options: Options
    language: Language
    planned: Mapping[str, Any]
    seed: int
    clock: Callable[[], float]
    flush_bytes: int = 0

    def device(self, device: Measures) -> Json:
        """Who measures.

        Raises:
            DeviceUnavailable: the device is not there.
        """
        start = self.clock()
        found = describe(device, self.planned)
        return {"toolchain": found, "cost_seconds": self.clock() - start}

    def kernel(
        self, state: KernelState, schedule: Schedule, device: Measures, *, timed: bool
    ) -> Json:
        """Verify one kernel, and time it if asked to."""
        request = MeasureRequest(
            graph=state.form.graph,
            source=self._source(state, schedule),
            weights=state.form.graph.weights,
            exactness=self.options.exactness,
            seeds=(self.seed, self.seed + 1),
            budget_seconds=SAMPLE_SECONDS,
            abandon_above_seconds=state.abandon_above_seconds,
            attempts=ATTEMPTS,
            flush_bytes=self.flush_bytes,
            timed=timed,
        )
        start = self.clock()
        try:
            measurement = device.measure(request)
            by = toolchain_id(describe(device, self.planned))
        except DeviceUnavailable as error:
            return lost(error)
        return {
            **to_json(measurement),
            "kernel": state.name,
            "toolchain": by,
            "schedule": schedule.as_dict,
            "near": near_key(state.form.graph, state.family),
            "sizes": list(sizes(state.form.graph)),
            "cost_seconds": self.clock() - start,
        }

    def _source(self, state: KernelState, schedule: Schedule) -> Any:
        if state.family not in GENERATED:
            return None
        sources = kernel_sources(state.form, schedule)
        return next(s for s in sources if s.language == self.language)

    def whole(self, plans: Mapping[str, Plan], device: Measures) -> Json:
        """Verify whole plans against the user's model, and time them by turns.

        The plan that is kept is then timed once more beside the model, each alone.
        """
        request = whole_request(
            self.model,
            plans,
            self.language,
            seed=self.seed,
            budget_seconds=WHOLE_SAMPLE_SECONDS,
            attempts=ATTEMPTS,
        )
        request = replace(request, flush_bytes=self.flush_bytes, rounds=0)
        start = self.clock()
        try:
            result = device.measure_whole(request)
            kept = judge(result.measurements, list(plans))
            apart = _apart(request, kept, result.measurements, device)
        except DeviceUnavailable as error:
            return lost(error)
        found = {**result.measurements, **apart}
        return {
            "whole": {name: to_json(m) for name, m in found.items()},
            "verified": result.verified,
            "cost_seconds": self.clock() - start,
        }


def _apart(
    request: PlanRequest,
    kept: str,
    found: Mapping[str, Measurement],
    device: Measures,
) -> dict[str, Measurement]:
    """The plan that is kept and the user's model, each alone; see `APART`.

    Nothing where the plan failed, or the model cannot be timed.
    """
    if kept not in found or found[kept].failure:
        return {}
    alone = replace(
        request,
        programs={"alone": request.programs[kept]},
        budget_seconds=ALONE_SAMPLE_SECONDS / ALONE_ROUNDS,
        rounds=ALONE_ROUNDS,
    )
    measured = device.measure_whole(alone).measurements
    return dict(measured) if set(APART) <= set(measured) else {}


def lost(error: DeviceUnavailable) -> Json:
    """Result of an item for which there was no device any more."""
    gone = Measurement(seconds=math.inf, failure="runtime", message=str(error))
    return {**to_json(gone), "gone": str(error), "whole": {}, "cost_seconds": 0.0}
