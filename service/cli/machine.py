"""Commands about this machine: devices, calibrate, doctor."""

from __future__ import annotations

import platform
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli import inputs, output
from service.cli.planning import AsJson
from service.dashboard.formats import duration, percent, size

if TYPE_CHECKING:
    from cost_model.calibration import Calibration, CopySample
    from cost_model.device import Device
    from tuner.runtime.runner import Runner

COPY_ELEMENTS: Final = tuple(1 << shift for shift in range(12, 25))
"""16 KiB to 64 MiB of f32: from the launch to beyond the last cache."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan devices --json")(devices)
    app.command(epilog="Example: fuseplan calibrate --device cpu")(calibrate)
    app.command(epilog="Example: fuseplan doctor")(doctor)


def devices(as_json: AsJson = False) -> None:
    """List what plans can be made for, and what this machine can measure on."""
    from service.cli.checks import local_devices

    local = local_devices()
    listed = {"devices": _catalogue(), "local": local}
    if as_json:
        output.emit(listed)
        return
    output.table(
        ("target", "name", "aliases", ">memory", ">peak bandwidth"),
        [
            (
                device["id"],
                device["name"],
                ", ".join(device["aliases"]),
                size(device["dram_bytes"]),
                f"{size(device['dram_peak_bytes_per_second'])}/s",
            )
            for device in listed["devices"]
        ],
    )
    output.table(
        ("device here", "state", "what"),
        [
            (one["device"], "ready" if one["ok"] else "absent", one["detail"])
            for one in local
        ],
    )


def _catalogue() -> list[dict[str, Any]]:
    from cost_model.catalog import ALIASES, DEVICES

    return [
        {
            "id": device.id,
            "name": device.name,
            "kind": device.kind,
            "architecture": device.architecture,
            "aliases": [alias for alias, of in ALIASES.items() if of == device.id],
            "digest": device.digest,
            "dram_bytes": device.dram_bytes,
            "dram_peak_bytes_per_second": device.dram_peak_bytes_per_second,
        }
        for device in DEVICES.values()
    ]


def doctor(as_json: AsJson = False) -> int:
    """Check loader, devices, compilers, database and disk on one screen."""
    from service.cli.checks import all_checks

    checks = all_checks(inputs.settings())
    if as_json:
        output.emit({"checks": [asdict(check) for check in checks]})
    else:
        output.table(
            ("check", "state", "what", "cure"),
            [
                (
                    check.name,
                    "ok" if check.ok else "missing" if check.needed else "optional",
                    check.detail,
                    "" if check.ok else check.cure,
                )
                for check in checks
            ],
        )
    broken = [check for check in checks if check.needed and not check.ok]
    return broken[0].exit_code if broken else 0


def calibrate(
    device: Annotated[
        str, typer.Option("--device", "-d", help="Device of this machine: cpu.")
    ] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Fit a device's numbers to copies of all sizes, timed on this machine."""
    from cost_model.calibration import calibrate as fit
    from service.jobs.planning import target_of
    from tuner.runtime.runner import Runner

    target = target_of(device)
    with Runner(device) as runner:
        samples = [_copy(elements, target, runner) for elements in COPY_ELEMENTS]
    calibration = fit(target, copies=samples)
    _store(calibration)
    changed = _changed(target, calibration.device)
    if as_json:
        output.emit(
            {
                "target": target.id,
                "digest": calibration.device.digest,
                "changed": changed,
                "residuals": {
                    name: asdict(residual)
                    for name, residual in calibration.residuals.items()
                },
                "samples": [asdict(sample) for sample in samples],
            }
        )
        return
    output.table(
        (">moved", ">time", ">rate"),
        [
            (
                size(sample.moved_bytes),
                duration(sample.seconds),
                f"{size(sample.moved_bytes / sample.seconds)}/s",
            )
            for sample in samples
        ],
    )
    output.table(
        ("number", ">catalogue", ">here", ">change"),
        [
            (name, f"{old:.4g}", f"{new:.4g}", percent(new / old - 1 if old else None))
            for name, (old, new) in changed.items()
        ],
    )
    output.line("Stored with the devices; plans keep the catalogue's numbers.")


def _copy(elements: int, target: Device, runner: Runner) -> CopySample:
    """Time one streaming kernel of the generator: it reads and writes each element."""
    import json

    from cost_model.calibration import CopySample
    from tuner import pipeline
    from tuner.errors import KernelFailed
    from tuner.ir.graph import extract
    from tuner.plan import Options
    from tuner.runtime.requests import MeasureRequest

    model = pipeline.load(json.dumps(_negation(elements)).encode(), "json")
    kernel = pipeline.make_plan(model, target, Options()).kernels[0]
    source = next(s for s in kernel.sources if s.language == "opencl")
    graph = extract(model.graph, kernel.region)
    timed = runner.measure(MeasureRequest(graph=graph, source=source))
    if timed.failure:
        raise KernelFailed("copy", f"{timed.failure}: {timed.message}")
    return CopySample(
        moved_bytes=kernel.traffic_bytes,
        seconds=timed.seconds,
        blocks=source.grid[0] * source.grid[1] * source.grid[2],
        block_threads=source.block[0] * source.block[1] * source.block[2],
    )


def _negation(elements: int) -> dict[str, Any]:
    """The smallest model that reads and writes every element once."""
    node = {
        "name": "copy",
        "op": "Neg",
        "domain": "",
        "inputs": ["x"],
        "outputs": ["y"],
    }
    return {
        "schema": "fuseplan.graph/1",
        "opset": {"": 18},
        "inputs": [{"name": "x", "dtype": "f32", "shape": [elements]}],
        "weights": [],
        "constants": [],
        "nodes": [{**node, "attributes": {}}],
        "outputs": ["y"],
    }


def _changed(old: Device, new: Device) -> dict[str, tuple[float, float]]:
    before, after = _numbers(old), _numbers(new)
    return {
        name: (before[name], after[name])
        for name in before
        if before[name] != after[name]
    }


def _numbers(device: Device) -> dict[str, float]:
    """The numbers of a device by name; rates by pipe are not fitted here."""
    found = {field.name: getattr(device, field.name) for field in fields(device)}
    return {k: v for k, v in found.items() if isinstance(v, int | float)}


def _store(calibration: Calibration) -> None:
    """Remember the numbers in this machine's database."""
    from service.store import connect, devices, schema

    given = inputs.settings()
    schema.upgrade(given.url, busy_timeout_seconds=given.busy_timeout_seconds)
    database = connect(given.url, busy_timeout_seconds=given.busy_timeout_seconds)
    fitted = calibration.device
    try:
        with database.write() as session:
            devices.calibrate(
                session,
                devices.Calibration(
                    target=fitted.id,
                    host=platform.node() or "localhost",
                    digest=fitted.digest,
                    numbers=_numbers(fitted),
                    created_at=datetime.now(UTC),
                ),
            )
    finally:
        database.close()
