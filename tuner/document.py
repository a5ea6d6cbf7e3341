"""The plan as JSON: the stored body in canonical ids, and the joined view in names.

The body holds no clock, no host name and no run statistics, so equal input and equal
evidence give equal bytes and one digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final

import rfc8785

from cost_model.estimate import Estimate
from tuner.ir.graph import Graph
from tuner.plan import Measurement, Options, Plan, PlannedKernel, Source

PLAN_SCHEMA: Final = "fuseplan.plan/1"

Json = dict[str, Any]


def encode(value: object) -> bytes:
    """Canonical JSON by RFC 8785."""
    return rfc8785.dumps(value)  # type: ignore[arg-type]


def digest(data: bytes) -> str:
    """SHA-256 as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def options_json(options: Options) -> Json:
    """Options as they enter the plan key; rules by their digest, if there are any."""
    rules = {"rules": options.rules.digest} if options.rules else {}
    return {
        **rules,
        "objective": options.objective,
        "launch_mode": options.launch_mode,
        "mode": options.mode,
        "exactness": options.exactness,
        "legality": options.legality,
        "memory_cap_bytes": options.memory_cap_bytes,
        "pins": [{"fuse": p.fuse, "nodes": list(p.nodes)} for p in options.pins],
        "shapes": {
            **dict(sorted(options.shapes.items())),
            **{name: list(ends) for name, ends in sorted(options.ranges.items())},
        },
    }


def estimate_json(estimate: Estimate) -> Json:
    """An estimate, by term."""
    return {**asdict(estimate), "evidence": str(estimate.evidence)}


BY_TURNS: Final = "by turns with the other plans"
_ALONE: Final = "alone in a process, in turns of whole rounds"
TIMED: Final[Mapping[str, str]] = MappingProxyType(
    {"alone": _ALONE, "reference": _ALONE}
)
"""How whole runs are timed, by label; the others go by turns in one process."""


def measurement_json(measurement: Measurement | None) -> Json | None:
    """A measurement without its raw samples; null when there is none or it failed."""
    if measurement is None or measurement.failure:
        return None
    return {
        "seconds": measurement.seconds,
        "low_seconds": measurement.low_seconds,
        "high_seconds": measurement.high_seconds,
        "runs": len(measurement.samples),
        "contended": measurement.contended,
    }


def _launch_json(source: Source) -> Json:
    """How a kernel is launched; one of several launches has those before it."""
    one: Json = {
        "entry": source.entry,
        "arguments": [argument.tensor for argument in source.arguments],
        "grid": list(source.grid),
        "block": list(source.block),
        "shared_bytes": source.shared_bytes,
    }
    if not source.before:
        return one
    scratch = {
        name: {"dtype": str(kind.dtype), "shape": list(kind.shape)}
        for name, kind in source.scratch.items()
    }
    return {**one, "before": [*map(_launch_json, source.before)], "scratch": scratch}


def _kernel_json(kernel: PlannedKernel) -> Json:
    sources = {source.language: source.digest for source in kernel.sources}
    launch = _launch_json(kernel.sources[0]) if kernel.sources else None
    return {
        "name": kernel.name,
        "family": str(kernel.family),
        "nodes": list(kernel.region.nodes),
        "inputs": list(kernel.inputs),
        "outputs": list(kernel.region.outputs),
        "fingerprint": kernel.fingerprint,
        "schedule": kernel.schedule.as_dict,
        "launch": launch,
        "sources": sources,
        "estimate": estimate_json(kernel.estimate),
        "traffic_bytes": kernel.traffic_bytes,
        "evidence": str(kernel.evidence),
        "registers": kernel.estimate.registers,
        "resources": asdict(kernel.resources) if kernel.resources else None,
        "executable": kernel.executable,
        "measurement": measurement_json(kernel.measurement),
    }


