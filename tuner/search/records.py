"""Measurements as JSON: how batches and results cross a job's memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.document import digest, encode
from tuner.plan import Measurement, Schedule

Json = dict[str, Any]


def measurement_key(
    fingerprint: str, schedule: Schedule, device: str, toolchain: Mapping[str, Any]
) -> str:
    """Identity of a measurement: kernel, schedule, device, toolchain."""
    return digest(
        encode(
            {
                "kernel": fingerprint,
                "schedule": schedule.as_dict,
                "device": device,
                "toolchain": dict(toolchain),
            }
        )
    )


def to_json(measurement: Measurement) -> Json:
    """A measurement with all its samples; failures have no seconds."""
    return {
        "seconds": measurement.seconds if math.isfinite(measurement.seconds) else None,
        "samples": list(measurement.samples),
        "low_seconds": measurement.low_seconds,
        "high_seconds": measurement.high_seconds,
        "failure": measurement.failure,
        "message": measurement.message,
        "contended": measurement.contended,
        "max_abs_error": _finite(measurement.max_abs_error),
        "max_rel_error": _finite(measurement.max_rel_error),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def from_json(record: Mapping[str, Any]) -> Measurement:
    """The measurement that a record holds."""
    seconds = record["seconds"]
    return Measurement(
        seconds=math.inf if seconds is None else seconds,
        samples=tuple(record.get("samples", ())),
        low_seconds=record.get("low_seconds", 0.0),
        high_seconds=record.get("high_seconds", 0.0),
        failure=record.get("failure", ""),
        message=record.get("message", ""),
        contended=record.get("contended", False),
        max_abs_error=record.get("max_abs_error") or 0.0,
        max_rel_error=record.get("max_rel_error") or 0.0,
    )
