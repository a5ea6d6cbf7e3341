"""The stages of the test in order, and the report that grows with them."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tuner.calibration.fit import calibrate_device
from tuner.calibration.record import micro_json
from tuner.errors import TunerError
from tuner.execution import language_of
from tuner.plan import Language, Measurement, Source
from tuner.runtime import nvrtc
from tuner.runtime.bench import Bench
from tuner.runtime.null import Behaviour, NullBackend, NullRunner
from tuner.runtime.requests import MeasureRequest
from tuner.runtime.runner import Runner
from tuner.selftest import alone, faults, models, peers
from tuner.selftest.subjects import (
    Subject,
    behaviours,
    by_hand,
    copy_of,
    suite,
    target,
)

OK: Final = 0
FAILED: Final = 1
UNAVAILABLE: Final = 5
WRONG: Final = 6
OPTIONAL: Final = ("onnxruntime", "pyopencl", "cupy", "torch", "jax")
COPY_BYTES: Final = 64 << 20
CALIBRATION_SECONDS: Final = 60.0
_PEER_SECONDS: Final = 60.0
_SUITE_SHARE: Final = 0.5
"""Of the whole budget, at most."""

Measure = Callable[[MeasureRequest], Measurement]
Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one stage found."""

    name: str
    ok: bool
    seconds: float
    found: Found = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is run.

    Attributes:
        copy_bytes: size of the timed copy.
        kernels: of the suite, at most.
        folder: whose models are run; None: those that are built here.
        calibration_seconds: for the micro-benchmarks, at most.
    """

    copy_bytes: int = COPY_BYTES
    kernels: int = sys.maxsize
    folder: Path | None = None
    calibration_seconds: float = CALIBRATION_SECONDS


def measured(subject: Subject, measure: Measure, seconds: float) -> Found:
    """Verify and time a kernel.

    Args:
        subject: the kernel.
        measure: on the device.
        seconds: after this it counts as hung.
    """
    request = MeasureRequest(
        graph=subject.graph,
        source=subject.source,
        budget_seconds=min(0.5, seconds / 8),
        deadline_seconds=max(seconds, 1.0),
    )
    found = measure(request)
    if found.failure:
        return {"failure": found.failure, "message": found.message}
    return {
        "seconds": found.seconds,
        "low_seconds": found.low_seconds,
        "high_seconds": found.high_seconds,
        "samples": len(found.samples),
        "contended": found.contended,
        "max_rel_error": found.max_rel_error,
        "bytes_per_second": subject.moved_bytes / found.seconds,
        "launches": [(one.grid, one.block) for one in subject.source.launches],
    }


def invented_seconds(request: MeasureRequest) -> float:
    """What the null device takes for a kernel: a launch, and 10 GB/s."""
    graph = request.graph
    touched = sum(graph.types[n].bytes for n in (*graph.inputs, *graph.outputs))
    return 5e-6 + touched / 1e10


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def environment() -> Found:
    """What runs this, and which optional packages it could use."""
    present = [name for name in OPTIONAL if _has(name)]
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "numpy": np.__version__,
        "optional": present,
    }


def compiled(sources: Sequence[Source]) -> Found:
    """Registers and spills of the CUDA sources on every known architecture."""
    report: dict[str, Any] = {}
    for architecture in nvrtc.available_architectures():
        results = [nvrtc.compile_cubin(source, architecture) for source in sources]
        report[architecture] = {
            "registers": [r.resources.registers for r in results],
            "spill_bytes": sum(r.resources.spill_store_bytes for r in results),
        }
    return report


class SelfTest:
    """One run of the test."""

    def __init__(
        self,
        device: str,
        *,
        budget_seconds: float,
        report: Path | None,
        say: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a test.

        Args:
            device: cuda, cpu or null.
            budget_seconds: stages that would begin later are left out.
            report: where to write the JSON report, after every stage.
            say: takes one line per stage.
            clock: seconds.
        """
        self._device = device
        self._report = report
        self._say = say
        self._clock = clock
        self._budget = budget_seconds
        self._end = clock() + budget_seconds
        self._stages: list[Stage] = []
        self._runner: Runner | None = None

    def run(self, extent: Extent = Extent()) -> int:
        """Run all stages; the exit code."""
        self._stage("environment", environment)
        try:
            language = language_of(self._device)
        except TunerError as error:
            self._stage("device", partial(_raised, error))
            return UNAVAILABLE
        kernels = self._subjects(language, extent)
        with ExitStack() as stack:
            opened = self._stage("device", lambda: self._open(stack, kernels))
            if not opened.ok:
                return UNAVAILABLE
            self._kernels(kernels[:1])
            self._faults(language)
            self._kernels(kernels[1:])
            if language == "cuda":
                sources = [subject.source for subject in kernels]
                self._within("compile", lambda _: compiled(sources))
            self._others(extent)
        return self._code()

    def _subjects(self, language: Language, extent: Extent) -> tuple[Subject, ...]:
        device = target(self._device)
        first = (by_hand(language), copy_of(extent.copy_bytes, device))
        return (*first, *islice(suite(device), extent.kernels))

    def _kernels(self, kernels: Sequence[Subject]) -> None:
        end = self._clock() + _SUITE_SHARE * self._budget
        for subject in kernels:
            run = partial(measured, subject, self._measure)
            self._within(subject.name, run, end - self._clock())

    def _faults(self, language: Language) -> None:
        """Faults before all kernels but the one written by hand.

        Errors of CUDA stay in the process that made them. Were they not survived, no
        kernel behind the first bad one could be judged; what comes after shows that
        the device recovers.
        """
        if self._runner is None:
            return
        for name in faults.NAMES:
            provoke = partial(faults.provoked, name, language, self._runner)
            self._within(f"fault: {name}", provoke)

    def _others(self, extent: Extent) -> None:
        for name in models.names(extent.folder):
            ask = partial(alone.ask, self._device, "model", name)
            self._within(f"model: {Path(name).stem}", ask)
        for name in peers.names(self._device):
            if _has(name):
                ask = partial(alone.ask, self._device, "peer", name)
                self._within(f"peer: {name}", ask, _PEER_SECONDS)
        self._within("calibration", self._calibrated, extent.calibration_seconds)

    def _calibrated(self, seconds: float) -> Found:
        """The device's numbers, fitted to micro-benchmarks."""
        timer = self._runner or NullRunner(invented_seconds)
        fitted = calibrate_device(
            target(self._device),
            timer,
            self._clock,
            time_limit_seconds=seconds,
            accept_disturbed=True,  # the report says what was
        )
        calibration = fitted.calibration
        return {
            "numbers": calibration.device.numbers,
            "skipped": dict(fitted.skipped),
            "contended": fitted.contended,
            "disturbed": list(fitted.disturbed),
            "timed": [micro_json(t, calibration.device) for t in fitted.timed],
        }

    def _open(self, stack: ExitStack, kernels: Iterable[Subject]) -> Found:
        """Open the device in a child process; its canary sings there."""
        if self._device.partition(":")[0] == "null":
            known: dict[str, Behaviour] = {}
            for subject in kernels:
                known |= behaviours(subject.source, subject.launched)
            backend = NullBackend(known)
            self._measure: Measure = Bench(backend).measure
            return {"name": backend.name, "toolchain": backend.toolchain}
        self._runner = stack.enter_context(Runner(self._device))
        self._measure = self._runner.measure
        return {"name": self._runner.device_name, "toolchain": self._runner.toolchain}

    def _within(
        self, name: str, work: Callable[[float], Found], most: float = math.inf
    ) -> None:
        """A stage that gets what is left of the budget, or is left out."""
        left = min(self._end - self._clock(), most)
        if left <= 0:
            self._say(f"{name}: left out, the budget is spent")
            return
        self._stage(name, lambda: work(left))

    def _stage(self, name: str, work: Callable[[], Found]) -> Stage:
        """Run a stage. This is the top loop: every error becomes a finding."""
        start = self._clock()
        try:
            found = work()
        except TunerError as error:
            found = {"failure": error.code, "message": str(error)}
        except Exception as error:  # noqa: BLE001
            found = {
                "failure": "unexpected",
                "message": f"{type(error).__name__}: {error}",
                "traceback": traceback.format_exc(),
            }
        stage = Stage(
            name=name,
            ok="failure" not in found,
            seconds=self._clock() - start,
            found=found,
        )
        self._stages.append(stage)
        self._write()
        self._say(_line(stage))
        return stage

    def _write(self) -> None:
        if self._report is None:
            return
        content = {
            "device": self._device,
            "stages": [asdict(stage) for stage in self._stages],
        }
        draft = self._report.with_suffix(f"{self._report.suffix}.part")
        draft.write_text(json.dumps(content, indent=2, default=str) + "\n")
        draft.replace(self._report)

    def _code(self) -> int:
        failures = {s.found.get("failure") for s in self._stages if not s.ok}
        if not failures:
            return OK
        return WRONG if failures == {"correctness"} else FAILED


