"""Plans: hand in a model, or look one up by its key."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from sqlalchemy.orm import Session

from cost_model.catalog import ALIASES, DEVICES
from cost_model.device import base_of
from service.api import comparing
from service.api.access import actor
from service.api.bodies import JSON_TYPE, json_object, media_type, refused_type
from service.api.caching import deliver
from service.api.context import Context, ContextDep
from service.api.graph_schema import GRAPH_EXAMPLE, GRAPH_SCHEMA
from service.api.hot import Content, Source
from service.api.problems import request_id, respond, told
from service.api.schemas import EXAMPLE_DIGEST, Evidence, Sha256
from service.errors import (
    InvalidRequest,
    MalformedBody,
    PlanNotFound,
    UnsupportedMediaType,
    problems,
)
from service.jobs.options import Closed, read_options
from service.jobs.planning import Question
from service.jobs.submission import Answer, Ask
from service.settings import Settings
from service.store import plans
from service.store.jobs import NORMAL_PRIORITY, Cache
from service.store.plans import BODY_TYPE
from tuner.pipeline import resolve_target
from tuner.search.stages import MAX_PARTITIONS, PARTITIONS

router = APIRouter(tags=["plans"])

ONNX_TYPES: Final = frozenset(
    {
        "application/octet-stream",
        "application/onnx",
        "application/x-onnx",
        "application/x-protobuf",
    }
)
ONNX_EXAMPLE: Final = "the bytes of a .onnx file"
_MAX_WAIT_SECONDS: Final = 60
_RETRY_SECONDS: Final = 2
_CACHE: Final = "how the caches are before every launch that a job times"
_PARTITIONS: Final = "how many distinct partitions a job runs whole, at most"
_WAIT: Final = re.compile(r"(?:^|[\s,;])wait\s*=\s*(\d{1,6}(?:\.\d{1,6})?)(?:$|[\s,;])")
"""RFC 7240 has whole seconds; a part of one is what its sender means, too."""

Mode = Literal["analytic", "tuned"]
Match = Literal["exact", "compatible"]


_NAMES: Final = [*DEVICES, *ALIASES]
_TARGETS: Final = WithJsonSchema(
    {
        "type": "string",
        "anyOf": [
            {"enum": _NAMES},
            {"pattern": rf"^({'|'.join(_NAMES)})@([0-9a-fA-F]{{1,64}}|latest)$"},
        ],
        "description": "id or alias of a device; with @ and the first digits of its "
        "digest, or @latest, one with the numbers of a stored calibration",
    }
)


class AskBody(Closed):
    """What a request says besides the model."""

    model_config = ConfigDict(extra="forbid", strict=True)

    target: Annotated[str, Field(min_length=1, max_length=200), _TARGETS]
    mode: Mode = "analytic"
    budget_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    budget_trials: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    options: dict[str, Any] = Field(default={})
    title: Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")] = ""
    priority: Annotated[int, Field(ge=1, le=1000)] = NORMAL_PRIORITY
    cache: Annotated[Cache, Field(description=_CACHE)] = "warm"
    partitions: Annotated[
        int, Field(ge=1, le=MAX_PARTITIONS, description=_PARTITIONS)
    ] = PARTITIONS


class GraphRequest(AskBody):
    """A request with a graph as JSON."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"graph": GRAPH_EXAMPLE, "target": "h100-sxm", "mode": "analytic"}
            ]
        },
    )

    graph: Annotated[dict[str, Any], WithJsonSchema(GRAPH_SCHEMA)]


