"""Recorded times: what a device once answered, to be answered again without it.

A recording is JSON: the device, and for each kernel that it was asked for the samples
or the failure. A kernel is found again by what it computes and by its text, whatever
its tensors are called, so whole programs are answered from their steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from tuner.errors import InvalidModel
from tuner.ir.fingerprint import fingerprint
from tuner.plan import Measurement
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, Measures, PlanRequest, PlanResult

SCHEMA: Final = "fuseplan.recording/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a device said of one kernel.

    Attributes:
        samples: seconds, in order; none if it failed.
        failure: a failure kind, or empty.
        schedule: for people; the text of the kernel decides.
    """

    samples: tuple[float, ...] = ()
    failure: str = ""
    message: str = ""
    schedule: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def seconds(self) -> float:
        """Median of the samples; infinite if it failed."""
        return median(self.samples) if self.samples else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Answers of one device, by `request_key`."""

    device_name: str
    toolchain: str
    entries: Mapping[str, Entry]

    def find(self, request: MeasureRequest) -> Entry | None:
        """What was said of a request; None if it was never asked."""
        return self.entries.get(request_key(request))

    def to_json(self) -> dict[str, Any]:
        """The recording as it is stored."""
        return {
            "schema": SCHEMA,
            "device": {"name": self.device_name, "toolchain": self.toolchain},
            "entries": {
                key: {
                    "samples": list(entry.samples),
                    "failure": entry.failure,
                    "message": entry.message,
                    "schedule": dict(entry.schedule),
                }
                for key, entry in sorted(self.entries.items())
            },
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Recording:
        """Read a recording.

        Raises:
            InvalidModel: it is none, or one of another version.
        """
        if stored.get("schema") != SCHEMA:
            raise InvalidModel(
                "recording",
                f"has the schema {stored.get('schema')!r}",
                hint=f"{SCHEMA} is what this version reads",
            )
        device = stored["device"]
        entries = {
            key: Entry(
                samples=tuple(entry["samples"]),
                failure=entry["failure"],
                message=entry["message"],
                schedule=entry["schedule"],
            )
            for key, entry in stored["entries"].items()
        }
        return cls(
            device_name=device["name"], toolchain=device["toolchain"], entries=entries
        )

    def replay(
        self,
        *,
        noise: float = 0.0,
        interference: float = 0.0,
        seed: int = 0,
        otherwise: Callable[[MeasureRequest], float] | None = None,
    ) -> NullRunner:
        """A runner that answers from this recording; see `NullRunner`.

        Args:
            noise: relative standard deviation of a sample around the median.
            interference: of whole programs around the sum of their steps.
            seed: of noise and interference.
            otherwise: seconds of a kernel that was never recorded; without it such
                a kernel fails to run.
        """

        def seconds(request: MeasureRequest) -> float:
            found = self.find(request)
            if found is not None:
                return found.seconds
            return math.inf if otherwise is None else otherwise(request)

        def failure(request: MeasureRequest) -> tuple[str, str] | None:
            found = self.find(request)
            if found is None or not found.failure:
                return None
            return found.failure, found.message

        return NullRunner(
            seconds,
            failures=failure,
            noise=noise,
            interference=interference,
            seed=seed,
            toolchain=f"null 1, recorded on {self.device_name}, {self.toolchain}",
        )


def request_key(request: MeasureRequest) -> str:
    """Identity of what is measured: computation, text, launch, exactness."""
    graph = request.graph
    plain = replace(graph, inputs=(*graph.inputs, *graph.weights), weights=())
    source = request.source
    text = "library" if source is None else f"{source.digest}/{source.grid}"
    parts = f"{fingerprint(plain)}/{text}/{request.exactness}"
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


class Recorder:
    """A runner that writes down what another one answers."""

    def __init__(self, runner: Measures) -> None:
        self._runner = runner
        self._entries: dict[str, Entry] = {}

    @property
    def device_name(self) -> str:
        """What the recorded device calls itself."""
        return self._runner.device_name

    @property
    def toolchain(self) -> str:
        """Compiler, driver and library versions of the recorded device."""
        return self._runner.toolchain

    @property
    def recording(self) -> Recording:
        """Everything that was answered so far."""
        return Recording(
            device_name=self.device_name,
            toolchain=self.toolchain,
            entries=dict(self._entries),
        )

    def measure(
        self, request: MeasureRequest, schedule: Mapping[str, int] | None = None
    ) -> Measurement:
        """Ask, and write down the answer."""
        found = self._runner.measure(request)
        if request.timed:
            self._entries[request_key(request)] = Entry(
                samples=found.samples,
                failure=found.failure,
                message=found.message,
                schedule=dict(schedule or {}),
            )
        return found

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Ask; whole programs are replayed from their steps."""
        return self._runner.measure_whole(request)
