"""Commands about this machine: devices, doctor."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from service.cli import calibrating, inputs, output
from service.cli.planning import AsJson
from service.dashboard.formats import size

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan devices --json")(devices)
    calibrating.register(app)
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
