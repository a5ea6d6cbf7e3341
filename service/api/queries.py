"""What a request says: all of it counts, or the request is refused.

A parameter that nobody reads would change nothing and say nothing: a misspelt
`target` or a `budget` that is called otherwise would give another plan than was meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant

from service.errors import InvalidRequest

NO_TEXT: Final = "\0"
"""What a text of PostgreSQL cannot hold, and no name of anybody's has."""


async def known_query(request: Request) -> None:
    """Refuse parameters that the route does not read, and two values for one.

    Raises:
        InvalidRequest: there is such a parameter, or one that is no text.
    """
    for name, value in request.path_params.items():
        _require_text(f"path {name}", value)
    given = request.query_params
    if not given:
        return
    for name, value in given.multi_items():
        _require_text(f"query {name}", value)
    known = dict(_parameters(request.scope["route"].dependant))
    hint = f"known: {', '.join(known)}" if known else "leave it out: it takes none"
    for name in given:
        if name not in known:
            raise InvalidRequest(
                f"query {name}", "this route reads no such parameter", hint=hint
            )
        if len(given.getlist(name)) > 1 and not known[name]:
            raise InvalidRequest(
                f"query {name}", "it is given more than once", hint="give one value"
            )


def _require_text(where: str, value: str) -> None:
    if NO_TEXT in value:
        raise InvalidRequest(
            where, "it holds the character U+0000", hint="leave that character out"
        )


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Names of the parameters that a route reads; whether each takes many values."""
    for field in dependant.query_params:
        kind = field.field_info.annotation
        yield (
            field.alias,
            any(get_origin(one) is list for one in (kind, *get_args(kind))),
        )
    for inner in dependant.dependencies:
        yield from _parameters(inner)
