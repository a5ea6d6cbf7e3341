"""A plan body and a job as the service stores them, of any size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from service.store import blobs, graphs, jobs, kernels, measurements, plans
from service.store.events import EventDraft
from service.store.graphs import StoredGraph
from service.store.jobs import JobRequest, Progress
from service.store.kernels import StoredKernel
from service.store.measurements import StoredMeasurement
from service.store.plans import PlanIdentity, PlanRevision
from tuner.document import digest, encode

if TYPE_CHECKING:
    from service.store import Database

STARTED = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

STEPS = 20
"""Batches in which a job stores its events."""

_FINGERPRINTS = ("reduction:abc", "pointwise:def", "library:ghi")

SOURCE = """// One line of a softmax.
__kernel void fused(__global const float* x, __global float* y) {
    const int i = get_global_id(0);
    if (i < 1024) y[i] = exp(x[i]) * 0.5f; /* not & scaled */
}
"""

_LAYER = (
    ("library", ("matmul", "add"), 310e-6),
    ("pointwise", ("reshape", "transpose", "mul"), 22e-6),
    ("library", ("matmul",), 95e-6),
    ("reduction", ("max", "sub", "exp", "sum", "div"), 48e-6),
    ("library", ("matmul",), 90e-6),
    ("pointwise", ("transpose", "reshape"), 12e-6),
    ("library", ("matmul", "add"), 120e-6),
    ("reduction", ("add", "mean", "sub", "mul", "mean", "add", "rsqrt", "mul"), 31e-6),
    ("library", ("matmul",), 420e-6),
    ("pointwise", ("add", "mul", "erf", "add", "mul"), 88e-6),
    ("library", ("matmul", "add"), 430e-6),
    ("reduction", ("add", "mean", "sub", "mul", "mean", "add", "rsqrt", "mul"), 33e-6),
)


def plan_body(*, layers: int = 4, measured: bool = True) -> dict[str, Any]:
    """A plan of a transformer encoder: twelve kernels a layer."""
    kernels: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    tensors = {"t0": {"dtype": "f32", "shape": [128, 256]}}
    for index in range(layers * len(_LAYER)):
        family, ops, seconds = _LAYER[index % len(_LAYER)]
        first = len(nodes)
        for op in ops:
            n = len(nodes)
            tensors[f"t{n + 1}"] = {"dtype": "f32", "shape": [128, 256]}
            node = {
                "id": f"n{n}",
                "op": op,
                "inputs": [f"t{n}"],
                "outputs": [f"t{n + 1}"],
            }
            nodes.append(node)
        kernels.append(
            _kernel(index, family, range(first, len(nodes)), seconds, measured=measured)
        )
        if index % len(_LAYER) == 7 and index:
            kernels[-1]["inputs"].append(kernels[index - 7]["inputs"][0])
    objective = sum(_best(kernel) for kernel in kernels)
    return {
        "schema": "fuseplan.plan/1",
        "target": {"id": "cpu", "digest": "c" * 64},
        "toolchain": {"codegen_revision": 1, "compiler": "opencl-3.0"},
        "options": {"objective": "latency", "mode": "inference", "pins": []},
        "evidence": "measured" if measured else "analytic",
        "objective_seconds": objective,
        "bound_seconds": objective * 0.985,
        "gap": 0.015,
        "candidate_space": {
            "families": ["pointwise", "reduction", "library"],
            "legality": "full",
            "max_nodes": 24,
            "candidates": 1840 * layers,
            "complete": True,
        },
        "traffic_bytes": sum(kernel["traffic_bytes"] for kernel in kernels),
        "peak_memory_bytes": 9_437_184,
        "arena_bytes": 1_048_576,
        "kernels": kernels,
        "prepare": ["n9000"],
        "buffers": [],
        "aliases": {},
        "baselines": {
            "unfused": {
                "objective_seconds": objective * 1.62,
                "kernels": len(nodes),
                "traffic_bytes": 92_274_688,
            },
            "tvm": {
                "objective_seconds": objective * 1.17,
                "kernels": len(kernels) + 9,
                "traffic_bytes": 51_380_224,
            },
        },
        "measured": _measured(objective) if measured else None,
        "graph": {
            "nodes": nodes,
            "inputs": ["t0"],
            "weights": [],
            "constants": [],
            "outputs": [f"t{len(nodes)}"],
            "tensors": tensors,
        },
        "validity": {},
    }


def _kernel(
    index: int, family: str, nodes: range, seconds: float, *, measured: bool
) -> dict[str, Any]:
    timed = seconds * (1.0 + 0.21 * ((index * 7) % 5 - 1))
    generated = family in ("pointwise", "reduction")
    return {
        "name": f"k{index}",
        "family": family,
        "nodes": [f"n{n}" for n in nodes],
        "inputs": [f"t{nodes.start}"],
        "outputs": [f"t{nodes.stop}"],
        "schedule": {"block": 256, "vector": 4} if generated else {},
        "launch": None,
        "sources": {"opencl": digest(SOURCE.encode())} if generated else {},
        "estimate": {
            "seconds": seconds,
            "launch_seconds": 7e-6,
            "memory_seconds": seconds * 0.62,
            "compute_seconds": seconds * 0.3,
            "latency_seconds": 1e-6,
            "dram_bytes": 262144.0,
            "cache_bytes": 0.0,
            "occupancy": 0.75,
            "occupancy_limiter": "registers",
            "waves": 1.0,
            "bound_by": "memory" if generated else "compute",
            "registers": 24,
            "spill_bytes": 0,
            "evidence": "analytic",
        },
        "traffic_bytes": 262144 + 1024 * index,
        "fingerprint": _FINGERPRINTS[("reduction", "pointwise").index(family)]
        if generated
        else _FINGERPRINTS[2],
        "evidence": "measured" if measured else "analytic",
        "registers": 24 if generated else None,
        "resources": None,
        "executable": True,
        "measurement": {
            "seconds": timed,
            "low_seconds": timed * 0.98,
            "high_seconds": timed * 1.03,
            "runs": 15,
            "contended": False,
        }
        if measured
        else None,
    }


def _best(kernel: dict[str, Any]) -> float:
    measured = kernel["measurement"]
    return float(measured["seconds"] if measured else kernel["estimate"]["seconds"])


def _measured(seconds: float) -> dict[str, Any]:
    turns = {"plan": 1.04, "untuned": 1.3, "unfused": 1.71}
    wholes = {**turns, "alone": 1.01, "reference": 1.42}
    return {
        name: {
            "seconds": seconds * part,
            "low_seconds": seconds * part * 0.98,
            "high_seconds": seconds * part * 1.02,
            "runs": 15,
            "contended": False,
        }
        for name, part in wholes.items()
    }


def user_names(body: dict[str, Any]) -> dict[str, list[str]]:
    """Names as an exporter gives them, for every node of a body."""
    per_layer = sum(len(ops) for _, ops, _ in _LAYER)
    return {
        node["id"]: [f"/encoder/layer.{i // per_layer}/{node['op']}_{i}"]
        for i, node in enumerate(body["graph"]["nodes"])
    }


def store_job(
    database: Database,
    *,
    name: str = "1",
    state: str = "succeeded",
    layers: int = 4,
    trials: int = 60,
    title: str = "encoder.onnx",
    minutes: int = 0,
) -> tuple[str, str]:
    """Store a plan and a job that found it, with its events.

    Returns:
        Id of the job and key of the plan.
    """
    key = (name * 64)[:64]
    body = plan_body(layers=layers, measured=state in ("succeeded", "partial"))
    now = STARTED + timedelta(minutes=minutes)
    job = f"0000{name:0>8}"
    with database.write() as session:
        graph = StoredGraph(
            hash=key,
            title=title,
            nodes=len(body["graph"]["nodes"]),
            tensors=1,
            created_at=now,
        )
        graphs.put(session, graph)
        identity = PlanIdentity(
            key=key, graph_hash=key, target="cpu", parts={"graph": key}, options={}
        )
        plans.register(session, identity, now=now)
        plans.publish(session, key, _revision(body, job), now=now)
        jobs.create(session, _request(session, job, key, title, body), now=now)
        if state != "queued":
            jobs.start(session, job, now=now)
            _append(session, job, _events(body, trials), now)
            kernels.put(session, _kernels(), now=now)
            measurements.add(session, _samples(job), now=now)
            jobs.advance(session, job, batch=1, progress=_progress(body, trials))
        if state in ("succeeded", "partial", "failed", "cancelled"):
            error = {"title": "A kernel failed", "detail": "k3: the device was lost"}
            jobs.finish(
                session,
                job,
                state,  # type: ignore[arg-type]
                now=now + timedelta(seconds=41),
                error=error if state == "failed" else None,
            )
    return job, key


def store_earlier_plan(database: Database, *, name: str, layers: int) -> None:
    """Store what a key had before it was tuned: the plan without a measurement."""
    body = plan_body(layers=layers, measured=False)
    with database.write() as session:
        revision = _revision(body, f"0000{name:0>8}")
        plans.publish(session, (name * 64)[:64], revision, now=STARTED)


def _append(
    session: Any, job: str, events: tuple[EventDraft, ...], now: datetime
) -> None:
    """Store events as a worker does: step by step, over 40 seconds."""
    size = -(-len(events) // STEPS)
    for step in range(STEPS):
        part = events[step * size : (step + 1) * size]
        later = now + timedelta(seconds=2 * (step + 1))
        if part:
            jobs.append(session, job, part, now=later)


def _revision(body: dict[str, Any], job: str) -> PlanRevision:
    return PlanRevision(
        evidence=body["evidence"],
        body=encode(body),
        seconds=body["objective_seconds"],
        objective_seconds=body["objective_seconds"],
        bound_seconds=body["bound_seconds"],
        kernels=len(body["kernels"]),
        blobs=(blobs.Blob.of(SOURCE.encode(), "text/plain; charset=utf-8"),),
        job=job,
    )


def _request(
    session: Any, job: str, key: str, title: str, body: dict[str, Any]
) -> JobRequest:
    model = blobs.Blob.of(b"model " + job.encode(), "application/onnx", public=False)
    blobs.put(session, (model,), now=STARTED)
    return JobRequest(
        id=job,
        plan_key=key,
        graph_hash=key,
        target="cpu",
        queue="tune.cpu",
        title=title,
        input_digest=model.digest,
        input_form="onnx",
        options={},
        names=user_names(body),
        budget_seconds=60.0,
        budget_trials=400,
    )


def _progress(body: dict[str, Any], trials: int) -> Progress:
    return Progress(
        trials=trials,
        best_seconds=body["objective_seconds"],
        gap=0.015,
        remaining_seconds=12.0,
        kernels=len(body["kernels"]),
    )


def _events(body: dict[str, Any], trials: int) -> tuple[EventDraft, ...]:
    """Trials that come down to the plan's time, a second solve, the whole run."""
    goal = body["objective_seconds"]
    drafts = []
    for trial in range(1, trials + 1):
        best = goal * (1 + 0.8 / (1 + trial * 10 / trials))
        data = {
            "kernel": _FINGERPRINTS[trial % 3],
            "family": _FINGERPRINTS[trial % 3].partition(":")[0],
            "key": f"key{trial}",
            "schedule": {"threads": 64 << (trial % 3), "vector": 1 + trial % 2},
            "seconds": None if trial % 20 == 19 else best / 40,
            "low_seconds": best / 41,
            "high_seconds": best / 38,
            "predicted_seconds": best / 44,
            "contended": trial % 16 == 5,
            "message": "ptxas: <b>too many</b> registers" if trial % 20 == 19 else "",
            "uses": 4,
            "failure": "compile" if trial % 20 == 19 else "",
            "trials": trial,
            "best_seconds": best,
            "gap": 0.1 / trial,
            "remaining_seconds": 30.0,
        }
        drafts.append(EventDraft(type="trial", data=data))
        if trial == trials // 2:
            data = {**data, "round": 1, "changed": 5, "kernels": 44}
            drafts.append(EventDraft(type="resolve", data=data))
    measured = body["measured"] or {}
    whole = {name: found["seconds"] for name, found in measured.items()}
    if whole:
        last = {
            "winner": "plan",
            "seconds": whole,
            "partitions": contest_rows(body),
            "trials": trials,
            "best_seconds": goal,
            "gap": 0.015,
        }
        drafts.append(EventDraft(type="plan", data=last))
        told = {"operators": operator_rows(body)}
        drafts.append(EventDraft(type="operators", data=told))
    return tuple(drafts)


