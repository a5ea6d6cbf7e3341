"""Measure the cost model against this machine and keep every raw sample.

    python -m benchmarks.accuracy measure accuracy.json --minutes 30
    python -m benchmarks.accuracy predict accuracy.json [--refit] [--worst 20]

Measuring calibrates first (60 s at most), then times schedules and fusion decisions
that the calibration has not seen, and writes one JSON file with all samples. Run it on
a quiet machine: a calibration that others disturbed is refused (`--disturbed` takes it
all the same), and the file says how many measurements were. The families of kernels
take turns, fusion decisions first, so that a short run has some of each. `--minutes`
ends it in time, and the same command goes on where it stopped; when all is measured,
what was disturbed is taken again. `predict` measures nothing: it lays the model as it
is now beside the stored times, `--refit` with a new fit to the stored micro-benchmarks,
and lists the kernels that it is most wrong about.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cost_model.calibration import restore
from cost_model.catalog import find
from tuner.calibration.accuracy import measure_accuracy
from tuner.calibration.findings import Accuracy, Limits
from tuner.calibration.fit import Fitted, calibrate_device, fit_again
from tuner.calibration.judging import predicted_again
from tuner.calibration.record import (
    accuracy_from,
    accuracy_json,
    micro_json,
    micro_measured,
)
from tuner.calibration.report import summary
from tuner.document import encode
from tuner.errors import TunerError
from tuner.runtime.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost_model.device import Device

CALIBRATION_SECONDS: Final = 60.0
CALIBRATION_SHARE: Final = 0.6
"""Most of a call that goes to calibration."""
Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure", help="time kernels, or go on with it")
    measuring.add_argument("file", type=Path)
    measuring.add_argument("--device", default="cpu")
    measuring.add_argument("--target", default="cpu", help="catalogue row to start at")
    measuring.add_argument("--minutes", type=float, default=30.0)
    measuring.add_argument("--seed", type=int, default=0)
    measuring.add_argument("--attempts", type=int, default=3)
    measuring.add_argument("--uncalibrated", action="store_true")
    measuring.add_argument(
        "--disturbed", action="store_true", help="calibrate on a busy machine too"
    )
    measuring.set_defaults(run=measure)
    saying = commands.add_parser("predict", help="judge the model as it is now")
    saying.add_argument("file", type=Path)
    saying.add_argument("--refit", action="store_true", help="fit the device again")
    saying.add_argument("--worst", type=int, default=0, help="kernels to list")
    saying.set_defaults(run=predict)
    given = parser.parse_args(arguments)
    try:
        given.run(given)
    except TunerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def measure(given: argparse.Namespace) -> None:
    """Calibrate, measure, write; or go on with what a file holds."""
    end = time.monotonic() + 60.0 * given.minutes
    base = find(given.target)
    with Runner(given.device) as runner:
        machine = {"device": runner.device_name, "toolchain": runner.toolchain}
        stored = _stored(given.file, machine)
        if not stored and not given.uncalibrated:
            stored = _begun(base, runner, given)
            _replace(given.file, {"machine": machine, **stored})
        calibration = stored.get("calibration")
        device = _device_of(base, calibration)
        known = accuracy_from(stored, device) if "found" in stored else None
        keep = partial(_write, given.file, machine, calibration)
        limits = Limits(
            seconds=max(end - time.monotonic(), 0.0),
            seed=given.seed,
            attempts=given.attempts,
        )
        measured = measure_accuracy(
            device, runner, time.monotonic, limits, known, save=keep
        )
    keep(measured)
    say(table(summary(measured)))
    if not measured.is_complete:
        left = measured.asked - sum(f.is_settled for f in measured.found.values())
        say(f"{left} of {measured.asked} are left: call it again to go on")


def _begun(base: Device, runner: Runner, given: argparse.Namespace) -> Json:
    """A calibration, and nothing measured yet."""
    seconds = min(CALIBRATION_SECONDS, CALIBRATION_SHARE * 60.0 * given.minutes)
    fitted = calibrate_device(
        base,
        runner,
        time.monotonic,
        time_limit_seconds=seconds,
        accept_disturbed=given.disturbed,
    )
    device = restore(base, fitted.calibration.device.numbers)
    return {"base": base.id, "calibration": _calibration_json(fitted, device)}


def predict(given: argparse.Namespace) -> None:
    """What the model says now of what was measured."""
    stored = json.loads(given.file.read_text())
    base = find(stored["base"])
    calibration = stored["calibration"]
    old = _device_of(base, calibration)
    measured = accuracy_from(stored, old)
    device = old
    if given.refit and calibration is not None:
        timed = {
            (each["group"], each["name"]): micro_measured(each)
            for each in calibration["samples"]
        }
        fitted = fit_again(base, timed)
        device = restore(base, fitted.calibration.device.numbers)
        _tell_changes(old, device)
    again = predicted_again(measured, device)
    say(table(summary(again)))
    _tell_worst(again, given.worst)


def _stored(path: Path, machine: Mapping[str, str]) -> Json:
    """What an earlier call wrote; empty if there was none.

    Raises:
        SystemExit: it was measured elsewhere.
    """
    if not path.exists():
        return {}
    stored: Json = json.loads(path.read_text())
    if stored["machine"] != dict(machine):
        raise SystemExit(
            f"{path}: was measured on another device or toolchain: give another file"
        )
    return stored


def _device_of(base: Device, calibration: Mapping[str, Any] | None) -> Device:
    return base if calibration is None else restore(base, calibration["numbers"])


def _write(
    path: Path,
    machine: Mapping[str, str],
    calibration: Mapping[str, Any] | None,
    measured: Accuracy,
) -> None:
    """Write everything."""
    told = {
        "machine": dict(machine),
        "base": measured.device.id.partition("@")[0],
        "calibration": calibration,
        **accuracy_json(measured),
    }
    _replace(path, told)


def _replace(path: Path, told: Mapping[str, Any]) -> None:
    draft = path.with_name(f"{path.name}.part")
    draft.write_bytes(encode(told))
    draft.replace(path)


def _calibration_json(fitted: Fitted, device: Device) -> Json:
    residuals = fitted.calibration.residuals
    return {
        "numbers": dict(device.numbers),
        "residuals": {name: asdict(residual) for name, residual in residuals.items()},
        "skipped": dict(fitted.skipped),
        "disturbed": list(fitted.disturbed),
        "samples": [micro_json(each, device) for each in fitted.timed],
    }


def table(told: Mapping[str, Any]) -> str:
    """A summary as a Markdown table."""
    lines = [
        "| what | count | model | bytes / bandwidth + launch | noise |",
        "|---|---|---|---|---|",
    ]
    for row in told["rows"]:
        figures = (_shown(row[side]) for side in ("model", "baseline", "noise"))
        lines.append(f"| {row['what']} | {row['count']} | {' | '.join(figures)} |")
    bound = told["bound"]
    lines.append(
        f"\nbound above a measured time: {bound['violations']} of {bound['kernels']};"
        f" median share of it {_shown(bound['tightness'])}; noise (median interval)"
        f" {_shown(told['noise'])}; disturbed: {told['contended']};"
        f" failed: {told['failures']}; {told['seconds']:.0f} s"
    )
    lines += [f"  broken: {each}" for each in bound["broken"]]
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _tell_changes(old: Device, new: Device) -> None:
    for name, value in new.numbers.items():
        if old.numbers[name] != value:
            say(f"{name}: {old.numbers[name]} -> {value}")


def _tell_worst(measured: Accuracy, count: int) -> None:
    """Trials by how wrong they are, then decisions of the wrong sign."""
    if not count:
        return
    trials = sorted(
        measured.trials,
        key=lambda t: -abs(math.log(t.predicted_seconds / t.measured.seconds)),
    )
    for t in trials[:count]:
        say(
            f"{t.predicted_seconds / t.measured.seconds:6.2f} times "
            f"{t.measured.seconds * 1e6:8.1f} us  {t.name}{list(t.shape)} "
            f"{t.schedule.as_dict}"
        )
    wrong = [d for d in measured.decisions if d.is_decided and not d.is_right]
    for d in wrong[:count]:
        say(
            f"fused {d.fused.seconds * 1e6:.1f} us, predicted "
            f"{d.fused_predicted_seconds * 1e6:.1f}; apart "
            f"{d.apart.seconds * 1e6:.1f}, predicted "
            f"{d.apart_predicted_seconds * 1e6:.1f}: {d.name}"
        )


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
