"""The catalogue of devices, their calibrations, and who offers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from cost_model.catalog import ALIASES, DEVICES
from cost_model.device import Device
from service.api.context import Context, ContextDep
from service.api.problems import told
from service.api.schemas import EXAMPLE_DIGEST
from service.errors import DeviceNotFound
from service.store import devices, heartbeats

router = APIRouter(tags=["devices"])


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


class DeviceBody(BaseModel):
    """A device of the catalogue."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "h100-sxm",
                    "name": "NVIDIA H100 SXM",
                    "kind": "gpu",
                    "architecture": "sm_90",
                    "digest": EXAMPLE_DIGEST,
                    "aliases": ["sm_90", "h100"],
                    "calibration": None,
                    "workers": [],
                }
            ]
        }
    )

    id: str
    name: str
    kind: str
    architecture: str
    digest: str
    aliases: list[str]
    calibration: CalibrationBody | None
    workers: list[WorkerBody]


class DeviceDetail(DeviceBody):
    """A device with all its numbers; the unit is in each name."""

    numbers: dict[str, Any]


class DeviceList(BaseModel):
    """Every device of the catalogue."""

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
        "workers": workers,
    }


def _numbers(device: Device) -> dict[str, Any]:
    return {one.name: _plain(getattr(device, one.name)) for one in fields(device)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, float, bool)) else str(value)
