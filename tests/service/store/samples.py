"""Plans and jobs for the tests of the store."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.store import blobs, graphs, plans
from service.store.blobs import Blob
from service.store.graphs import StoredGraph
from service.store.jobs import JobRequest
from service.store.plans import Evidence, PlanIdentity, PlanRevision

KEY = "a" * 64
GRAPH = "b" * 64
MODEL = Blob.of(b"model", "application/onnx", public=False)


def identity(key: str = KEY) -> PlanIdentity:
    """What a key stands for."""
    return PlanIdentity(
        key=key,
        graph_hash=GRAPH,
        target="cpu",
        parts={"graph": GRAPH},
        options={"legality": "full"},
    )


def revision(
    body: bytes = b"{}",
    evidence: Evidence = "analytic",
    seconds: float = 1.0,
    source: str = "kernel",
) -> PlanRevision:
    """A plan with one kernel source."""
    return PlanRevision(
        evidence=evidence,
        body=body,
        seconds=seconds,
        objective_seconds=seconds,
        bound_seconds=seconds / 2,
        kernels=1,
        blobs=(Blob.of(source.encode(), "text/plain"),),
    )


def register(session: Session, now: datetime, key: str = KEY) -> None:
    """Remember a graph, a model and a key."""
    graphs.put(
        session,
        StoredGraph(hash=GRAPH, title="model", nodes=1, tensors=2, created_at=now),
    )
    blobs.put(session, (MODEL,), now=now)
    plans.register(session, identity(key), now=now)


def request(id_: str = "job-1", key: str = KEY) -> JobRequest:
    """A job for a key."""
    return JobRequest(
        id=id_,
        plan_key=key,
        graph_hash=GRAPH,
        target="cpu",
        queue="tune.cpu",
        title="model",
        input_digest=MODEL.digest,
        input_form="onnx",
        options={},
        names={"n0": ["relu"]},
        budget_seconds=10.0,
        budget_trials=100,
    )
