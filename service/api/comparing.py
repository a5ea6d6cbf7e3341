"""Questions about stored plans: many at once, why, and what differs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from service.api import bodies
from service.api.bodies import JSON_TYPE, JsonBytes
from service.api.context import Context, ContextDep
from service.api.problems import told
from service.api.schemas import EXAMPLE_DIGEST, Evidence, Sha256
from service.errors import ModelNotStored, PlanNotFound, TooManyKeys
from service.jobs import explaining
from service.jobs.options import Closed
from service.jobs.planning import Question
from service.jobs.solving import solve_other
from service.store import blobs, jobs, plans
from service.store.values import PlanIdentity

router = APIRouter(tags=["plans"])

MAX_KEYS: Final = 1000

Reason = Literal[
    "unknown", "never_tuned", "tuning", "failed", "toolchain_mismatch", "evicted"
]


class LookupBody(Closed):
    """Keys to look up, and the least evidence that will do."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"keys": [EXAMPLE_DIGEST], "evidence": "measured"}]
        },
    )

    # One wrong key is told: an error for each of millions would fill the memory.
    keys: Annotated[list[Sha256], Field(fail_fast=True)]
    evidence: Evidence = "analytic"


class FoundBody(BaseModel):
    """A key that has a plan; its body is the blob `digest`."""

    key: Sha256
    digest: Sha256
    evidence: Evidence
    objective_seconds: float
    kernels: int


class MissingBody(BaseModel):
    """A key that has none, and why."""

    key: Sha256
    reason: Reason


class LookupAnswer(BaseModel):
    """Both lists together have each key that was asked for once."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "found": [
                        {
                            "key": EXAMPLE_DIGEST,
                            "digest": EXAMPLE_DIGEST,
                            "evidence": "measured",
                            "objective_seconds": 0.0107,
                            "kernels": 61,
                        }
                    ],
                    "missing": [{"key": "0" * 64, "reason": "unknown"}],
                }
            ]
        }
    )

    found: list[FoundBody]
    missing: list[MissingBody]


class NodeBody(BaseModel):
    """A node, and the kernels that compute it."""

    id: str
    op: str
    kernels: list[str]


class TensorBody(BaseModel):
    """A tensor that lies between two nodes or kernels."""

    id: str
    bytes: int


class OtherBody(BaseModel):
    """What the other choice would change; a bound, from bytes and launches alone."""

    choice: Literal["one kernel", "separate kernels"]
    extra_bytes: int
    extra_launches: int
    extra_seconds: float | None


class Solved(BaseModel):
    """What the other choice costs in a second solution of the same problem.

    Attributes:
        fused: whether the stored plan holds both nodes in one kernel.
        other_objective_seconds: null where no plan has the other choice.
        reason: why there is none, or what the plan with the other choice does
            differently.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "fused": False,
                    "objective_seconds": 3.92e-3,
                    "other_objective_seconds": 4.07e-3,
                    "reason": "the other choice moves +16384 bytes, launches +1"
                    " kernels; the slowest kernel of the two there (24 registers, 75%"
                    " occupied (registers)) is bound by dram, here (32 registers, 75%"
                    " occupied (registers)) is bound by dram",
                }
            ]
        }
    )

    fused: bool
    objective_seconds: float
    other_objective_seconds: float | None
    reason: str


