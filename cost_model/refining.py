"""Fit single numbers of a device to timed works, one after the other.

Where a number enters a prediction in a way that is not linear (a share of overlap, the
cost of scattered requests), it is searched: coarse factors of two first, then finer
ones. The loss is the mean absolute logarithm of predicted over measured time, which a
few disturbed samples do not move.

Source: the least-absolute-deviations fit, F. Y. Edgeworth, "On observations relating to
several quantities", Hermathena 6(13), 1887.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from cost_model.device import RATE_FIELDS
from cost_model.device_file import RANGES
from cost_model.fitting import Matrix, Residual, residual_of
from cost_model.roofline import lower_bound, predict
from cost_model.work import Pipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost_model.device import Device
    from cost_model.work import Work

_COARSE: Final = tuple(2.0 ** (step / 2) for step in range(-8, 9))
_FINE: Final = tuple(2.0 ** (step / 12) for step in range(-6, 7))
_GAIN: Final = 0.995
"""A number moves only when the loss falls by half a per cent: ties keep the old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSample:
    """A kernel's counted work, and how long it took."""

    work: Work
    seconds: float


def refine(
    device: Device, groups: Mapping[str, Sequence[WorkSample]]
) -> tuple[Device, Mapping[str, Residual]]:
    """Fit one number to each group of samples, in the order given.

    Args:
        device: where to start from.
        groups: field of the device -> samples in which that field matters; a rate is
            named with its pipe, as in ``operations_per_second.special``.

    Returns:
        The device, and the relative errors of each group after its own fit.
    """
    residuals: dict[str, Residual] = {}
    for name, samples in groups.items():
        if not samples:
            continue
        for factors in (_COARSE, _FINE):
            device = _best(device, name, factors, samples)
        residuals[name] = residual_of(_errors(device, samples))
    return device, MappingProxyType(residuals)


def _best(
    device: Device,
    name: str,
    factors: Sequence[float],
    samples: Sequence[WorkSample],
) -> Device:
    chosen, least = device, _loss(device, samples)
    for factor in factors:
        trial = scaled(device, name, factor)
        loss = _loss(trial, samples)
        if loss < least * _GAIN:
            chosen, least = trial, loss
    return chosen


def scaled(device: Device, name: str, factor: float) -> Device:
    """The device with one number times a factor, kept inside the number's range.

    Args:
        device: to change.
        name: a field of the device; a rate with its pipe after a dot.
        factor: 2.0 doubles the number.

    Raises:
        KeyError: no such number.
    """
    field, _, pipe = name.partition(".")
    if field in RATE_FIELDS:
        rates: Mapping[Pipe, float] = getattr(device, field)
        changed = {**rates, Pipe(pipe): rates[Pipe(pipe)] * factor}
        return replace(device, **{field: MappingProxyType(changed)})  # type: ignore[arg-type]
    limits = RANGES[field]
    value = min(max(getattr(device, field) * factor, limits.low), limits.high)
    number = round(value) if limits.is_whole else float(value)
    return replace(device, **{field: number})  # type: ignore[arg-type]


def bound_excess(device: Device, samples: Sequence[WorkSample]) -> float:
    """Greatest lower bound over measured time; above 1 the bound is none."""
    return max((lower_bound(s.work, device) / s.seconds for s in samples), default=0.0)


def _errors(device: Device, samples: Sequence[WorkSample]) -> Matrix:
    said = np.array([predict(s.work, device).seconds for s in samples])
    seen = np.array([s.seconds for s in samples])
    errors: Matrix = said / seen - 1.0
    return errors


def _loss(device: Device, samples: Sequence[WorkSample]) -> float:
    return float(np.abs(np.log1p(_errors(device, samples))).mean())