class SubmissionBody(BaseModel):
    """The answer to a submitted model.

    Attributes:
        state: `ready`, or the state of the job that tunes it.
        job: id of that job.
        names: canonical id -> names in the model that was handed in.
        plan: the body, in canonical ids, exactly the bytes that `digest` is of.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "plan_key": EXAMPLE_DIGEST,
                    "digest": EXAMPLE_DIGEST,
                    "state": "ready",
                    "evidence": "analytic",
                    "job": None,
                    "names": {"n0": ["relu"], "t0": ["x"], "t1": ["y"]},
                    "plan": {"schema": "fuseplan.plan/1", "kernels": []},
                }
            ]
        }
    )

    plan_key: Sha256
    digest: Sha256
    state: str
    evidence: Evidence
    job: str | None
    names: dict[str, list[str]]
    plan: dict[str, Any]


_SUBMIT: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "options",
            "in": "query",
            "description": "plan options, as a JSON object",
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/PlanOptions"},
                    "example": {"launch_mode": "graph"},
                }
            },
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/GraphRequest"},
                "example": {
                    "graph": GRAPH_EXAMPLE,
                    "target": "h100-sxm",
                    "mode": "analytic",
                },
            },
            **{
                kind: {
                    "schema": {"type": "string", "format": "binary", "minLength": 1},
                    "example": ONNX_EXAMPLE,
                }
                for kind in sorted(ONNX_TYPES)
            },
        },
    },
}


@router.post(
    "/v1/plans",
    operation_id="submitPlan",
    summary="Plan a model",
    openapi_extra=_SUBMIT,
    responses={
        200: {"model": SubmissionBody, "description": "The plan"},
        202: {
            "model": SubmissionBody,
            "description": "The analytic plan; a job looks for a better one",
        },
        **told(400, 413, 415, 422, 429, 503),
    },
)
async def submit_plan(  # noqa: PLR0913, PLR0917 - the parameters of the route
    request: Request,
    context: ContextDep,
    target: Annotated[str | None, Query(max_length=200), _TARGETS] = None,
    mode: Mode = "analytic",
    budget_seconds: Annotated[float | None, Query(gt=0)] = None,
    budget_trials: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    options: Annotated[str, Query(include_in_schema=False)] = "{}",
    title: Annotated[str, Query(max_length=200)] = "",
    priority: Annotated[int, Query(ge=1, le=1000)] = NORMAL_PRIORITY,
    cache: Annotated[Cache, Query(description=_CACHE)] = "warm",
    partitions: Annotated[
        int, Query(ge=1, le=MAX_PARTITIONS, description=_PARTITIONS)
    ] = PARTITIONS,
    prefer: Annotated[str, Header()] = "",
    idempotency_key: Annotated[
        str, Header(max_length=200, description="makes a request safe to repeat")
    ] = "",
) -> Response:
    """Hand in a model: ONNX, with the rest in the query, or JSON.

    Beside a JSON body the rest stands in the body or in the query; what the query says
    comes first. Parameters that nobody reads are refused.

    An analytic plan comes in the same request. With `mode=tuned` a stored measured
    plan comes at once; otherwise the analytic one, and a job that measures.
    """
    kind = media_type(request)
    refuse_encoded(request)
    data = await request.body()
    said = {
        "target": target,
        "mode": mode,
        "budget_seconds": budget_seconds,
        "budget_trials": budget_trials,
        "options": _options(options),
        "title": title,
        "priority": priority,
        "cache": cache,
        "partitions": partitions,
    }
    query = {name: said[name] for name in request.query_params}
    try:
        if kind == JSON_TYPE:
            ask = await run_in_threadpool(_json_ask, data, query, context.settings)
        elif kind in ONNX_TYPES:
            ask = _ask(AskBody.model_validate(query), data, "onnx", context.settings)
        else:
            raise refused_type(kind, "send application/onnx or application/json")
    except ValidationError as error:
        return respond(problems.invalid(error.errors(), instance=request_id(request)))
    ask = replace(
        ask,
        actor=actor(request),
        request_id=request_id(request),
        repeat_key=repeat_key(actor(request), idempotency_key),
    )
    answer = await run_in_threadpool(context.submissions.at_once, ask)
    if answer is None:
        answer = await context.run_planning(context.submissions.submit, ask)
    answer = await _waited(context, answer, wait_seconds(prefer))
    return _answered(answer)


def refuse_encoded(request: Request) -> None:
    """Refuse a body that unfolds to more than it is.

    Raises:
        UnsupportedMediaType: the body is compressed.
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise UnsupportedMediaType(
            "header Content-Encoding",
            f"{coding} is not taken here",
            hint="send the model as it is; `fuseplan strip` makes it small",
        )


def repeat_key(who: str, given: str) -> str:
    """A client's Idempotency-Key as it is stored: his own, and not to be guessed."""
    return hashlib.sha256(f"{who}\0{given}".encode()).hexdigest() if given else ""


def wait_seconds(prefer: str) -> float:
    """How long the client wants to wait, from its Prefer header (RFC 7240)."""
    found = _WAIT.search(prefer)
    return min(float(found.group(1)), _MAX_WAIT_SECONDS) if found else 0.0


def _json_ask(data: bytes, query: Mapping[str, Any], settings: Settings) -> Ask:
    """What a body asks for, with what the query says in the place of what it says.

    What counts no more must be right all the same: it was meant.
    """
    given = json_object("body", data)
    if query:
        body = GraphRequest.model_validate({**query, **given})
        read_options(body.options, resolve_target(base_of(body.target)).id)
    body = GraphRequest.model_validate({**given, **query})
    return _ask(body, json.dumps(body.graph).encode(), "json", settings)


def _options(text: str) -> dict[str, Any]:
    try:
        return json_object("query options", text.encode())
    except MalformedBody as error:
        raise InvalidRequest(error.where, error.problem, hint=error.hint) from error


