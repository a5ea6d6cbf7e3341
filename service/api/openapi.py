"""The OpenAPI document, with one schema for all errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from service.api.access import OPEN
from service.api.comparing import LookupBody
from service.api.plans import GraphRequest
from service.api.problems import PROBLEM_SCHEMA, told
from service.jobs.options import PlanOptions
from service.settings import Settings

_OWN_ERRORS = ("HTTPValidationError", "ValidationError")
_ANYWHERE: Final = (401, 403, 429)
"""What a request for anything that is not open to all may be answered."""

Parameters = Mapping[str, str]

_BODY: Final = "$response.body#/"
_SCHEMAS: Final = "#/components/schemas/{model}"


def _to_plan(key: str) -> dict[str, Parameters]:
    """Everything that can be asked about a plan, from where its key stands."""
    return {
        "getPlan": {"key": key},
        "headPlan": {"key": key},
        "getPlanProvenance": {"key": key},
        "explainPlan": {"key": key, "a": "n0", "b": "n0"},
        "explainSolved": {"key": key, "a": "n0", "b": "n0"},
        "diffPlans": {"a": key, "b": key},
        "diffRevisions": {"key": key, "a": "1", "b": "1"},
        "listCuts": {"key": key},
        "pinPlan": {"key": key},
        "getPin": {"key": key},
    }


def _to_job(job: str) -> dict[str, Parameters]:
    """Everything that can be asked about a job, from where its id stands."""
    return {
        "getJob": {"job_id": job},
        "streamJobEvents": {"job_id": job},
        "listTrials": {"job_id": job},
        "getJobHistory": {"job_id": job},
        "getContest": {"job_id": job},
    }


def _to_blob(digest: str) -> dict[str, Parameters]:
    return {"getBlob": {"digest": digest}, "headBlob": {"digest": digest}}


_SUBMITTED: Final = _to_plan(f"{_BODY}plan_key") | _to_blob(f"{_BODY}digest")

LINKS: Final[Mapping[tuple[str, str], Mapping[str, Parameters]]] = MappingProxyType(
    {
        ("submitPlan", "200"): _SUBMITTED,
        ("submitPlan", "202"): _SUBMITTED | _to_job(f"{_BODY}job"),
        ("listPlans", "200"): _to_plan(f"{_BODY}plans/0/key"),
        ("listJobs", "200"): _to_job(f"{_BODY}jobs/0/id"),
        ("listTrials", "200"): {
            "getTrial": {
                "job_id": "$request.path.job_id",
                "number": f"{_BODY}trials/0/number",
            }
        },
        ("listDevices", "200"): {
            name: {"device_id": f"{_BODY}devices/0/id"}
            for name in ("getDevice", "getDeviceTimeline", "getPredictionQuality")
        },
    }
)
"""Where the answer of an operation leads: its id and status -> operation, parameters.

A client that follows them never has to make up a key, a digest or an id. None leads to
a DELETE: a client that goes on from a job or a plan to what it has would take that for
the end of what it reads, and a cancelled job and an evicted plan keep all of it.
"""


def install(app: FastAPI, settings: Settings) -> None:
    """Make an application tell its document as this service means it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build(app, settings)
        return app.openapi_schema

    # FastAPI's documented hook.
    app.openapi = document  # type: ignore[method-assign]


def build(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """The document of an application's routes, with the limits of this service."""
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
    )
    schemas = schema["components"]["schemas"]
    for name in _OWN_ERRORS:
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    for model in (PlanOptions, GraphRequest, LookupBody):
        _add_model(schemas, model)
    asked = schemas["GraphRequest"]["properties"]
    asked["options"] = {"$ref": _SCHEMAS.format(model="PlanOptions"), "default": {}}
    _limit_budgets(schema, settings)
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            _complete(operation, is_open=path in OPEN)
    return schema


def _add_model(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    """Show a model that no route names, because it is read by hand."""
    made = model.model_json_schema(ref_template=_SCHEMAS)
    for name, part in {**made.pop("$defs", {}), model.__name__: made}.items():
        assert name not in schemas, f"two models are called {name}"
        schemas[name] = part


def _limit_budgets(schema: dict[str, Any], settings: Settings) -> None:
    """Say how much a job may spend here, in the body and in the query."""
    most = {
        "budget_seconds": settings.max_budget_seconds,
        "budget_trials": settings.max_budget_trials,
    }
    asked = schema["components"]["schemas"]["GraphRequest"]["properties"]
    parameters = schema["paths"]["/v1/plans"]["post"]["parameters"]
    named = [(one["name"], one.get("schema", {})) for one in parameters]
    for name, place in (*asked.items(), *named):
        for kind in place.get("anyOf", ()) if name in most else ():
            if kind["type"] != "null":
                kind["maximum"] = most[name]


def _complete(operation: dict[str, Any], *, is_open: bool) -> None:
    """Add what every operation has: its errors, and where its answers lead."""
    responses = operation["responses"]
    if "422" in responses:
        responses["422"] = told(422)[422]
    if not is_open:
        for status, entry in told(*_ANYWHERE).items():
            responses.setdefault(str(status), entry)
    for status, entry in responses.items():
        links = LINKS.get((operation["operationId"], status), {})
        if links:
            entry["links"] = {
                name: {"operationId": name, "parameters": dict(parameters)}
                for name, parameters in links.items()
            }
