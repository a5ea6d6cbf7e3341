"""The OpenAPI document, with one schema for all errors."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.plans import GraphRequest
from service.api.problems import PROBLEM_SCHEMA, told

_OWN_ERRORS = ("HTTPValidationError", "ValidationError")


def install(app: FastAPI) -> None:
    """Make an application tell its document as this service means it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build(app)
        return app.openapi_schema

    # FastAPI's documented hook.
    app.openapi = document  # type: ignore[method-assign]


def build(app: FastAPI) -> dict[str, Any]:
    """The document of an application's routes."""
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
    schemas["GraphRequest"] = GraphRequest.model_json_schema(
        ref_template="#/components/schemas/{model}"
    )
    refused = told(422)[422]
    for operations in schema["paths"].values():
        for operation in operations.values():
            if "422" in operation["responses"]:
                operation["responses"]["422"] = refused
    return schema
