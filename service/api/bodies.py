"""Bodies that routes read by hand: each once, and whole.

The framework decodes a body on the event loop, and cannot be told that an object may
not have a name twice. Where that would be decoding it a second time, a route takes the
bytes and reads them here, in the thread that answers.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from service.errors import MalformedBody, UnsupportedMediaType
from service.jobs.options import RepeatedName, decoded

T = TypeVar("T", bound=BaseModel)

JSON_TYPE = "application/json"


def media_type(request: Request) -> str:
    """The type of a request's body, without parameters."""
    given = request.headers.get("content-type", "")
    return given.partition(";")[0].strip().lower()


def refused_type(kind: str, hint: str) -> UnsupportedMediaType:
    """The error for a body of a type that the route does not take."""
    told = f"{kind or 'no type'} is not taken here"
    return UnsupportedMediaType("header Content-Type", told, hint=hint)


async def _json_bytes(request: Request) -> bytes:
    kind = media_type(request)
    if kind != JSON_TYPE:
        raise refused_type(kind, f"send {JSON_TYPE}")
    return await request.body()


JsonBytes = Annotated[bytes, Depends(_json_bytes)]
"""The body of a request that says that it is JSON, not decoded yet."""


def json_object(where: str, data: bytes) -> dict[str, Any]:
    """The object of a JSON text.

    Args:
        where: what the text is, for errors.
        data: the text.

    Raises:
        MalformedBody: it is no JSON object, or an object in it has a name twice: one of
            the two values would be lost unsaid.
    """
    try:
        value = decoded(data)
    except RepeatedName as error:
        raise MalformedBody(where, str(error), hint="give each name once") from error
    except (ValueError, RecursionError) as error:
        raise MalformedBody(
            where, f"it is not JSON: {error}", hint="send a JSON object"
        ) from error
    if not isinstance(value, dict):
        raise MalformedBody(where, "it is no JSON object", hint="send a JSON object")
    return value


def read(kind: type[T], data: bytes) -> T:
    """A body as its model.

    Raises:
        MalformedBody: as of `json_object`.
        RequestValidationError: it does not keep the schema.
    """
    given = json_object("body", data)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        told = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(told) from error