def contest_rows(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The plan, a second partition, one that failed, and what they had to beat."""
    goal, measured = body["objective_seconds"], body["measured"]
    foreign = [{"family": "reduction", "nodes": body["kernels"][3]["nodes"]}]
    rows = (
        (["plan"], 1.0, measured["plan"], []),
        (["plan-2"], 1.03, _timed(goal * 1.1), foreign),
        (["plan-3"], 1.08, {**_timed(goal), "seconds": None, "failure": "crash"}, []),
        (["untuned", "incumbent"], 1.21, measured["untuned"], foreign * 2),
        (["unfused"], 1.62, measured["unfused"], foreign),
    )
    return [
        {
            "labels": labels,
            "kernels": len(body["kernels"]) + len(labels),
            "predicted_seconds": goal * part * 0.93,
            "kernel_seconds": goal * part,
            "whole": {**whole, "failure": whole.get("failure", "")},
            "kept": labels == ["plan"],
            "differing": 4 * len(foreign),
            "kernels_only_here": foreign,
        }
        for labels, part, whole, foreign in rows
    ]


def operator_rows(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every operator but reshapes in a kernel of its own; equal ones share a row."""
    launches: dict[str, list[list[str]]] = {}
    for node in body["graph"]["nodes"]:
        if node["op"] != "reshape":
            launches.setdefault(node["op"], []).append([node["id"]])
    return [
        {
            "launches": found,
            "family": "library" if op == "matmul" else "pointwise",
            "predicted_seconds": 2e-5,
            "measured": None if op == "rsqrt" else _timed(25e-6),
        }
        for op, found in launches.items()
    ]


def _timed(seconds: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "low_seconds": seconds * 0.98,
        "high_seconds": seconds * 1.02,
        "failure": "",
        "contended": False,
    }


def _kernels() -> tuple[StoredKernel, ...]:
    return tuple(
        StoredKernel(fingerprint=one, family=one.partition(":")[0])
        for one in _FINGERPRINTS
    )


def _samples(job: str) -> tuple[StoredMeasurement, ...]:
    """Samples of the third trial."""
    times = (31e-6, 30e-6, 33e-6, 30.5e-6)
    stored = StoredMeasurement(
        job=job,
        subject="key3",
        kernel=_FINGERPRINTS[0],
        device="cpu",
        schedule={"threads": 64, "vector": 2},
        seconds=30.5e-6,
        low_seconds=30e-6,
        high_seconds=33e-6,
        samples=times,
        failure="",
        result={"max_abs_error": 1e-7, "max_rel_error": 2e-7},
    )
    return (stored,)
