"""Kernel runs in the formats of other tuners: Kernel Tuner's cache, and T4 results.

Times there are milliseconds. What comes in from elsewhere is never served as a
measurement, since nothing says which compiler and driver made it: it is a hint for
where to begin.

Sources: `kernel_tuner/schema/cache/1.1.0/schema.json` of Kernel Tuner, and
`results-schema.json` 1.0.0 of https://github.com/odgaard/TuningSchema (T4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tuner.errors import InvalidModel
from tuner.plan import Measurement, Schedule
from tuner.search.records import Json, from_json, to_json

CACHE_VERSIONS: Final = ("1.0.0", "1.1.0")
T4_VERSION: Final = "1.0.0"
IMPORTED: Final = "imported"
"""Toolchain of runs that came from elsewhere: no device has it."""
_MILLISECONDS: Final = 1e3
_CACHE_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"compile": "CompilationFailedConfig", "resources": "InvalidConfig"}
)
_CACHE_FAILURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CompilationFailedConfig": "compile",
        "InvalidConfig": "resources",
        "RuntimeFailedConfig": "runtime",
    }
)
_T4_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "": "correct",
        "compile": "compile",
        "runtime": "runtime",
        "timeout": "timeout",
        "correctness": "correctness",
        "resources": "constraints",
        "noise": "runtime",
    }
)
_T4_FAILURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "correct": "",
        "compile": "compile",
        "runtime": "runtime",
        "timeout": "timeout",
        "correctness": "correctness",
        "constraints": "resources",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRuns:
    """Everything that was measured of one kernel on one device.

    Attributes:
        kernel: its fingerprint, or the name that another tuner gave it.
        sizes: its extents, where they are known.
        near: its structure without extents, as `tuner.search.near` has it.
    """

    kernel: str
    device_name: str
    runs: Mapping[Schedule, Measurement]
    sizes: tuple[int, ...] = ()
    near: str = ""
    costs: Mapping[Schedule, float] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names of all knobs, in order."""
        return tuple(sorted({k for s in self.runs for k, _ in s.knobs}))

    def as_hints(self) -> list[Json]:
        """Records for a session's `known` that suggest, and are never served."""
        return [
            {
                **to_json(measurement),
                "kernel": self.kernel,
                "toolchain": IMPORTED,
                "schedule": schedule.as_dict,
                "near": self.near,
                "sizes": list(self.sizes),
            }
            for schedule, measurement in self.runs.items()
        ]


