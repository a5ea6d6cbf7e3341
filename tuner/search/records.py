"""Measurements, partitions and devices as JSON: what crosses a job's memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.assembly import Tuned
from tuner.document import digest, encode
from tuner.fusion.partition import Solution
from tuner.ir.graph import Graph, Region
from tuner.plan import (
    Baseline,
    CandidateSpace,
    Choice,
    Family,
    Measurement,
    Partition,
    Schedule,
)

Json = dict[str, Any]


def measurement_key(
    fingerprint: str,
    schedule: Schedule,
    *,
    device: str,
    toolchain: Mapping[str, Any],
    exactness: str,
    cache: str = "warm",
) -> str:
    """Identity of a measurement: kernel, schedule, device, toolchain, exactness.

    Args:
        fingerprint: of the kernel.
        schedule: of the kernel.
        device: catalogue id of the target.
        toolchain: of the device that measures: its name, compiler, driver, library.
        exactness: what the compiler was allowed.
        cache: cold or warm; identities of warm ones do not name it.
    """
    identity = {
        "kernel": fingerprint,
        "schedule": schedule.as_dict,
        "device": device,
        "toolchain": dict(toolchain),
        "exactness": exactness,
    }
    return digest(encode(identity if cache == "warm" else {**identity, "cache": cache}))


def toolchain_id(toolchain: Mapping[str, Any]) -> str:
    """A short name of a toolchain, carried by every result that it made."""
    return digest(encode(dict(toolchain)))[:16]


def to_json(measurement: Measurement) -> Json:
    """A measurement with all its samples; failures have no seconds."""
    return {
        "seconds": measurement.seconds if math.isfinite(measurement.seconds) else None,
        "samples": list(measurement.samples),
        "low_seconds": measurement.low_seconds,
        "high_seconds": measurement.high_seconds,
        "failure": measurement.failure,
        "message": measurement.message,
        "contended": measurement.contended,
        "max_abs_error": _finite(measurement.max_abs_error),
        "max_rel_error": _finite(measurement.max_rel_error),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def from_json(record: Mapping[str, Any]) -> Measurement:
    """The measurement that a record holds."""
    seconds = record["seconds"]
    return Measurement(
        seconds=math.inf if seconds is None else seconds,
        samples=tuple(record.get("samples", ())),
        low_seconds=record.get("low_seconds", 0.0),
        high_seconds=record.get("high_seconds", 0.0),
        failure=record.get("failure", ""),
        message=record.get("message", ""),
        contended=record.get("contended", False),
        max_abs_error=record.get("max_abs_error") or 0.0,
        max_rel_error=record.get("max_rel_error") or 0.0,
    )


def usable(record: object, toolchain: str) -> Measurement | None:
    """A stored result of this very toolchain; None if it must not be served.

    An entry that is damaged, comes from another toolchain, was disturbed, or tells of
    a lost device instead of the kernel, is a miss.
    """
    if not isinstance(record, Mapping) or record.get("toolchain") != toolchain:
        return None
    if record.get("contended") or record.get("gone"):
        return None
    try:
        found = from_json(record)
        sound = bool(found.failure) or (
            0 < found.low_seconds <= found.seconds <= found.high_seconds < math.inf
        )
    except (KeyError, TypeError, ValueError):
        return None
    return found if sound else None


def cost_of(record: object) -> float:
    """Seconds that a stored run took, compiling and verifying too; 0 if unknown."""
    seconds = record.get("cost_seconds") if isinstance(record, Mapping) else None
    if isinstance(seconds, int | float) and 0 < seconds < math.inf:
        return float(seconds)
    return 0.0


class Known:
    """Results of earlier runs, found by kernel.

    Args:
        records: results by measurement key, as `TuningSession.measure` returned them;
            what is damaged is passed over.
    """

    def __init__(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        self.records = dict(records)
        self._by_kernel: dict[str, list[tuple[str, Schedule]]] = {}
        for key, record in self.records.items():
            try:
                knobs = {str(k): int(v) for k, v in record["schedule"].items()}
                kernel = str(record["kernel"])
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
            self._by_kernel.setdefault(kernel, []).append((key, Schedule.of(**knobs)))

    def costs(self, toolchain: str) -> list[float]:
        """Seconds that each run of a toolchain took, compiling and verifying too."""
        found = []
        for record in self.records.values():
            seconds = cost_of(record)
            if seconds and usable(record, toolchain) is not None:
                found.append(seconds)
        return found

    def of_kernel(
        self, fingerprint: str
    ) -> Iterator[tuple[str, Schedule, Mapping[str, Any]]]:
        """Keys, schedules and records of a kernel, in the order given."""
        for key, schedule in self._by_kernel.get(fingerprint, ()):
            yield key, schedule, self.records[key]


def solution_json(solution: Solution) -> Json:
    """A solved partition."""
    partition = solution.partition
    return {
        "choices": [
            {
                "nodes": list(choice.region.nodes),
                "outputs": list(choice.region.outputs),
                "family": str(choice.family),
                "seconds": choice.seconds,
            }
            for choice in partition.choices
        ],
        "objective_seconds": partition.objective_seconds,
        "bound_seconds": partition.bound_seconds,
        "candidate_space": {
            **asdict(partition.candidate_space),
            "families": list(partition.candidate_space.families),
        },
        "baselines": {name: asdict(b) for name, b in solution.baselines.items()},
    }


def solution_from(record: Mapping[str, Any]) -> Solution:
    """The partition that `solution_json` wrote."""
    space = record["candidate_space"]
    partition = Partition(
        choices=tuple(_choice(entry) for entry in record["choices"]),
        objective_seconds=record["objective_seconds"],
        bound_seconds=record["bound_seconds"],
        candidate_space=CandidateSpace(
            **{**space, "families": tuple(space["families"])}
        ),
    )
    baselines = {name: Baseline(**b) for name, b in record["baselines"].items()}
    return Solution(partition=partition, baselines=baselines)


def _choice(entry: Mapping[str, Any]) -> Choice:
    return Choice(
        region=Region(nodes=tuple(entry["nodes"]), outputs=tuple(entry["outputs"])),
        family=Family(entry["family"]),
        seconds=entry["seconds"],
    )


def stored_partition(
    body: Mapping[str, Any], graph: Graph
) -> tuple[Solution, Mapping[tuple[str, ...], Tuned | None]] | None:
    """Partition, and runs by nodes, of a stored plan; None if it does not fit.

    Args:
        body: a plan's stored body, in canonical ids.
        graph: the canonical graph that it should be a plan of.
    """
    try:
        kernels: Sequence[Mapping[str, Any]] = body["kernels"]
        record = {
            "choices": [
                {**kernel, "seconds": kernel["estimate"]["seconds"]}
                for kernel in kernels
            ],
            "objective_seconds": body["objective_seconds"],
            "bound_seconds": body["bound_seconds"],
            "candidate_space": body["candidate_space"],
            "baselines": body["baselines"],
        }
        solution = solution_from(record)
        ran = {tuple(kernel["nodes"]): _ran(kernel) for kernel in kernels}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return (solution, ran) if _fits(solution, graph) else None


def _ran(kernel: Mapping[str, Any]) -> Tuned | None:
    measured = kernel["measurement"]
    if measured is None:
        return None
    measurement = Measurement(
        seconds=measured["seconds"],
        low_seconds=measured["low_seconds"],
        high_seconds=measured["high_seconds"],
        contended=measured["contended"],
    )
    return Tuned(schedule=Schedule.of(**kernel["schedule"]), measurement=measurement)


def _fits(solution: Solution, graph: Graph) -> bool:
    """Whether the kernels are of this graph and make all that is needed."""
    ready = {*graph.inputs, *graph.weights, *graph.constants}
    covered: set[str] = set()
    for choice in solution.partition.choices:
        if not set(choice.region.nodes) <= set(graph.by_name):
            return False
        covered.update(choice.region.nodes)
        ready.update(choice.region.outputs)
    needed = {node.name for node in graph.nodes if node.op != "reshape"}
    return needed <= covered and ready <= set(graph.types)