class Explanation(BaseModel):
    """Whether two nodes share a kernel, and why."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "a": {"id": "n0", "op": "relu", "kernels": ["k0"]},
                    "b": {"id": "n1", "op": "add", "kernels": ["k0"]},
                    "fused": True,
                    "reason": "kernel k0 computes both; t1 stays in registers and is"
                    " never written",
                    "tensors": [{"id": "t1", "bytes": 8192}],
                    "other": {
                        "choice": "separate kernels",
                        "extra_bytes": 16384,
                        "extra_launches": 1,
                        "extra_seconds": 4.2e-06,
                    },
                }
            ]
        }
    )

    a: NodeBody
    b: NodeBody
    fused: bool
    reason: str
    tensors: list[TensorBody]
    other: OtherBody | None


class Pair(BaseModel):
    """One number of two plans."""

    a: float | None
    b: float | None


class KernelDifferences(BaseModel):
    """Kernels of two plans of one graph, matched by the nodes that they compute."""

    same: int
    changed: list[dict[str, Any]]
    only_a: list[dict[str, Any]]
    only_b: list[dict[str, Any]]


class Difference(BaseModel):
    """How two plans differ.

    Attributes:
        differing: parts of the plan key that are not the same.
        kernels: null when the plans are of different graphs.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "same_graph": True,
                    "evidence": {"a": "analytic", "b": "measured"},
                    "differing": ["toolchain"],
                    "totals": {"objective_seconds": {"a": 0.012, "b": 0.0107}},
                    "kernels": {"same": 60, "changed": [], "only_a": [], "only_b": []},
                }
            ]
        }
    )

    same_graph: bool
    evidence: dict[str, Evidence]
    differing: list[str]
    totals: dict[str, Pair]
    kernels: KernelDifferences | None


@router.post(
    "/v1/plans:lookup",
    operation_id="lookupPlans",
    summary="Look many plans up",
    response_model=LookupAnswer,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                JSON_TYPE: {"schema": {"$ref": "#/components/schemas/LookupBody"}}
            },
        }
    },
    responses=told(400, 413, 415, 422, 503),
)
def lookup_plans(data: JsonBytes, context: ContextDep) -> Response:
    """Up to 1000 keys in one round trip."""
    body = bodies.read(LookupBody, data)
    keys = list(dict.fromkeys(body.keys))
    if len(keys) > MAX_KEYS:
        raise TooManyKeys(
            "body keys",
            f"{len(keys)} keys, the limit is {MAX_KEYS}",
            hint="ask in several requests",
        )
    wanted = plans.ORDER[: plans.ORDER.index(body.evidence) + 1]
    found = context.places.known(keys, wanted)
    asked = [key for key in keys if key not in found]
    reasons: Mapping[str, Reason] = {}
    if asked:
        read_at = context.places.now()
        with context.database.read() as session:
            stored = plans.places(session, asked, wanted)
            reasons = missing_reasons(
                session, [key for key in asked if key not in stored], body.evidence
            )
        context.places.keep(stored, read_at=read_at)
        found |= stored
    answer = {
        "found": [
            {
                "key": key,
                "digest": found[key].digest,
                "evidence": found[key].evidence,
                "objective_seconds": found[key].objective_seconds,
                "kernels": found[key].kernels,
            }
            for key in keys
            if key in found
        ],
        "missing": [
            {"key": key, "reason": reasons[key]} for key in keys if key not in found
        ],
    }
    context.metrics.looked_up(hits=len(found), reasons=reasons.values())
    return Response(
        json.dumps(answer, separators=(",", ":")),
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def missing_reasons(
    session: Session, keys: Collection[str], least: Evidence
) -> Mapping[str, Reason]:
    """Why each of these keys has no plan of this evidence."""
    if not keys:
        return {}
    known = plans.identities(session, keys)
    last = jobs.latest_of(session, known)
    any_plan = plans.places(session, known)
    return {
        key: _reason(session, known[key], last.get(key), key in any_plan, least)
        if key in known
        else "unknown"
        for key in keys
    }


def _reason(
    session: Session,
    identity: PlanIdentity,
    job: jobs.Job | None,
    has_plan: bool,
    least: Evidence,
) -> Reason:
    if job is not None:
        was_found = job.state in {"succeeded", "partial"} and not has_plan
        return "tuning" if job.active else "evicted" if was_found else "failed"
    if not has_plan:
        return "evicted"
    if compatible(session, identity, least) is not None:
        return "toolchain_mismatch"
    return "never_tuned"


def compatible(
    session: Session, identity: PlanIdentity, least: Evidence
) -> plans.PlanPointer | None:
    """The newest plan of the same graph, target and options from another toolchain."""
    wanted = plans.ORDER[: plans.ORDER.index(least) + 1]
    alike = [
        other.key
        for other in plans.alike(session, identity)
        if differing(identity, other) == ["toolchain"]
    ]
    found = plans.pointers(session, alike, wanted)
    return next((found[key] for key in alike if key in found), None)


def compatible_plan(
    session: Session, key: str, least: Evidence
) -> plans.StoredPlan | None:
    """A plan that another toolchain made for the same question."""
    identity = plans.identity(session, key)
    if identity is None:
        return None
    pointer = compatible(session, identity, least)
    if pointer is None:
        return None
    return plans.find(session, pointer.key, (pointer.evidence,))


def differing(a: PlanIdentity, b: PlanIdentity) -> list[str]:
    """Parts of two keys that are not the same, sorted."""
    names = sorted({*a.parts, *b.parts})
    return [name for name in names if a.parts.get(name) != b.parts.get(name)]


Key = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="plan key")]
NodeName = Annotated[
    str, Query(min_length=1, max_length=500, description="id or name", examples=["n0"])
]


