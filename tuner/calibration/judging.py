"""The cost model's word on what was measured, now or from a record."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.roofline import lower_bound, predict
from tuner.calibration.corpus import FusionPair, Sample
from tuner.calibration.findings import (
    SHORTLIST,
    Accuracy,
    Decision,
    Found,
    Regret,
    Trial,
)
from tuner.calibration.sampling import subjects
from tuner.calibration.timing import Kernel, generated
from tuner.kernel.lower import lower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost_model.device import Device
    from tuner.ir.graph import Graph
    from tuner.plan import Measurement, Schedule

_CHOICE: Final = 2
"""So many schedules are a choice."""


def trial_of(
    sample: Sample,
    schedule: Schedule,
    kernel: Kernel,
    device: Device,
    measured: Measurement,
) -> Trial:
    """A measured kernel beside what is said of it."""
    return Trial(
        name=sample.name,
        shape=sample.shape,
        family=str(lower(sample.graph).family),
        schedule=schedule,
        moved_bytes=kernel.work.read_bytes + kernel.work.written_bytes,
        predicted_seconds=predict(kernel.work, device).seconds,
        bound_seconds=lower_bound(kernel.work, device),
        measured=measured,
    )


def regret_of(
    winner: Trial, count: int, chosen: Measurement, best: Measurement
) -> Regret:
    """A choice among `count` schedules beside the fastest one."""
    return Regret(
        name=winner.name,
        shape=winner.shape,
        shortlist=count,
        chosen=chosen,
        winner=best,
    )


def decision_of(
    pair: FusionPair, device: Device, fused: Measurement, apart: Measurement
) -> Decision:
    """A measured pair beside what is said of both its sides."""
    fused_bytes, fused_seconds = _priced(pair.whole, device)
    parts = [_priced(part, device) for part in pair.parts]
    return Decision(
        name=pair.name,
        family=str(lower(pair.whole).family),
        fused_bytes=fused_bytes,
        apart_bytes=sum(count for count, _ in parts),
        fused_predicted_seconds=fused_seconds,
        apart_predicted_seconds=sum(seconds for _, seconds in parts),
        fused=fused,
        apart=apart,
    )


def predicted_again(measured: Accuracy, device: Device) -> Accuracy:
    """The same measurements beside what another device, or model, says of them.

    A choice that differs now was not timed by turns with the winner; its first time
    stands in.
    """
    known = subjects(replace(measured.limits, kernels=None, pairs=None))
    found = {
        label: _said_again(each, known[label], device)
        for label, each in measured.found.items()
        if label in known
    }
    return replace(measured, device=device, found=MappingProxyType(found))


def _priced(graph: Graph, device: Device) -> tuple[int, float]:
    work = generated(graph, device).work
    seconds = predict(work, device).seconds
    return work.read_bytes + work.written_bytes, seconds


def _said_again(found: Found, subject: Sample | FusionPair, device: Device) -> Found:
    if isinstance(subject, FusionPair):
        said = [decision_of(subject, device, d.fused, d.apart) for d in found.decisions]
        return replace(found, decisions=tuple(said))
    trials = []
    for trial in found.trials:
        kernel = generated(subject.graph, device, trial.schedule)
        trials.append(trial_of(subject, trial.schedule, kernel, device, trial.measured))
    return replace(found, trials=tuple(trials), regrets=_chosen_again(trials))


def _chosen_again(trials: Sequence[Trial]) -> tuple[Regret, ...]:
    if len(trials) < _CHOICE:
        return ()
    said = sorted(trials, key=lambda trial: trial.predicted_seconds)
    winner = min(trials, key=lambda trial: trial.measured.seconds)
    regrets = []
    for count in (1, SHORTLIST):
        chosen = min(said[:count], key=lambda trial: trial.measured.seconds)
        regrets.append(regret_of(winner, count, chosen.measured, winner.measured))
    return tuple(regrets)
