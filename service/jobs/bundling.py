"""Plans out of the database into a bundle, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy.orm import Session

from service.bundle import Bundle, BundledPlan, Content
from service.errors import BadBundle, BundleConflict, BundleTooLarge, PlanNotFound
from service.store import Database, blobs, graphs, plans
from service.store.graphs import StoredGraph
from service.store.plans import PlanPointer
from service.store.values import Blob, Evidence, PlanIdentity, PlanRevision
from tuner import document

_GROUP: Final = 500
"""Rows of one query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which plans go into a bundle.

    Attributes:
        keys: exactly these; empty means all.
        target: only plans for this device.
        least: least evidence.
        max_bytes: most bytes of content.
    """

    keys: tuple[str, ...] = ()
    target: str | None = None
    least: Evidence = "analytic"
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What an import changed.

    Attributes:
        keys: every key of the bundle.
        added: keys whose best plan is another one now.
    """

    keys: tuple[str, ...]
    added: tuple[str, ...]


def collect(database: Database, selection: Selection) -> Bundle:
    """The best plan of each selected key, with every blob that it names.

    Raises:
        PlanNotFound: a key that was asked for has no plan of this evidence.
        BundleTooLarge: it would hold more than allowed.
    """
    wanted = plans.ORDER[: plans.ORDER.index(selection.least) + 1]
    with database.read() as session:
        keys = selection.keys or plans.keys_of(session, target=selection.target)
        found = plans.pointers(session, keys, wanted)
        if missing := sorted(set(selection.keys) - set(found)):
            raise PlanNotFound(
                missing[0],
                f"no plan with {selection.least} evidence is stored",
                hint="leave the key out, or hand the model in first",
                extra={"reason": "unknown"},
            )
        bodies = {pointer.digest for pointer in found.values()}
        digests = sorted(bodies | set(blobs.children(session, bodies)))
        _check_size(session, digests, selection.max_bytes)
        contents = {digest: _content(session, digest) for digest in digests}
        identities = plans.identities(session, found)
        bundled = tuple(
            _bundled(session, identities[key], found[key]) for key in sorted(found)
        )
    return Bundle(plans=bundled, contents=contents)


def take_in(
    database: Database, bundle: Bundle, *, clock: Callable[[], datetime]
) -> Taken:
    """Store the plans of a bundle that are better than what is stored.

    Raises:
        BadBundle: a plan is not what its key says.
        BundleConflict: a key is stored with another meaning.
    """
    for plan in bundle.plans:
        check(plan, bundle)
    added = []
    with database.write() as session:
        now = clock()
        for plan in bundle.plans:
            before = plans.pointer(session, plan.key)
            _store(session, plan, bundle, now)
            if plans.pointer(session, plan.key) != before:
                added.append(plan.key)
    keys = dict.fromkeys(plan.key for plan in bundle.plans)
    return Taken(keys=tuple(keys), added=tuple(dict.fromkeys(added)))


def check(plan: BundledPlan, bundle: Bundle) -> Mapping[str, Any]:
    """The body of a bundled plan, when key, body and blobs belong together.

    Raises:
        BadBundle: they do not.
    """
    where = f"plan {plan.key}"
    body = _body(where, bundle.body(plan))
    question = {
        "schema": document.PLAN_SCHEMA,
        "graph": plan.graph_hash,
        "target": body.get("target"),
        "toolchain": body.get("toolchain"),
        "options": body.get("options"),
    }
    parts = {name: document.digest(document.encode(p)) for name, p in question.items()}
    told = body.get("target")
    target = told.get("id") if isinstance(told, dict) else None
    if document.digest(document.encode(question)) != plan.key:
        raise _bad(where, "its body answers another question than its key")
    claims = (plan.parts, plan.options, plan.evidence, plan.target)
    if claims != (parts, body.get("options"), body.get("evidence"), target):
        raise _bad(where, "the manifest says something else than the body")
    if not _named(body) <= set(plan.blobs):
        raise _bad(where, "its body names a source that the manifest does not")
    return body


def _body(where: str, data: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(where, f"its body is not JSON: {error}") from error
    if not isinstance(body, dict) or body.get("schema") != document.PLAN_SCHEMA:
        raise _bad(where, f"its body is no {document.PLAN_SCHEMA}")
    if document.encode(body) != data:
        raise _bad(where, "its body is not in canonical form")
    return body


def _named(body: Mapping[str, Any]) -> set[str]:
    """Digests of all kernel sources of a body."""
    kernels = body.get("kernels")
    found: set[str] = set()
    for kernel in kernels if isinstance(kernels, list) else ():
        sources = kernel.get("sources") if isinstance(kernel, dict) else None
        if isinstance(sources, dict):
            found.update(map(str, sources.values()))
    return found


def _check_size(session: Session, digests: Sequence[str], max_bytes: int) -> None:
    whole = 0
    for start in range(0, len(digests), _GROUP):
        group = digests[start : start + _GROUP]
        whole += sum(blobs.sizes(session, group).values())
    if whole > max_bytes:
        raise BundleTooLarge(
            "bundle",
            f"it would hold {whole} bytes, the limit is {max_bytes}",
            hint="select fewer plans with key, target or evidence",
        )


def _content(session: Session, digest: str) -> Content:
    blob = blobs.find(session, digest)
    assert blob is not None, "a linked blob is stored"
    return Content(media_type=blob.media_type, data=blob.content)


def _bundled(
    session: Session, identity: PlanIdentity, pointer: PlanPointer
) -> BundledPlan:
    graph = graphs.find(session, identity.graph_hash)
    assert graph is not None, "the graph of a plan is stored"
    return BundledPlan(
        key=identity.key,
        graph_hash=identity.graph_hash,
        nodes=graph.nodes,
        tensors=graph.tensors,
        target=identity.target,
        parts=dict(identity.parts),
        options=dict(identity.options),
        evidence=pointer.evidence,
        digest=pointer.digest,
        blobs=blobs.children(session, [pointer.digest]),
        seconds=pointer.seconds,
        objective_seconds=pointer.objective_seconds,
        bound_seconds=pointer.bound_seconds,
        kernels=pointer.kernels,
    )


def _store(session: Session, plan: BundledPlan, bundle: Bundle, now: datetime) -> None:
    identity = PlanIdentity(
        key=plan.key,
        graph_hash=plan.graph_hash,
        target=plan.target,
        parts=plan.parts,
        options=plan.options,
    )
    held = plans.identity(session, plan.key)
    if held is not None and held != identity:
        raise BundleConflict(
            f"plan {plan.key}",
            "the key is stored here with another meaning",
            hint="one of the two databases is damaged; compare them before importing",
        )
    graph = StoredGraph(
        hash=plan.graph_hash,
        title="",
        nodes=plan.nodes,
        tensors=plan.tensors,
        created_at=now,
    )
    graphs.put(session, graph)
    plans.register(session, identity, now=now)
    contents = ((digest, bundle.contents[digest]) for digest in plan.blobs)
    revision = PlanRevision(
        evidence=plan.evidence,
        body=bundle.body(plan),
        seconds=plan.seconds,
        objective_seconds=plan.objective_seconds,
        bound_seconds=plan.bound_seconds,
        kernels=plan.kernels,
        blobs=tuple(
            Blob(digest=digest, media_type=one.media_type, content=one.data)
            for digest, one in contents
        ),
    )
    plans.publish(session, plan.key, revision, now=now)


def _bad(where: str, problem: str) -> BadBundle:
    return BadBundle(where, problem, hint="export the bundle again")