def runs_of(
    records: Iterable[Mapping[str, Any]], device_name: str
) -> tuple[KernelRuns, ...]:
    """Results of tuning runs, kernel by kernel, in the order of their appearance.

    Args:
        records: results of kernel runs, as `TuningSession.measure` gives them.
        device_name: what measured them.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if "kernel" in record and "schedule" in record and not record.get("gone"):
            grouped.setdefault(str(record["kernel"]), []).append(record)
    return tuple(
        _grouped(kernel, found, device_name) for kernel, found in grouped.items()
    )


def _grouped(
    kernel: str, records: Sequence[Mapping[str, Any]], device_name: str
) -> KernelRuns:
    schedules = [Schedule.of(**record["schedule"]) for record in records]
    pairs = list(zip(schedules, records, strict=True))
    return KernelRuns(
        kernel=kernel,
        device_name=device_name,
        runs={schedule: from_json(record) for schedule, record in pairs},
        sizes=tuple(records[0].get("sizes", ())),
        near=str(records[0].get("near", "")),
        costs={s: float(record.get("cost_seconds", 0.0)) for s, record in pairs},
    )


def to_kernel_tuner(runs: KernelRuns, *, timestamp: str) -> Json:
    """A cache file of Kernel Tuner, version 1.1.0.

    Args:
        runs: what was measured.
        timestamp: of the export, in ISO 8601; single runs have none.
    """
    knobs = runs.knobs
    return {
        "schema_version": CACHE_VERSIONS[-1],
        "device_name": runs.device_name,
        "kernel_name": runs.kernel,
        "problem_size": list(runs.sizes),
        "tune_params_keys": list(knobs),
        "tune_params": {
            knob: sorted({s.as_dict[knob] for s in runs.runs if knob in s.as_dict})
            for knob in knobs
        },
        "objective": "time",
        "fuseplan": {"near": runs.near},
        "cache": {
            _line_key(schedule, knobs): {
                **schedule.as_dict,
                **_cache_times(measurement),
                "compile_time": 0,
                "verification_time": 0,
                "benchmark_time": runs.costs.get(schedule, 0.0) * _MILLISECONDS,
                "strategy_time": 0,
                "framework_time": 0,
                "timestamp": timestamp,
            }
            for schedule, measurement in runs.runs.items()
        },
    }


def _line_key(schedule: Schedule, knobs: Sequence[str]) -> str:
    return ",".join(str(schedule.as_dict.get(knob, "")) for knob in knobs)


def _cache_times(measurement: Measurement) -> Json:
    if measurement.failure:
        word = _CACHE_WORDS.get(measurement.failure, "RuntimeFailedConfig")
        return {"time": word, "failure": measurement.failure}
    return {
        "time": measurement.seconds * _MILLISECONDS,
        "times": [sample * _MILLISECONDS for sample in measurement.samples],
        "contended": measurement.contended,
    }


def from_kernel_tuner(stored: Mapping[str, Any]) -> KernelRuns:
    """Read a cache file of Kernel Tuner; files older than versions are read too.

    Runs with knobs that are no whole numbers are passed over: no schedule has such.

    Raises:
        InvalidModel: it is no such file.
    """
    version = stored.get("schema_version", CACHE_VERSIONS[0])
    if version not in CACHE_VERSIONS:
        raise InvalidModel("cache", f"has version {version!r}", hint="1.0.0 or 1.1.0")
    try:
        knobs = [str(knob) for knob in stored["tune_params_keys"]]
        lines = [_cache_line(line, knobs) for line in stored["cache"].values()]
        name, device = str(stored["kernel_name"]), str(stored["device_name"])
        size, ours = stored.get("problem_size"), stored.get("fuseplan", {})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidModel("cache", f"is damaged: {error!r}") from error
    return KernelRuns(
        kernel=name,
        device_name=device,
        runs=dict(line for line in lines if line is not None),
        sizes=tuple(size) if isinstance(size, list) else (),
        near=str(ours.get("near", "")),
    )


def _cache_line(
    line: Mapping[str, Any], knobs: Sequence[str]
) -> tuple[Schedule, Measurement] | None:
    schedule = _schedule({knob: line[knob] for knob in knobs if knob in line})
    if schedule is None:
        return None
    told = line["time"]
    if isinstance(told, str):
        kind = str(line.get("failure", _CACHE_FAILURES.get(told, "runtime")))
        return schedule, _failed(kind)
    samples = [float(sample) for sample in line.get("times", ())]
    found = _measured(float(told), samples, disturbed=bool(line.get("contended")))
    return schedule, found


def _schedule(knobs: Mapping[str, Any]) -> Schedule | None:
    if not all(isinstance(value, int) for value in knobs.values()):
        return None
    return Schedule.of(**{name: int(value) for name, value in knobs.items()})


def _failed(kind: str) -> Measurement:
    return Measurement(seconds=math.inf, failure=kind, message="imported")


def _measured(
    milliseconds: float, samples: Sequence[float], *, disturbed: bool = False
) -> Measurement:
    seconds = milliseconds / _MILLISECONDS
    times = tuple(sample / _MILLISECONDS for sample in samples)
    return Measurement(
        seconds=seconds,
        samples=times,
        low_seconds=min((seconds, *times)),
        high_seconds=max((seconds, *times)),
        contended=disturbed,
    )


def to_t4(runs: KernelRuns, *, timestamp: str) -> Json:
    """Results in T4, version 1.0.0.

    Args:
        runs: what was measured.
        timestamp: of the export, in ISO 8601.
    """
    return {
        "schema_version": T4_VERSION,
        "results": [
            {
                "timestamp": timestamp,
                "configuration": schedule.as_dict,
                "objectives": ["time"],
                "times": {
                    "compilation_time": 0,
                    "runtimes": [s * _MILLISECONDS for s in measurement.samples],
                    "framework": runs.costs.get(schedule, 0.0) * _MILLISECONDS,
                    "search_algorithm": 0,
                    "validation": 0,
                },
                "invalidity": _T4_WORDS[measurement.failure],
                "correctness": 0 if measurement.failure == "correctness" else 1,
                "measurements": _t4_measurements(measurement),
            }
            for schedule, measurement in runs.runs.items()
        ],
    }


def _t4_measurements(measurement: Measurement) -> list[Json]:
    if measurement.failure:
        return []
    value = measurement.seconds * _MILLISECONDS
    return [{"name": "time", "value": value, "unit": "ms"}]


def from_t4(
    stored: Mapping[str, Any], *, kernel: str = "", device_name: str = ""
) -> KernelRuns:
    """Read T4 results; the format names neither kernel nor device.

    Raises:
        InvalidModel: it is no such file.
    """
    if str(stored.get("schema_version")) != T4_VERSION:
        version = stored.get("schema_version")
        raise InvalidModel("T4 results", f"have version {version!r}", hint=T4_VERSION)
    try:
        lines = [_t4_line(line) for line in stored["results"]]
    except (AttributeError, KeyError, TypeError, ValueError, StopIteration) as error:
        raise InvalidModel("T4 results", f"are damaged: {error!r}") from error
    return KernelRuns(
        kernel=kernel,
        device_name=device_name,
        runs=dict(line for line in lines if line is not None),
    )


def _t4_line(line: Mapping[str, Any]) -> tuple[Schedule, Measurement] | None:
    schedule = _schedule(line["configuration"])
    if schedule is None:
        return None
    kind = _T4_FAILURES[line["invalidity"]]
    if kind:
        return schedule, _failed(kind)
    told = {each["name"]: each for each in line["measurements"]}
    samples = [float(sample) for sample in line["times"].get("runtimes", ())]
    return schedule, _measured(float(told["time"]["value"]), samples)