def _raised(error: TunerError) -> Found:
    raise error


def _line(stage: Stage) -> str:
    if not stage.ok:
        return f"{stage.name}: FAILED: {stage.found.get('message')}"
    if "bytes_per_second" in stage.found:
        micros = stage.found["seconds"] * 1e6
        rate = stage.found["bytes_per_second"] / 1e9
        return f"{stage.name}: {micros:.1f} us, {rate:.1f} GB/s"
    name = stage.found.get("name", "ok")
    return f"{stage.name}: {name} ({stage.seconds:.2f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tuner.selftest",
        description="Run, verify and time our kernels on a device of this machine.",
    )
    parser.add_argument("--device", default="cpu", help="cuda, cpu or null")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds")
    parser.add_argument("--report", type=Path, help="JSON file, grows with each stage")
    parser.add_argument(
        "--copy-bytes", type=int, default=COPY_BYTES, help="size of the timed copy"
    )
    parser.add_argument(
        "--kernels", type=int, default=sys.maxsize, help="of the suite, at most"
    )
    parser.add_argument(
        "--models", type=Path, help="folder of ONNX models; else four are built"
    )
    parser.add_argument(
        "--calibration",
        type=float,
        default=CALIBRATION_SECONDS,
        help="seconds for the micro-benchmarks, at most",
    )
    asked = parser.parse_args(arguments)
    test = SelfTest(
        asked.device, budget_seconds=asked.budget, report=asked.report, say=_say
    )
    return test.run(
        Extent(
            copy_bytes=asked.copy_bytes,
            kernels=asked.kernels,
            folder=asked.models,
            calibration_seconds=asked.calibration,
        )
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
