"""Commands about the cost model on this machine: calibrate, accuracy."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli import inputs, output
from service.cli.planning import AsJson
from service.dashboard.formats import duration, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost_model.device import Device
    from tuner.calibration.fit import Fitted

DeviceName = Annotated[
    str, typer.Option("--device", "-d", help="Device of this machine: cpu, cuda:0.")
]

HISTORY: Final = 20
"""Earlier runs that a drift is judged by, at most."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan calibrate --device cpu")(calibrate)
    app.command(epilog="Example: fuseplan accuracy --device cpu --minutes 10")(accuracy)


def calibrate(
    device: DeviceName = "cpu",
    seconds: Annotated[
        float, typer.Option("--seconds", min=5.0, help="Most that it may take.")
    ] = 60.0,
    accept_disturbed: Annotated[
        bool,
        typer.Option(
            "--accept-disturbed", help="Fit also to what other work disturbed."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a device's numbers to micro-benchmarks of our own, timed on this machine.

    The catalogue's row stays as it is: plan for the calibrated device by the name that
    this command prints, such as cpu@1a2b3c4d, or by cpu@latest.
    """
    from cost_model.calibration import restore
    from service.jobs.planning import target_of
    from tuner.calibration.fit import calibrate_device
    from tuner.runtime.runner import Runner

    base = target_of(device)
    with Runner(device) as runner:
        fitted = calibrate_device(
            base,
            runner,
            time.monotonic,
            time_limit_seconds=seconds,
            accept_disturbed=accept_disturbed,
        )
    found = restore(base, fitted.calibration.device.numbers)
    _store(base, found, fitted)
    told = _told(base, found, fitted)
    if as_json:
        output.emit(told)
    else:
        _show(told)


def _told(base: Device, found: Device, fitted: Fitted) -> dict[str, Any]:
    from tuner.calibration.record import micro_json

    return {
        "target": found.id,
        "base": base.id,
        "digest": found.digest,
        "changed": _changed(base, found),
        "residuals": _residuals(fitted),
        "skipped": dict(fitted.skipped),
        "contended": fitted.contended,
        "disturbed": list(fitted.disturbed),
        "samples": [micro_json(each, found) for each in fitted.timed],
    }


def _residuals(fitted: Fitted) -> dict[str, Any]:
    known = fitted.calibration.residuals
    return {name: asdict(residual) for name, residual in known.items()}


def _show(told: Mapping[str, Any]) -> None:
    output.table(
        ("number", ">catalogue", ">here", ">change"),
        [
            (name, f"{old:.4g}", f"{new:.4g}", percent(new / old - 1 if old else None))
            for name, (old, new) in told["changed"].items()
        ],
    )
    output.table(
        ("fitted to", ">samples", ">median error", ">worst"),
        [
            (name, str(r["samples"]), percent(r["median"]), percent(r["worst"]))
            for name, r in told["residuals"].items()
        ],
    )
    for name, reason in told["skipped"].items():
        output.line(f"skipped {name}: {reason}")
    if told["contended"]:
        output.line(
            f"{told['contended']} of {len(told['samples'])} were disturbed by other"
            " processes: calibrate again on a quiet machine."
        )
    output.line(
        f"Plan for it with --target {told['target']}, or {told['base']}@latest."
    )


def _changed(old: Device, new: Device) -> dict[str, tuple[float, float]]:
    before, after = _flat(old.numbers), _flat(new.numbers)
    return {n: (before[n], after[n]) for n in before if before[n] != after[n]}


def _flat(numbers: Mapping[str, object]) -> dict[str, float]:
    """Numbers by name, rates with their pipe."""
    found: dict[str, float] = {}
    for name, value in numbers.items():
        if isinstance(value, dict):
            found.update({f"{name}.{pipe}": rate for pipe, rate in value.items()})
        elif isinstance(value, int | float):
            found[name] = value
    return found


def _store(base: Device, found: Device, fitted: Fitted) -> None:
    """Remember the numbers in this machine's database."""
    from service.store import devices

    told = devices.Calibration(
        target=base.id,
        host=platform.node() or "localhost",
        digest=found.digest,
        numbers={
            "device": dict(found.numbers),
            "residuals": _residuals(fitted),
            "contended": fitted.contended,
            "disturbed": list(fitted.disturbed),
        },
        created_at=datetime.now(UTC),
    )
    with inputs.own_database() as database, database.write() as session:
        devices.calibrate(session, told)


def accuracy(
    device: DeviceName = "cpu",
    target: Annotated[
        str, typer.Option("--target", "-t", help="Whose numbers predict: cpu@latest.")
    ] = "",
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.2, help="Most that it may take.")
    ] = 10.0,
    seed: Annotated[int, typer.Option("--seed", help="Which schedules are drawn.")] = 0,
    raw: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for all raw samples.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with measured kernels that no calibration has seen.

    Reports whether fusion decisions have the right sign, rank correlation, error and
    regret, each beside a model that knows bytes, bandwidth and launch only.
    """
    from service.jobs.planning import target_of
    from tuner.calibration.accuracy import measure_accuracy
    from tuner.calibration.findings import Limits
    from tuner.calibration.report import summary
    from tuner.runtime.runner import Runner

    own = target_of(device)
    known = inputs.device_of(target) if target else own
    if raw is not None:
        inputs.require_place(raw)
    with Runner(device) as runner:
        measured = measure_accuracy(
            known,
            runner,
            time.monotonic,
            Limits(seconds=60.0 * minutes, seed=seed),
        )
    told = summary(measured)
    if raw is not None:
        from tuner.calibration.record import accuracy_json
        from tuner.document import encode

        inputs.write_bytes(raw, encode(accuracy_json(measured)))
    told["drift"] = _remember(known, told)
    if as_json:
        output.emit(told)
        return
    _show_accuracy(told)
    for sentence in told["drift"]:
        output.line(f"warning: predictions have drifted, calibrate again: {sentence}")


def _remember(known: Device, told: Mapping[str, Any]) -> list[str]:
    """Keep what was found; where these numbers predicted this host better before."""
    from cost_model.device import base_of
    from service.store import accuracy as accuracy_store
    from tuner.calibration.report import drifted

    target, host = base_of(known.id), platform.node() or "localhost"
    run = accuracy_store.AccuracyRun(
        target=target,
        host=host,
        digest=known.digest,
        summary=told,
        created_at=datetime.now(UTC),
    )
    with inputs.own_database() as database, database.write() as session:
        runs = accuracy_store.runs(session, target, limit=HISTORY)
        same = (host, known.digest)
        before = [r.summary for r in runs if (r.host, r.digest) == same]
        accuracy_store.record(session, run)
    return drifted(told, before)


def _show_accuracy(told: Mapping[str, Any]) -> None:
    output.table(
        ("what", ">count", ">model", ">bytes / bandwidth + launch"),
        [
            (row["what"], str(row["count"]), *map(_shown, _scores(row)))
            for row in told["rows"]
        ],
    )
    bound = told["bound"]
    output.line(
        f"lower bound above a measured time in {bound['violations']} of"
        f" {bound['kernels']}; median bound / measured {_shown(bound['tightness'])}"
    )
    output.line(
        f"noise floor: median interval {percent(told['noise'])},"
        f" {told['contended']} measurements disturbed,"
        f" {duration(told['seconds'])} in all"
    )


def _scores(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return row["model"], row["baseline"]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