@router.get(
    "/v1/plans/{key}/explain",
    operation_id="explainPlan",
    summary="Why are two nodes fused, or not?",
    responses=told(404, 422, 503),
)
def explain_plan(
    key: Key, a: NodeName, b: NodeName, context: ContextDep
) -> Explanation:
    """Same kernel or not, what crosses between them, and what the other choice costs.

    Names are those of the model of the last job for the key; ids always work.
    """
    with context.database.read() as session:
        body = _body(session, key)
        job = jobs.latest(session, key)
    names = {} if job is None else job.request.names
    return Explanation(**explaining.explain(body, *_pair(body, names, a, b)))


@router.get(
    "/v1/plans/{key}/explain/solved",
    operation_id="explainSolved",
    summary="What would the other choice cost?",
    responses=told(404, 409, 422, 503),
)
async def explain_solved(
    key: Key, a: NodeName, b: NodeName, context: ContextDep
) -> Solved:
    """The plan's problem solved again, with the two nodes pinned the other way.

    It needs the model, which is stored for plans that a job was ever queued for; both
    times are those of the cost model. It takes as long as planning does.
    """
    return await context.run_planning(_solved, context, key, a, b)


def _solved(context: Context, key: str, a: str, b: str) -> Solved:
    with context.database.read() as session:
        body = _body(session, key)
        job = jobs.latest(session, key)
        model = None if job is None else blobs.find(session, job.request.input_digest)
    if job is None or model is None:
        raise ModelNotStored(
            key,
            "the model of this plan is not stored",
            hint="ask `fuseplan explain MODEL A B`, or submit it with mode=tuned",
        )
    ids = _pair(body, job.request.names, a, b)
    question = Question(
        data=model.content,
        form=job.request.input_form,
        target=job.request.target,
        options=job.request.options,
    )
    answer = explaining.explain(body, *ids)
    return Solved(**solve_other(context.submissions.analytic, question, body, answer))


@router.get(
    "/v1/plans/{a}/diff/{b}",
    operation_id="diffPlans",
    summary="How do two plans differ?",
    responses=told(404, 422, 503),
)
def diff_plans(a: Key, b: Key, context: ContextDep) -> Difference:
    """Totals, and kernels matched by the nodes that they compute."""
    with context.database.read() as session:
        first, second = _body(session, a), _body(session, b)
    return Difference(**explaining.differences(first, second))


def _body(session: Session, key: str) -> Mapping[str, Any]:
    found = plans.find(session, key)
    if found is None:
        raise PlanNotFound(
            key,
            "no plan is stored",
            hint="hand the model in with POST /v1/plans",
            extra={"reason": missing_reasons(session, [key], "analytic")[key]},
        )
    return dict(json.loads(found.body))


def _pair(
    body: Mapping[str, Any], names: Mapping[str, Any], a: str, b: str
) -> tuple[str, str]:
    """A part of each of two nodes, by name or id; a node of the user's has several."""
    first, second = (explaining.parts(body, names, name) for name in (a, b))
    return explaining.pair(body, first, second)
