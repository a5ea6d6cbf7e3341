"""The catalogue of devices, their calibrations, and who offers them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from cost_model.catalog import ALIASES, DEVICES
from cost_model.device import Device
from service.api.context import Context, ContextDep
from service.api.problems import told
from service.api.schemas import EXAMPLE_DIGEST
from service.errors import DeviceNotFound
from service.store import devices, heartbeats, jobs

router = APIRouter(tags=["devices"])

_COMPARED: Final = 500
"""Newest kernel runs by which predictions are judged."""

_FEWEST: Final = 3


class WorkerBody(BaseModel):
    """A worker that offers a device."""

    worker: str
    device: str
    queue: str
    job: str | None
    seen_at: datetime


class CalibrationBody(BaseModel):
    """Numbers that were fitted to measurements."""

    digest: str
    host: str
    created_at: datetime


class AccuracyBody(BaseModel):
    """How well times on a device were predicted, over its newest kernel runs.

    Attributes:
        runs: kernel runs that were compared.
        mean_relative_error: mean of |predicted - measured| / measured.
        median_ratio: median of measured / predicted; 1 is fair.
        rank_correlation: Spearman's, null when it is not defined.
    """

    runs: int
    mean_relative_error: float
    median_ratio: float
    rank_correlation: float | None


_EXAMPLE: Final[dict[str, Any]] = {
    "id": "h100-sxm",
    "name": "NVIDIA H100 SXM",
    "kind": "gpu",
    "architecture": "sm_90",
    "digest": EXAMPLE_DIGEST,
    "aliases": ["sm_90", "h100"],
    "calibration": None,
    "accuracy": {
        "runs": 480,
        "mean_relative_error": 0.18,
        "median_ratio": 1.04,
        "rank_correlation": 0.97,
    },
    "workers": [],
}


class DeviceBody(BaseModel):
    """A device of the catalogue."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    name: str
    kind: str
    architecture: str
    digest: str
    aliases: list[str]
    calibration: CalibrationBody | None
    accuracy: AccuracyBody | None
    workers: list[WorkerBody]


class DeviceDetail(DeviceBody):
    """A device with all its numbers; the unit is in each name."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{**_EXAMPLE, "numbers": {"dram_bytes": 85899345920}}]
        }
    )

    numbers: dict[str, Any]


class DeviceList(BaseModel):
    """Every device of the catalogue."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"devices": [_EXAMPLE]}]})

    devices: list[DeviceBody]


@router.get(
    "/v1/devices",
    operation_id="listDevices",
    summary="List devices",
    responses=told(503),
)
def list_devices(context: ContextDep) -> DeviceList:
    """The catalogue, with the workers that are alive."""
    return DeviceList(
        devices=[DeviceBody(**_facts(context, device)) for device in DEVICES.values()]
    )


@router.get(
    "/v1/devices/{device_id}",
    operation_id="getDevice",
    summary="Read a device",
    responses=told(404, 422, 503),
)
def get_device(device_id: str, context: ContextDep) -> DeviceDetail:
    """A device by id or alias, with all its numbers."""
    device = DEVICES.get(ALIASES.get(device_id, device_id))
    if device is None:
        known = ", ".join([*DEVICES, *ALIASES])
        raise DeviceNotFound(
            device_id, "the catalogue has no such device", hint=f"known: {known}"
        )
    return DeviceDetail(**_facts(context, device), numbers=_numbers(device))


def _facts(context: Context, device: Device) -> dict[str, Any]:
    with context.database.read() as session:
        fitted = devices.calibration(session, device.id)
        offered = {
            (one.host, one.name)
            for one in devices.offered(session)
            if one.target == device.id
        }
        beats = heartbeats.all_workers(session)
        compared = jobs.compared(session, device.id, limit=_COMPARED)
    calibration = fitted and CalibrationBody(
        digest=fitted.digest, host=fitted.host, created_at=fitted.created_at
    )
    workers = [
        WorkerBody(
            worker=beat.worker,
            device=beat.device,
            queue=beat.queue,
            job=beat.job,
            seen_at=beat.seen_at,
        )
        for beat in beats
        if (beat.host, beat.device) in offered
    ]
    return {
        "id": device.id,
        "name": device.name,
        "kind": str(device.kind),
        "architecture": device.architecture,
        "digest": device.digest,
        "aliases": [alias for alias, id_ in ALIASES.items() if id_ == device.id],
        "calibration": calibration,
        "accuracy": accuracy(compared),
        "workers": workers,
    }


def accuracy(runs: Sequence[tuple[float, float]]) -> AccuracyBody | None:
    """How well (predicted, measured) seconds agree; None when there are too few."""
    if len(runs) < _FEWEST:
        return None
    predicted = [one[0] for one in runs]
    measured = [one[1] for one in runs]
    errors = [abs(p - m) / m for p, m in runs]
    ranks = _ranks(predicted), _ranks(measured)
    varied = all(len(set(one)) > 1 for one in ranks)
    rank = statistics.correlation(*ranks) if varied else None
    return AccuracyBody(
        runs=len(runs),
        mean_relative_error=statistics.fmean(errors),
        median_ratio=statistics.median(m / p for p, m in runs),
        rank_correlation=rank,
    )


def _ranks(values: Sequence[float]) -> list[float]:
    """Place of each value in their order; equal values share the mean place."""
    order = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(order)))}
    times = Counter(values)
    return [first[value] + (times[value] - 1) / 2 for value in values]


def _numbers(device: Device) -> dict[str, Any]:
    return {one.name: _plain(getattr(device, one.name)) for one in fields(device)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, float, bool)) else str(value)