def graph_json(graph: Graph) -> Json:
    """The structure of a graph, for drawing and explaining it."""
    return {
        "nodes": [
            {
                "id": node.name,
                "op": _op_label(node.op, node.attributes),
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
            }
            for node in graph.nodes
        ],
        "inputs": list(graph.inputs),
        "weights": list(graph.weights),
        "constants": sorted(graph.constants),
        "outputs": list(graph.outputs),
        "tensors": {
            name: {"dtype": str(kind.dtype), "shape": list(kind.shape)}
            for name, kind in graph.types.items()
        },
    }


def _op_label(op: str, attributes: Mapping[str, object]) -> str:
    return str(attributes["op_type"]) if op == "opaque" else op


def body(plan: Plan, *, target: Json, toolchain: Json) -> Json:
    """The part of a plan that is stored.

    Args:
        plan: the plan.
        target: id and digest of the device that it is for.
        toolchain: what generated and compiled it.
    """
    partition = plan.partition
    return {
        "schema": PLAN_SCHEMA,
        "target": target,
        "toolchain": toolchain,
        "options": options_json(plan.options),
        "evidence": str(plan.evidence),
        "objective_seconds": partition.objective_seconds,
        "bound_seconds": partition.bound_seconds,
        "whole_seconds": plan.whole_seconds,
        "gap": partition.gap,
        "candidate_space": {
            **asdict(partition.candidate_space),
            "families": list(partition.candidate_space.families),
        },
        "traffic_bytes": plan.traffic_bytes,
        "peak_memory_bytes": plan.memory.peak_bytes,
        "arena_bytes": plan.memory.arena_bytes,
        "kernels": [_kernel_json(kernel) for kernel in plan.kernels],
        "prepare": [node.name for node in plan.prepare.nodes],
        "buffers": [asdict(buffer) for buffer in plan.memory.buffers],
        "aliases": dict(plan.memory.aliases),
        "baselines": {name: asdict(b) for name, b in plan.baselines.items()},
        "measured": _measured_json(plan.whole),
        "refinement": asdict(plan.refinement) if plan.refinement else None,
        "graph": graph_json(plan.graph),
        "prepare_graph": graph_json(plan.prepare),
        "validity": _validity(plan),
    }


def _measured_json(whole: Mapping[str, Measurement]) -> Json | None:
    """Whole runs, each with how it was timed; see `TIMED`."""
    if not whole:
        return None
    found = {name: measurement_json(measured) for name, measured in whole.items()}
    return {
        name: one and {**one, "timed": TIMED.get(name, BY_TURNS)}
        for name, one in found.items()
    }


def _validity(plan: Plan) -> Json:
    shapes = {
        name: list(plan.graph.types[name].shape)
        for name in (*plan.graph.inputs, *plan.graph.weights)
    }
    dtypes = {name: str(plan.graph.types[name].dtype) for name in shapes}
    return {"shapes": shapes, "dtypes": dtypes, "target": plan.target}


def joined(stored: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> Json:
    """The body in the user's own names: what the command line prints.

    Nodes are the user's nodes, each once per kernel; tensors keep their id when the
    user has no name for them.
    """

    def nodes(ids: Iterable[str]) -> list[str]:
        found = (name for i in ids for name in names.get(i, (i,)))
        return list(dict.fromkeys(found))

    def tensors(ids: Iterable[str]) -> list[str]:
        return [next(iter(names.get(i, ())), i) for i in ids]

    kernels = [
        {
            **kernel,
            "nodes": nodes(kernel["nodes"]),
            "inputs": tensors(kernel["inputs"]),
            "outputs": tensors(kernel["outputs"]),
        }
        for kernel in stored["kernels"]
    ]
    hidden = {"graph", "prepare_graph"}
    shown = {key: value for key, value in stored.items() if key not in hidden}
    return {
        **shown,
        "kernels": kernels,
        "prepare": nodes(stored["prepare"]),
        "buffers": [
            {**b, "tensor": tensors([b["tensor"]])[0]} for b in stored["buffers"]
        ],
        "aliases": dict(
            zip(
                tensors(stored["aliases"]),
                tensors(stored["aliases"].values()),
                strict=True,
            )
        ),
    }