def _ask(
    body: AskBody, data: bytes, form: Literal["onnx", "json"], settings: Settings
) -> Ask:
    if not data:
        raise MalformedBody("body", "it is empty", hint="send a model")
    seconds = body.budget_seconds or settings.budget_seconds
    trials = body.budget_trials or settings.budget_trials
    if seconds > settings.max_budget_seconds or trials > settings.max_budget_trials:
        raise InvalidRequest(
            "budget",
            f"{seconds:g} s and {trials} trials are more than this service gives",
            hint=f"at most {settings.max_budget_seconds:g} s and"
            f" {settings.max_budget_trials} trials",
        )
    return Ask(
        question=Question(
            data=data, form=form, target=body.target, options=body.options
        ),
        mode=body.mode,
        budget_seconds=seconds,
        budget_trials=trials,
        title=body.title,
        priority=body.priority,
        cache=body.cache,
        partitions=body.partitions,
    )


async def _waited(context: Context, answer: Answer, seconds: float) -> Answer:
    """The answer after at most this long, or as soon as its job has ended."""
    deadline = time.monotonic() + seconds
    while answer.is_tuning and time.monotonic() < deadline:
        await asyncio.sleep(context.settings.event_poll_seconds)
        answer = await run_in_threadpool(context.submissions.refreshed, answer)
    return answer


def _answered(answer: Answer) -> Response:
    pointer = answer.plan.pointer
    envelope = json.dumps(
        {
            "plan_key": pointer.key,
            "digest": pointer.digest,
            "state": answer.state,
            "evidence": pointer.evidence,
            "job": answer.job and answer.job.id,
            "names": answer.names,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    content = envelope[:-1] + b',"plan":' + answer.plan.body + b"}"
    headers = {
        "Fuseplan-Evidence": pointer.evidence,
        "Fuseplan-Cache": "hit" if answer.cached else "miss",
        "Cache-Control": "no-store",
    }
    if answer.job is not None:
        headers["Location"] = f"/v1/jobs/{answer.job.id}"
    if answer.is_tuning:
        headers["Retry-After"] = str(_RETRY_SECONDS)
    return Response(
        content,
        status_code=202 if answer.is_tuning else 200,
        media_type="application/json",
        headers=headers,
    )


Key = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="plan key")]

Least = Annotated[Evidence | None, Query(description="least evidence")]
Closeness = Annotated[Match, Query(description="how close it must be")]

_PLAN_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The best plan so far, in canonical ids",
        "content": {
            BODY_TYPE: {
                "schema": {"type": "object"},
                "example": {"schema": "fuseplan.plan/1", "kernels": []},
            }
        },
    },
    304: {"description": "The client has it"},
    **told(404, 422, 503),
}


@router.get(
    "/v1/plans/{key}",
    operation_id="getPlan",
    summary="Look a plan up",
    response_class=Response,
    responses=_PLAN_RESPONSES,
)
def get_plan(
    key: Key,
    request: Request,
    context: ContextDep,
    evidence: Least = None,
    match: Closeness = "exact",
) -> Response:
    """The best plan so far, from the moment any plan exists.

    With `match=compatible` a plan of the same graph, target and options that another
    toolchain made is given when there is no exact one; the answer says so.
    """
    least = evidence or "analytic"
    wanted = plans.ORDER[: plans.ORDER.index(least) + 1]
    read_at = context.hot.now()
    with context.database.read() as session:
        found = plans.find(session, key, wanted)
        headers = {"Fuseplan-Match": "exact"}
        if found is None and match == "compatible":
            found = comparing.compatible_plan(session, key, least)
            headers = {"Fuseplan-Match": "compatible"}
        if found is None:
            raise missing(context, session, key, least)
    if found.pointer.key != key:
        headers["Fuseplan-Differs"] = "toolchain"
        headers["Fuseplan-Plan-Key"] = found.pointer.key
        context.metrics.looked_up(reasons=["compatible"])
    else:
        context.metrics.looked_up(hits=1)
    headers |= {
        "Cache-Control": "no-cache",
        "Fuseplan-Evidence": found.pointer.evidence,
    }
    answer = Content(
        content=found.body,
        digest=found.pointer.digest,
        media_type=BODY_TYPE,
        headers=headers,
    )
    if found.pointer.key == key:
        source = Source(key=key, wanted=wanted, evidence=found.pointer.evidence)
        context.hot.put_plan(
            request.url.path,
            request.scope["query_string"],
            answer,
            source=source,
            read_at=read_at,
        )
    return deliver(request, answer)


def missing(
    context: Context, session: Session, key: str, least: Evidence
) -> PlanNotFound:
    """The error that says why there is no such plan."""
    reason = comparing.missing_reasons(session, [key], least)[key]
    context.metrics.looked_up(reasons=[reason])
    return PlanNotFound(
        key,
        f"no plan with {least} evidence is stored",
        hint="hand the model in with POST /v1/plans",
        extra={"reason": reason},
    )


@router.head(
    "/v1/plans/{key}",
    operation_id="headPlan",
    summary="Is a plan stored?",
    response_class=Response,
    responses=_PLAN_RESPONSES,
)
def head_plan(
    key: Key,
    request: Request,
    context: ContextDep,
    evidence: Least = None,
    match: Closeness = "exact",
) -> Response:
    """The headers of the best plan so far."""
    return get_plan(key, request, context, evidence, match)
