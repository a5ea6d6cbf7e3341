"""Measure the cost model against this machine and keep every raw sample.

    python -m benchmarks.accuracy --minutes 30 --output accuracy.json

calibrates first (60 s at most), then measures schedules and fusion decisions that the
calibration has not seen, and writes one JSON file with all samples. Run it on a quiet
machine: the file says how many measurements were disturbed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from cost_model.calibration import restore
from cost_model.catalog import find
from cost_model.device import Device
from tuner.calibration.accuracy import Limits, measure_accuracy
from tuner.calibration.fit import calibrate_device
from tuner.calibration.report import accuracy_json, micro_json
from tuner.document import encode
from tuner.runtime.runner import Runner

CALIBRATION_SHARE = 0.25
"""Most of a short run that goes to calibration."""


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target", default="cpu", help="catalogue row to start from")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--uncalibrated", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("accuracy.json"))
    return parser.parse_args()


def main() -> None:
    """Calibrate, measure, write."""
    asked = arguments()
    total = 60.0 * asked.minutes
    device = find(asked.target)
    with Runner(asked.device) as runner:
        start = time.monotonic()
        calibration = None
        if not asked.uncalibrated:
            device, calibration = calibrated(device, runner, total)
        left = total - (time.monotonic() - start)
        limits = Limits(seconds=left, seed=asked.seed, attempts=asked.attempts)
        measured = measure_accuracy(device, runner, time.monotonic, limits)
        told = {
            "machine": {"device": runner.device_name, "toolchain": runner.toolchain},
            "calibration": calibration,
            **accuracy_json(measured),
        }
    asked.output.write_bytes(encode(told))
    json.dump(told["summary"], sys.stdout, indent=1)
    sys.stdout.write("\n")


def calibrated(
    base: Device, runner: Runner, total_seconds: float
) -> tuple[Device, dict[str, object]]:
    """The device as this machine is, and what that rests on."""
    seconds = min(60.0, CALIBRATION_SHARE * total_seconds)
    fitted = calibrate_device(base, runner, time.monotonic, time_limit_seconds=seconds)
    device = restore(base, fitted.calibration.device.numbers)
    residuals = fitted.calibration.residuals
    return device, {
        "numbers": dict(device.numbers),
        "residuals": {name: asdict(residual) for name, residual in residuals.items()},
        "skipped": dict(fitted.skipped),
        "samples": [micro_json(each, device) for each in fitted.timed],
    }


if __name__ == "__main__":
    main()
