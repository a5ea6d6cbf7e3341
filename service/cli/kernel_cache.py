"""What this machine has measured: read from its database before tuning, kept after."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cost_model.device import base_of
from service.cli.inputs import own_database, settings
from service.jobs.planning import as_revision
from service.store import graphs, kernels, measurements, plans
from service.store.filesystem import database_file
from service.store.graphs import StoredGraph
from service.store.kernels import StoredKernel
from service.store.measurements import StoredMeasurement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.jobs.planning import Prepared
    from service.store import Database
    from tuner.search.session import TuningSession

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """What a tuning run starts from.

    Attributes:
        known: results of kernel runs on a device, by measurement key.
        incumbent: body of the measured plan that is stored.
        elsewhere: runs on other devices, with the device's id.
    """

    known: Mapping[str, Mapping[str, Any]]
    incumbent: Mapping[str, Any] | None = None
    elsewhere: Sequence[tuple[str, Mapping[str, Any]]] = ()


def is_there() -> bool:
    """Whether there is a database; asking makes none."""
    file = database_file(settings().url)
    return file is None or file.exists()


def read(prepared: Prepared) -> Cached:
    """What is known of a model's device, and the model's own measured plan."""
    if not is_there():
        return Cached(known={})
    with own_database() as database, database.read() as session:
        until = measurements.last_id(session)
        device = base_of(prepared.device.id)
        known = measurements.known(session, device, until=until)
        others = measurements.elsewhere(session, device, until=until)
        stored = plans.find(session, prepared.key.key, ("measured",))
    incumbent = None if stored is None else json.loads(stored.body)
    return Cached(known=known, incumbent=incumbent, elsewhere=others)


def keep_batch(
    database: Database,
    device: str,
    batch: Json,
    results: Sequence[Json],
    events: Sequence[Json],
) -> None:
    """Store the kernel runs of a batch, so that no later run repeats them."""
    now = datetime.now(UTC)
    seen = tuple(
        StoredKernel(fingerprint=event["kernel"], family=event["family"])
        for event in events
        if event["type"] == "trial"
    )
    runs = tuple(
        stored(item["key"], device, result)
        for item, result in zip(batch["items"], results, strict=True)
        if item["kind"] == "kernel" and not result.get("gone")
    )
    if not runs:
        return
    with database.write() as session:
        kernels.put(session, seen, now=now)
        measurements.add(session, runs, now=now)


def stored(subject: str, device: str, result: Json) -> StoredMeasurement:
    """A kernel run as the store keeps it."""
    return StoredMeasurement.of(
        result,
        subject=subject,
        device=device,
        kernel=result["kernel"],
        schedule=result["schedule"],
    )


def keep_plan(database: Database, prepared: Prepared, session: TuningSession) -> bool:
    """Store the tuned plan, if it is measured as a whole.

    Returns:
        Whether it was stored, or stood there already.
    """
    if session.winner == "incumbent":
        return True
    plan = session.plan()
    whole = plan.whole.get("plan")
    if whole is None or whole.failure or str(plan.evidence) != "measured":
        return False
    now = datetime.now(UTC)
    outline = prepared.outline
    graph = StoredGraph(
        hash=outline.identity.graph_hash,
        title="",
        nodes=outline.nodes,
        tensors=outline.tensors,
        created_at=now,
    )
    with database.write() as writing:
        graphs.put(writing, graph)
        plans.register(writing, outline.identity, now=now)
        revision = as_revision(plan, prepared.key)
        plans.publish(writing, prepared.key.key, revision, now=now)
    return True
