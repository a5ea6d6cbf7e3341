"""Calibrations and accuracy runs as JSON, with every raw sample; and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from cost_model.roofline import predict
from tuner.calibration.findings import (
    Accuracy,
    Decision,
    Found,
    Limits,
    Regret,
    Trial,
)
from tuner.calibration.report import summary
from tuner.errors import InvalidModel
from tuner.plan import Measurement, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost_model.device import Device
    from tuner.calibration.fit import TimedMicro

SCHEMA: Final = "fuseplan.accuracy/2"

Json = dict[str, Any]


def micro_json(timed: TimedMicro, device: Device) -> Json:
    """A micro-benchmark: what it took, and what the fitted device says."""
    return {
        "group": timed.micro.group,
        "name": timed.micro.name,
        "predicted_seconds": predict(timed.kernel.work, device).seconds,
        **_measured(timed.measured),
    }


def micro_measured(stored: Mapping[str, Any]) -> Measurement:
    """What a stored micro-benchmark took."""
    return _measured_from(stored)


def _measured(measurement: Measurement) -> Json:
    return {
        "seconds": measurement.seconds,
        "low_seconds": measurement.low_seconds,
        "high_seconds": measurement.high_seconds,
        "contended": measurement.contended,
        "samples": list(measurement.samples),
    }


def accuracy_json(measured: Accuracy) -> Json:
    """Every raw sample, with the summary on top."""
    return {
        "schema": SCHEMA,
        "device": {"id": measured.device.id, "digest": measured.device.digest},
        "limits": asdict(measured.limits),
        "summary": summary(measured),
        "asked": measured.asked,
        "seconds": measured.seconds,
        "found": {
            label: {
                "tries": each.tries,
                "trials": [_trial_json(trial) for trial in each.trials],
                "regrets": [_regret_json(regret) for regret in each.regrets],
                "decisions": [_decision_json(one) for one in each.decisions],
                "failures": [list(failure) for failure in each.failures],
            }
            for label, each in measured.found.items()
        },
    }


def accuracy_from(stored: Mapping[str, Any], device: Device) -> Accuracy:
    """Read what `accuracy_json` wrote.

    Args:
        stored: the document.
        device: whose numbers predicted.

    Raises:
        InvalidModel: it is no such document, or is of another device.
    """
    if stored.get("schema") != SCHEMA:
        raise InvalidModel(
            "accuracy", f"has the schema {stored.get('schema')!r}", hint=SCHEMA
        )
    if stored["device"]["digest"] != device.digest:
        raise InvalidModel(
            "accuracy",
            f"was predicted for {stored['device']['id']}, not for {device.id}",
            hint="give another file, or predict its measurements again",
        )
    return Accuracy(
        device=device,
        limits=Limits(**stored["limits"]),
        found={label: _found_from(each) for label, each in stored["found"].items()},
        asked=stored["asked"],
        seconds=stored["seconds"],
    )


def _found_from(stored: Mapping[str, Any]) -> Found:
    return Found(
        trials=tuple(_trial_from(each) for each in stored["trials"]),
        regrets=tuple(_regret_from(each) for each in stored["regrets"]),
        decisions=tuple(_decision_from(each) for each in stored["decisions"]),
        failures=tuple((label, why) for label, why in stored["failures"]),
        tries=stored["tries"],
    )


def _trial_from(stored: Mapping[str, Any]) -> Trial:
    return Trial(
        name=stored["name"],
        shape=tuple(stored["shape"]),
        family=stored["family"],
        schedule=Schedule.of(**stored["schedule"]),
        moved_bytes=stored["moved_bytes"],
        predicted_seconds=stored["predicted_seconds"],
        bound_seconds=stored["bound_seconds"],
        measured=_measured_from(stored),
    )


def _regret_from(stored: Mapping[str, Any]) -> Regret:
    return Regret(
        name=stored["name"],
        shape=tuple(stored["shape"]),
        shortlist=stored["shortlist"],
        chosen=_measured_from(stored["chosen"]),
        winner=_measured_from(stored["winner"]),
    )


def _decision_from(stored: Mapping[str, Any]) -> Decision:
    named = (
        "name",
        "family",
        "fused_bytes",
        "apart_bytes",
        "fused_predicted_seconds",
        "apart_predicted_seconds",
    )
    return Decision(
        **{name: stored[name] for name in named},
        fused=_measured_from(stored["fused"]),
        apart=_measured_from(stored["apart"]),
    )


def _measured_from(stored: Mapping[str, Any]) -> Measurement:
    return Measurement(
        seconds=stored["seconds"],
        low_seconds=stored["low_seconds"],
        high_seconds=stored["high_seconds"],
        contended=stored["contended"],
        samples=tuple(stored["samples"]),
    )


def _trial_json(trial: Trial) -> Json:
    return {
        "name": trial.name,
        "shape": list(trial.shape),
        "family": trial.family,
        "schedule": trial.schedule.as_dict,
        "moved_bytes": trial.moved_bytes,
        "predicted_seconds": trial.predicted_seconds,
        "bound_seconds": trial.bound_seconds,
        **_measured(trial.measured),
    }


def _regret_json(regret: Regret) -> Json:
    return {
        "name": regret.name,
        "shape": list(regret.shape),
        "shortlist": regret.shortlist,
        "share": regret.share,
        "chosen": _measured(regret.chosen),
        "winner": _measured(regret.winner),
    }


def _decision_json(decision: Decision) -> Json:
    return {
        "name": decision.name,
        "family": decision.family,
        "decided": decision.is_decided,
        "fused_bytes": decision.fused_bytes,
        "apart_bytes": decision.apart_bytes,
        "fused_predicted_seconds": decision.fused_predicted_seconds,
        "apart_predicted_seconds": decision.apart_predicted_seconds,
        "fused": _measured(decision.fused),
        "apart": _measured(decision.apart),
    }
