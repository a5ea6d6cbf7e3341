"""Every error leaves as problem+json (RFC 9457)."""

from __future__ import annotations

import json
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.errors import ServiceError, problems
from service.errors.problems import MEDIA_TYPE, Problem
from service.errors.table import PROBLEMS
from service.store import StoreError
from tuner.errors import TunerError

log = structlog.get_logger(__name__)

_SERVER_ERROR: Final = 500
_HTTP: Final = {404: "route-not-found", 405: "method-not-allowed"}
_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def respond(problem: Problem) -> Response:
    """The HTTP answer that tells a problem, whatever it has to quote."""
    return Response(
        json.dumps(problem.document(), ensure_ascii=False).encode(errors="replace"),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers={
            "Cache-Control": "no-store",
            "Fuseplan-Problem": problem.code,
            **problem.headers,
        },
    )


def install(app: FastAPI) -> None:
    """Make an application tell all its errors as problems."""
    for kind in (TunerError, StoreError, ServiceError):
        app.add_exception_handler(kind, _domain)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)


def request_id(request: Request) -> str:
    """The id of a request, as its answer's header and its log lines have it."""
    return str(request.scope.get("fuseplan_request_id", ""))


async def _domain(request: Request, error: Exception) -> Response:
    problem = problems.problem_of(error, instance=request_id(request))
    if problem.status >= _SERVER_ERROR:
        told = f"{problem.where}: {problem.detail}"
        log.error("request failed", code=problem.code, error=told)
    return respond(problem)


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return respond(problems.invalid(error.errors(), instance=request_id(request)))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP.get(error.status_code, "http-error")
    hint = {
        "route-not-found": "see /openapi.json for the routes",
        "method-not-allowed": "see the Allow header for what it takes",
    }.get(code, "")
    headers = dict(error.headers or {})
    if code == "method-not-allowed":
        headers["Allow"] = ", ".join(_allowed(request))
    problem = problems.problem(
        code,
        str(error.detail),
        where=f"{request.method} {request.url.path}",
        hint=hint,
        instance=request_id(request),
        status=error.status_code,
        headers=headers,
    )
    return respond(problem)


def _allowed(request: Request) -> list[str]:
    """Every method that the path takes.

    The framework names those of the first route with the path, and there may be more.
    """
    routes = request.app.router.routes
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in routes
        )
    ]


PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "An error (RFC 9457). `code` is stable.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "where", "hint"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": sorted(PROBLEMS)},
        "detail": {"type": "string", "description": "what is wrong"},
        "where": {"type": "string", "description": "the place that it is about"},
        "hint": {"type": "string", "description": "what to do"},
        "instance": {"type": "string", "description": "the request"},
        "reason": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["where", "problem", "code"],
                "properties": {
                    "where": {"type": "string"},
                    "problem": {"type": "string"},
                    "code": {"type": "string"},
                },
            },
        },
    },
    "additionalProperties": True,
    "examples": [
        {
            "type": "urn:fuseplan:problem:unknown-target",
            "title": "The target is not in the catalogue",
            "status": 422,
            "code": "unknown-target",
            "detail": "no such device",
            "where": "sm_91",
            "hint": "known targets: cpu, h100-sxm, ...",
            "instance": "urn:fuseplan:request:3b1f",
        }
    ],
}


def told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route's OpenAPI entry says of its errors."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": _TITLES[status], "content": content}
        for status in statuses
    }


_TITLES: Final = {
    400: "The body cannot be read",
    401: "A valid token is needed",
    403: "The token does not allow this",
    404: "Nothing is stored there",
    409: "The state does not allow it",
    413: "The body or the model is too large",
    415: "The body has the wrong type",
    422: "The request, the model or an option is wrong",
    429: "Too many requests",
    503: "The database or the device cannot be used now",
}
